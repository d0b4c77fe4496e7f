package modelcache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// credentials are what the source of a cache is shown. The zero value: nothing is
// named, and launchers show what they have in their own environment.
type credentials struct{ sourcesecret.Shown }

// namedBy is what a cache names.
func namedBy(c *v1alpha1.ClusterModelCache, namespace string) sourcesecret.Named {
	named := sourcesecret.Named{Namespace: namespace}
	if of := c.Spec.Credentials; of != nil {
		named.Account = of.ServiceAccountName
		if of.SecretRef != nil {
			named.Secret = of.SecretRef.Name
		}
	}
	return named
}

// credentialsOf are those of a cache.
func (w *World) credentialsOf(c *v1alpha1.ClusterModelCache) credentials {
	return credentials{w.Found[c.Name].Shown(c.Spec.Source.URI)}
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
	if c.Values != nil && l.Plain {
		return "launcher " + l.Name + " is told no credentials, since it is called without TLS: it is replaced once no requester is bound to it, or when it is deleted"
	}
	return c.Problem
}
