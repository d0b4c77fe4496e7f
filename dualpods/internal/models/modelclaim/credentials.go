package modelclaim

import (
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Names returns the Secret and the ServiceAccount that a cache names.
func Names(c *v1alpha1.ModelCache) sourcesecret.Named {
	named := sourcesecret.Named{Namespace: c.Namespace, Runs: true}
	if of := c.Spec.Credentials; of != nil {
		named.Account = of.ServiceAccountName
		if of.SecretRef != nil {
			named.Secret = of.SecretRef.Name
		}
	}
	return named
}

// credentials returns the credentials that the Job shows to the source of the cache.
func (w *World) credentials() sourcesecret.Shown { return w.Found.Shown(w.Cache.Spec.Source.URI) }
