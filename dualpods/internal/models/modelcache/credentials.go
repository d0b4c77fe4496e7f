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

// credentials are what launchers show to the source of a cache's model. The zero value means
// that the cache names none. Launchers then show those of their own environment.
type credentials struct {
	sourcesecret.Shown
	groups []string // groups of the cache
}

// namedBy returns the Secret and the ServiceAccount that a cache names.
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

// credentialsOf returns the credentials of a cache.
func (w *World) credentialsOf(c *v1alpha1.ClusterModelCache) credentials {
	return credentials{w.Found[c.Name].Shown(c.Spec.Source.URI), c.Spec.Groups()}
}

// requestHash returns a hash of the credentials and of the expected size and digest. Another
// hash voids earlier answers, unless their calls are pending. The hash is empty when the cache has
// none of these.
func requestHash(values fetchapi.Credentials, c *v1alpha1.ClusterModelCache) string {
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

// whyNot returns why a launcher must not be called with the credentials; empty: it may.
func (c credentials) whyNot(l *Launcher) string {
	if c.Values != nil && l.Plain {
		return "launcher " + l.Name + " gets no credentials because it is called without TLS: it is replaced once no requester is bound to it; you can also delete it"
	}
	if c.Values != nil && l.Untrusted != "" {
		return "launcher " + l.Name + " gets no credentials: " + l.Untrusted
	}
	if c.Values != nil && !slices.Contains(c.groups, l.Group) {
		return "launcher " + l.Name + " gets no credentials: the cache does not name its ModelCacheNodeGroup " + l.Group
	}
	return c.Problem
}

// called returns the store with the launcher to call with the credentials. Of several launchers
// it prefers one that may get them, and then one of a group of the cache.
func (c credentials) called(s *storeView) *storeView {
	if c.Values == nil {
		return s
	}
	rank := func(l *Launcher) int {
		switch {
		case c.whyNot(l) == "":
			return 2
		case slices.Contains(c.groups, l.Group):
			return 1
		default:
			return 0
		}
	}
	is := *s
	for _, l := range s.launchers {
		if answers := l.Models != nil; answers && (rank(l) > rank(is.Launcher) || rank(l) == rank(is.Launcher) && l.preferredTo(is.Launcher)) {
			is.Launcher = l
		}
	}
	return &is
}

// untrusted returns why a launcher gets no credentials of the caches of a group; empty: it
// may get them. Its LauncherConfig decides which group it serves, and the group decides
// for which namespaces: what its Pod says of itself counts for nothing.
func untrusted(config *v1alpha1.LauncherConfig, group *v1alpha1.ModelCacheNodeGroup, name string) string {
	switch {
	case config == nil:
		return "its LauncherConfig is gone"
	case config.Spec.ModelCache == nil || config.Spec.ModelCache.NodeGroup != name:
		return fmt.Sprintf("LauncherConfig %s/%s does not name ModelCacheNodeGroup %s", config.Namespace, config.Name, name)
	case group == nil:
		return "there is no ModelCacheNodeGroup " + name
	case !group.Trusts(config.Namespace):
		return fmt.Sprintf("spec.namespaces of ModelCacheNodeGroup %s does not list namespace %s: add it if the launchers there may have credentials", name, config.Namespace)
	}
	return ""
}

// mayHaveCredentials reports whether a launcher may get credentials.
func (l *Launcher) mayHaveCredentials() bool { return !l.Plain && l.Untrusted == "" }
