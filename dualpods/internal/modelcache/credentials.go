package modelcache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Secret is one that a cache names, as it was read.
type Secret struct {
	Data   fetchapi.Credentials // by the Secret's keys
	Unread string               // why it could not be read; empty: it was
}

// credentials are what the source of a cache is shown. The zero value: nothing is
// named, and launchers show what they have in their own environment.
type credentials struct {
	secret  string               // namespace/name; empty: none is named
	values  fetchapi.Credentials // nil: none that can be used
	reason  string               // of the problem, for a condition
	problem string               // why none can be used; empty: they can
}

// dockerConfig is the key of a Secret that `kubectl create secret docker-registry`
// makes (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
const dockerConfig = ".dockerconfigjson"

// credentialsOf are those of a cache.
func (w *World) credentialsOf(c *v1alpha1.ClusterModelCache) credentials {
	if c.Spec.Credentials == nil {
		return credentials{}
	}
	name := c.Spec.Credentials.SecretRef.Name
	of := credentials{secret: w.Namespace + "/" + name}
	secret, there := w.Secrets[name]
	switch {
	case !there:
		of.reason = v1alpha1.ReasonSecretMissing
		of.problem = fmt.Sprintf("there is no Secret %s, which spec.credentials.secretRef names: make it, or name another one of that namespace", of.secret)
		return of
	case secret.Unread != "":
		of.reason, of.problem = v1alpha1.ReasonSecretInvalid, fmt.Sprintf("cannot read Secret %s: %s", of.secret, secret.Unread)
		return of
	}
	given := maps.Clone(secret.Data)
	if config, ok := given[dockerConfig]; ok {
		delete(given, dockerConfig)
		given["DOCKER_AUTH_CONFIG"] = config
	}
	values, err := given.For(c.Spec.Source.URI)
	if err != nil {
		of.reason, of.problem = v1alpha1.ReasonSecretInvalid, fmt.Sprintf("the keys of Secret %s cannot be used: %v", of.secret, err)
		return of
	}
	of.values = values
	return of
}

// sumOf is a hash by which a call with other credentials, or with another size or digest
// that is expected, is told from this; empty: it has none of these.
func sumOf(values fetchapi.Credentials, c *v1alpha1.ClusterModelCache) string {
	if len(values) == 0 && expectedBytes(c) == 0 && c.Spec.ExpectedDigest == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %q\n", expectedBytes(c), c.Spec.ExpectedDigest)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(h, "%q %q\n", name, values[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// cannot says why a launcher is not asked to fetch by them; empty: it may be.
func (c credentials) cannot(l *Launcher) string {
	if c.values != nil && l.Plain {
		return "launcher " + l.Name + " is told no credentials, since it is called without TLS: it is replaced once no requester is bound to it, or when it is deleted"
	}
	return c.problem
}

// remedy adds to what a source says that refuses what helps.
func (c credentials) remedy(why, cause string) string {
	switch {
	case cause != fetchapi.ReasonAccessDenied:
		return why
	case c.secret != "":
		return why + "; they are those of Secret " + c.secret + ", which is looked at again as soon as it changes"
	default:
		return why + "; of a ClusterModelCache, spec.credentials.secretRef names a Secret that has one"
	}
}

// accepted tells of the credentials; of a cache that names none nothing is told.
func (t *Told) accepted(s *v1alpha1.ClusterModelCacheStatus, set setter) {
	switch c := t.Credentials; {
	case c.secret == "":
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionCredentialsAccepted)
	case c.problem != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, c.reason, c.problem)
	case t.Denied != "":
		set(v1alpha1.ConditionCredentialsAccepted, false, v1alpha1.ReasonAccessDenied, t.Denied)
	default:
		set(v1alpha1.ConditionCredentialsAccepted, true, v1alpha1.ReasonSecretRead, "")
	}
}
