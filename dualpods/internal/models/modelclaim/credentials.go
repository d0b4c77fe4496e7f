package modelclaim

import (
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Names is what a cache names for credentials.
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

// credentials are what the source of the cache is shown.
func (w *World) credentials() sourcesecret.Shown { return w.Found.Shown(w.Cache.Spec.Source.URI) }
