package modelclaim

import (
	"fmt"
	"maps"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// credentials are what the source of a cache is shown. The zero value: no Secret is named.
type credentials struct {
	secret  string            // its name; empty: none is named
	keys    map[string]string // its keys, by the variables that the source takes
	reason  string            // of the problem, for a condition
	problem string            // why it cannot be used; empty: it can
}

// dockerConfig is the key of a Secret that `kubectl create secret docker-registry`
// makes (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
const (
	dockerConfig   = ".dockerconfigjson"
	dockerVariable = "DOCKER_AUTH_CONFIG"
)

// SecretName is the name of the Secret that a cache names; empty: none.
func SecretName(c *v1alpha1.ModelCache) string {
	if c.Spec.Credentials == nil || c.Spec.Credentials.SecretRef == nil {
		return ""
	}
	return c.Spec.Credentials.SecretRef.Name
}

func (w *World) credentials() credentials {
	of := credentials{secret: SecretName(w.Cache), keys: map[string]string{}}
	if of.secret == "" {
		return of
	}
	if w.Secret.Version == "" {
		of.reason = v1alpha1.ReasonSecretMissing
		of.problem = fmt.Sprintf("there is no Secret %s, which spec.credentials.secretRef names, in namespace %s: make it, or name another one of that namespace", of.secret, w.Cache.Namespace)
		return of
	}
	given := maps.Clone(w.Secret.Data)
	config, docker := given[dockerConfig]
	if docker {
		delete(given, dockerConfig)
		given[dockerVariable] = config
	}
	values, err := given.For(w.Cache.Spec.Source.URI)
	if err != nil {
		of.reason, of.problem = v1alpha1.ReasonSecretInvalid, fmt.Sprintf("the keys of Secret %s cannot be used: %v", of.secret, err)
		return of
	}
	for name := range values {
		of.keys[name] = name
		if docker && name == dockerVariable {
			of.keys[name] = dockerConfig
		}
	}
	return of
}

// remedy adds to what a source says that refuses what helps.
func (c credentials) remedy(why, cause string) string {
	switch {
	case cause != fetchapi.ReasonAccessDenied:
		return why
	case c.secret != "":
		return why + "; they are those of Secret " + c.secret + ", which is looked at again as soon as it changes"
	default:
		return why + "; of a ModelCache, spec.credentials.secretRef names a Secret that has one"
	}
}
