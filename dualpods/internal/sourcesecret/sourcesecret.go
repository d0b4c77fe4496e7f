// Package sourcesecret says what the source of a cache is shown by the Secret that the
// cache names, and tells of that: a ClusterModelCache and a ModelCache have one opinion.
package sourcesecret

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// DockerConfig is the key of a Secret that `kubectl create secret docker-registry`
// makes (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
const DockerConfig = ".dockerconfigjson"

// dockerVariable is what a registry's source takes in place of it.
const dockerVariable = "DOCKER_AUTH_CONFIG"

// Shown is what a source is shown. The zero value: no Secret is named.
type Shown struct {
	Secret  string               // namespace/name; empty: none is named
	Values  fetchapi.Credentials // nil: none that can be used
	Keys    map[string]string    // the Secret's keys, by the names of Values
	Reason  string               // of the problem, for a condition
	Problem string               // why none can be used; empty: they can
}

// Missing is what is told of a Secret, namespace/name, that is not there.
func Missing(secret string) Shown {
	return Shown{Secret: secret, Reason: v1alpha1.ReasonSecretMissing, Problem: fmt.Sprintf(
		"there is no Secret %s, which spec.credentials.secretRef names: make it, or name another one of that namespace", secret)}
}

// Unread is what is told of a Secret that could not be read.
func Unread(secret, why string) Shown {
	return Shown{Secret: secret, Reason: v1alpha1.ReasonSecretInvalid, Problem: "cannot read Secret " + secret + ": " + why}
}

// For takes what the source at an address takes from what a Secret has, which stays as
// it is.
func For(secret string, has fetchapi.Credentials, uri string) Shown {
	given := maps.Clone(has)
	config, docker := given[DockerConfig]
	if docker {
		delete(given, DockerConfig)
		given[dockerVariable] = config
	}
	values, err := given.For(uri)
	if err != nil {
		return Shown{Secret: secret, Reason: v1alpha1.ReasonSecretInvalid, Problem: fmt.Sprintf("the keys of Secret %s cannot be used: %v", secret, err)}
	}
	s := Shown{Secret: secret, Values: values, Keys: map[string]string{}}
	for name := range values {
		s.Keys[name] = name
	}
	if docker {
		s.Keys[dockerVariable] = DockerConfig
	}
	return s
}

// Remedy adds what helps to what a source says that refuses; kind is the cache's.
func (s Shown) Remedy(kind, why, cause string) string {
	switch {
	case cause != fetchapi.ReasonAccessDenied:
		return why
	case s.Secret != "":
		return why + "; they are those of Secret " + s.Secret + ", which is looked at again as soon as it changes"
	default:
		return why + "; of a " + kind + ", spec.credentials.secretRef names a Secret that has one"
	}
}

// Tell sets the condition CredentialsAccepted; of a cache that names no Secret there is
// none. denied is why a source refuses them; empty: it does not, or nobody knows, and
// then unknown keeps what was told before.
func (s Shown) Tell(conditions *[]metav1.Condition, set func(kind string, is bool, reason, message string), denied string, unknown bool) {
	switch {
	case s.Secret == "":
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionCredentialsAccepted)
	case s.Problem != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, s.Reason, s.Problem)
	case denied != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, v1alpha1.ReasonAccessDenied, denied)
	case !unknown || meta.FindStatusCondition(*conditions, v1alpha1.ConditionCredentialsAccepted) == nil:
		set(v1alpha1.ConditionCredentialsAccepted, true, v1alpha1.ReasonSecretRead, "")
	}
}
