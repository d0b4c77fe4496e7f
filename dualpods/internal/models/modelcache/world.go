package modelcache

import (
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is what a decision rests on.
type World struct {
	Now       time.Time
	Caches    []v1alpha1.ClusterModelCache
	Groups    map[string]*v1alpha1.ModelCacheNodeGroup // by name
	Nodes     map[string]Node                          // by name
	Launchers []Launcher
	Mounted   modelvolume.Users             // Pods that mount models
	Began     time.Time                     // when this controller began to lead
	Left      map[member]time.Time          // when the last launcher of a group was found to be gone from a node
	Answers   map[Call]Answer               // what was asked of launchers, and what they said
	Found     map[string]sourcesecret.Found // of what caches name for credentials, by the name of the cache
	unread    error                         // why some of it could not be read; it is tried again
	unheard   bool                          // a launcher that is ready was not heard yet, on a node that is
}

// member is a node of a group, by the group's name.
type member struct{ group, node string }

// Node is one that there is.
type Node struct {
	Labels map[string]string
	Down   bool // not ready, by what the API server knows
}

// Launcher is one with a model store.
type Launcher struct {
	UID     string
	Name    string
	Node    string
	Group   string // that it was made for
	Path    string // of the node: two launchers with one path have one store
	Created time.Time
	Models  map[string]nodeview.Model // by id; nil: it does not say
	Why     string                    // it does not
	Lost    time.Time                 // since when it does not; zero: nobody has asked it yet
	Plain   bool                      // it is called without TLS
}

// holderPrefix begins the names by which caches want models.
const holderPrefix = "ClusterModelCache/"

// Holder is the name by which a cache wants its model of a launcher: another object
// of the same name is another holder.
func Holder(c *v1alpha1.ClusterModelCache) string {
	return holderPrefix + c.Name + "/" + string(c.UID)
}

// nameOf is the name of the cache of a holder.
func nameOf(holder string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(holder, holderPrefix), "/")
	return name
}
