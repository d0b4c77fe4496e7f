package modelcache

import (
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision.
type World struct {
	Now             time.Time
	Caches          []v1alpha1.ClusterModelCache
	Groups          map[string]*v1alpha1.ModelCacheNodeGroup // by name
	Nodes           map[string]Node                          // by name
	Launchers       []Launcher
	Mounted         modelvolume.Users             // Pods that mount models
	LeadingSince    time.Time                     // when this controller became the leader
	Departed        map[member]time.Time          // when the last launcher of a group was found missing on a node
	Answers         map[Call]Answer               // calls to launchers
	Found           map[string]sourcesecret.Found // credentials, by the name of the cache
	readErr         error                         // why a part could not be read; the pass is repeated
	launcherUnheard bool                          // a launcher that runs on a ready node was not heard yet
}

// member is a node in a group.
type member struct{ group, node string }

// Node is a node of the cluster.
type Node struct {
	Labels map[string]string
	Down   bool // its condition Ready is not True
}

// Launcher is a launcher with a model store.
type Launcher struct {
	UID     string
	Name    string
	Node    string
	Group   string // its ModelCacheNodeGroup
	Path    string // folder of the node; launchers with the same folder share a store
	Created time.Time
	Models  map[string]nodeview.Model // by id; nil: unknown
	Why     string                    // reason of unknown Models
	Lost    time.Time                 // since when Models are unknown; zero: it was not watched yet
	Plain   bool                      // it is called without TLS
	// Untrusted is why it gets no credentials although it is called by TLS; empty: it may.
	Untrusted string
}

// holderPrefix is the prefix of the holders that are caches.
const holderPrefix = "ClusterModelCache/"

// Holder returns the name under which a cache wants a model of launchers. A new object of
// the same name is another holder.
func Holder(c *v1alpha1.ClusterModelCache) string {
	return holderPrefix + c.Name + "/" + string(c.UID)
}

// nameOf returns the name of a holder's cache.
func nameOf(holder string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(holder, holderPrefix), "/")
	return name
}
