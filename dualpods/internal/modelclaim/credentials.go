package modelclaim

import (
	"hotseat.dev/hotseat/dualpods/internal/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SecretName is the name of the Secret that a cache names; empty: none.
func SecretName(c *v1alpha1.ModelCache) string {
	if c.Spec.Credentials == nil || c.Spec.Credentials.SecretRef == nil {
		return ""
	}
	return c.Spec.Credentials.SecretRef.Name
}

// credentials are what the source of the cache is shown.
func (w *World) credentials() sourcesecret.Shown {
	name := SecretName(w.Cache)
	if name == "" {
		return sourcesecret.Shown{}
	}
	told := w.Cache.Namespace + "/" + name
	if w.Secret.Version == "" {
		return sourcesecret.Missing(told)
	}
	return sourcesecret.For(told, w.Secret.Data, w.Cache.Spec.Source.URI)
}
