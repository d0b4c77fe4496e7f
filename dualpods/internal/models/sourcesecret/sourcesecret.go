// Package sourcesecret says what the source of a cache is shown by the Secret or the
// ServiceAccount that the cache names, and tells of that: a ClusterModelCache and a
// ModelCache have one opinion.
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

// Shown is what a source is shown. The zero value: nothing is named.
type Shown struct {
	Of      string               // whose it is, in words; empty: nothing is named
	Secret  string               // name of the Secret that it is in; empty: it is in none
	Values  fetchapi.Credentials // nil: none that can be used
	Keys    map[string]string    // the Secret's keys, by the names of Values
	Reason  string               // for a condition
	Problem string               // why none can be used; empty: they can
	Note    string               // where it is in no Secret, and is no problem: what there is
}

// Shown is what the source at an address is shown of what was found.
func (f Found) Shown(uri string) Shown {
	switch {
	case f.Secret == "" && f.Account == "":
		return Shown{}
	case f.Unread != "":
		return Shown{Of: "what it names", Reason: v1alpha1.ReasonSecretInvalid, Problem: f.Unread}
	case f.Account != "" && f.Version == "":
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonAccountMissing, Problem: fmt.Sprintf(
			"there is no %s, which spec.credentials.serviceAccountName names: make it, or name another one of that namespace", f.account())}
	case f.Secret == "":
		return f.byAccount(uri)
	}
	of := "Secret " + f.Namespace + "/" + f.Secret
	if secret := f.Secrets[0]; secret.Version != "" {
		return secret.shown(of, uri)
	}
	return Shown{Of: of, Reason: v1alpha1.ReasonSecretMissing, Problem: fmt.Sprintf(
		"there is no %s, which spec.credentials.secretRef names: make it, or name another one of that namespace", of)}
}

// shown takes what a source takes from what the Secret has, which stays as it is.
func (s Secret) shown(of, uri string) Shown {
	values, err := s.variables().For(uri)
	if err != nil {
		return Shown{Of: of, Reason: v1alpha1.ReasonSecretInvalid, Problem: fmt.Sprintf("the keys of %s cannot be used: %v", of, err)}
	}
	shown := Shown{Of: of, Secret: s.Name, Values: values, Keys: map[string]string{}, Reason: v1alpha1.ReasonSecretRead}
	for name := range values {
		shown.Keys[name] = name
	}
	if _, docker := s.Data[DockerConfig]; docker && values[dockerVariable] != "" {
		shown.Keys[dockerVariable] = DockerConfig
	}
	return shown
}

// variables are what a Secret has, the login of a registry by the variable's name.
func (s Secret) variables() fetchapi.Credentials {
	config, docker := s.Data[DockerConfig]
	if !docker {
		return s.Data
	}
	has := maps.Clone(s.Data)
	delete(has, DockerConfig)
	has[dockerVariable] = config
	return has
}

// Remedy adds what helps to what a source says that refuses; kind is the cache's.
func (s Shown) Remedy(kind, why, cause string) string {
	switch {
	case cause != fetchapi.ReasonAccessDenied:
		return why
	case s.Note != "":
		return why + "; " + s.Note + "; where the source is to be shown a Secret, list one that has it among the secrets of the account"
	case s.Of != "":
		return why + "; they are those of " + s.Of + ", which is looked at again as soon as it changes"
	default:
		return why + "; of a " + kind + ", spec.credentials.secretRef names a Secret that has one"
	}
}

// Tell sets the condition CredentialsAccepted; of a cache that names nothing there is
// none. denied is why a source refuses them; empty: it does not, or nobody knows, and
// then unknown keeps what was told before.
func (s Shown) Tell(conditions *[]metav1.Condition, set func(kind string, is bool, reason, message string), denied string, unknown bool) {
	switch {
	case s.Of == "":
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionCredentialsAccepted)
	case s.Problem != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, s.Reason, s.Problem)
	case denied != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, v1alpha1.ReasonAccessDenied, denied)
	case !unknown || meta.FindStatusCondition(*conditions, v1alpha1.ConditionCredentialsAccepted) == nil:
		set(v1alpha1.ConditionCredentialsAccepted, true, s.Reason, s.Note)
	}
}
