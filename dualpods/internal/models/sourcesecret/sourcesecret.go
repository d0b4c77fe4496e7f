// Package sourcesecret finds the credentials for the source of a ClusterModelCache or a
// ModelCache, in the Secret or the ServiceAccount that the cache names, and sets the condition
// CredentialsAccepted.
package sourcesecret

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// DockerConfig is the key of Secrets that `kubectl create secret docker-registry` creates
// (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
const DockerConfig = ".dockerconfigjson"

// dockerVariable is the variable that the source of a registry takes instead.
const dockerVariable = "DOCKER_AUTH_CONFIG"

// Shown has the credentials that a source is shown. It is zero if the cache names none.
type Shown struct {
	Of      string               // where the credentials are, in words; empty: the cache names none
	Secret  string               // name of their Secret; empty: they are in no Secret
	Values  fetchapi.Credentials // nil: no usable credentials
	Keys    map[string]string    // the Secret's keys, by the names of Values
	Reason  string               // for a condition
	Problem string               // why the credentials cannot be used; empty: they can
	Note    string               // why no Secret is used although that is no problem; empty: one is used, or Problem is set
}

// Shown returns the credentials for the source at an address.
func (f Found) Shown(uri string) Shown {
	switch {
	case f.Secret == "" && f.Account == "":
		return Shown{}
	case f.Unread != "":
		return Shown{Of: "the credentials that it names", Reason: v1alpha1.ReasonSecretInvalid, Problem: f.Unread}
	case f.Account != "" && f.Version == "":
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonAccountMissing, Problem: fmt.Sprintf(
			"there is no %s, which spec.credentials.serviceAccountName names: create it, or name another one of that namespace", f.account())}
	case f.Secret == "":
		return f.byAccount(uri)
	}
	of := "Secret " + f.Namespace + "/" + f.Secret
	if secret := f.Secrets[0]; secret.Version != "" {
		return secret.shown(of, uri)
	}
	return Shown{Of: of, Reason: v1alpha1.ReasonSecretMissing, Problem: fmt.Sprintf(
		"there is no %s, which spec.credentials.secretRef names: create it, or name another one of that namespace", of)}
}

// shown returns those credentials of the Secret that a source takes. It does not change s.
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

// variables returns the credentials of a Secret by the names of variables.
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

// Remedy appends a remedy to the message of a source that refuses access. kind is the kind of
// the cache.
func (s Shown) Remedy(kind, why, cause string) string {
	switch {
	case cause != fetchapi.ReasonAccessDenied:
		return why
	case s.Note != "":
		return why + "; " + s.Note + "; to use a Secret, list one with the credentials among the secrets of the account"
	case s.Of != "":
		return why + "; the credentials are those of " + s.Of + "; the fetch is tried again as soon as they change"
	default:
		return why + "; name a Secret with credentials in spec.credentials.secretRef of the " + kind
	}
}

// Tell sets the condition CredentialsAccepted, or removes it if the cache names no credentials.
// denied is why the source refuses them; empty: it does not. With unknown, it is not known
// whether the source refuses them, and the condition stays as it was.
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
