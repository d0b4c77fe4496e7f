package modelcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is what a decision rests on.
type World struct {
	Now       time.Time
	Caches    []v1alpha1.ClusterModelCache
	Groups    map[string]*v1alpha1.ModelCacheNodeGroup // by name
	Nodes     map[string]Node                          // by name
	Launchers []Launcher
	Answers   map[Call]Answer   // what was asked of launchers, and what they said
	Namespace string            // of the Secrets
	Secrets   map[string]Secret // that caches name and that are there, by name
	unread    error             // why one of them could not be read; it is tried again
}

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
	Models  map[string]launcherapi.Model // by id; nil: it does not say
	Why     string                       // it does not
	Plain   bool                         // it is called without TLS
}

// Call is what is asked of a launcher: to fetch the model of a cache or, with Remove,
// to have a model of that id wanted no more.
type Call struct {
	Launcher string // UID
	Holder   string
	Remove   string
}

// Answer is what has become of a call.
type Answer struct {
	Running bool
	At      time.Time // when it was answered
	Tries   int       // that have failed, one after the other
	Err     string    // of the last; empty: it was done
	Cause   string    // of the error, a code such as NotFound
	Model   launcherapi.Model
	Sum     string // of the credentials that it was asked with
}

// holderPrefix begins the names by which caches want models.
const holderPrefix = "ClusterModelCache/"

// Holder is the name by which a cache wants its model of a launcher: another object
// of the same name is another holder.
func Holder(c *v1alpha1.ClusterModelCache) string {
	return holderPrefix + c.Name + "/" + string(c.UID)
}

// store is the folder of a node that has models.
type store struct{ node, path string }

// view is a World as a decision looks things up in it.
type view struct {
	*World
	stores  map[store]*speaker
	members map[string][]string          // nodes by group, sorted
	places  []store                      // where there are launchers, or should be; sorted
	pulls   map[string]map[string]Answer // of what was asked to be fetched: by holder, by launcher
	shown   map[string]credentials       // to sources, by holder
}

// speaker is the launcher of a store that is spoken to.
type speaker struct {
	*Launcher
	held     map[string]launcherapi.Model // by holder
	fetches  string                       // what it fetches; empty: nothing
	launched map[string]bool              // groups of the launchers of the store
}

func look(w *World) *view {
	v := &view{World: w, stores: map[store]*speaker{}, members: map[string][]string{}, pulls: map[string]map[string]Answer{}, shown: map[string]credentials{}}
	for i := range w.Launchers {
		l := &w.Launchers[i]
		at := store{l.Node, l.Path}
		s := v.stores[at]
		if s == nil {
			s = &speaker{Launcher: l, launched: map[string]bool{}}
			v.stores[at] = s
		}
		s.launched[l.Group] = true
		if l.before(s.Launcher) {
			s.Launcher = l
		}
	}
	byUID := map[string]*speaker{}
	places := map[store]bool{}
	for at, s := range v.stores {
		s.read()
		byUID[s.UID], places[at] = s, true
	}
	for i := range w.Caches {
		v.shown[Holder(&w.Caches[i])] = w.credentialsOf(&w.Caches[i])
	}
	for call, a := range w.Answers {
		if call.Remove != "" {
			continue
		}
		if a.Sum != v.shown[call.Holder].sum && !a.Running { // other credentials may have another answer
			a = Answer{Model: a.Model}
		}
		if v.pulls[call.Holder] == nil {
			v.pulls[call.Holder] = map[string]Answer{}
		}
		v.pulls[call.Holder][call.Launcher] = a
		if s := byUID[call.Launcher]; s != nil && a.pending(w.Now) && s.held[call.Holder].State != launcherapi.ModelReady {
			s.fetches = cmp.Or(s.fetches, "another model")
		}
	}
	for name, group := range w.Groups {
		v.members[name] = v.nodesOf(group)
		for _, node := range v.members[name] {
			places[store{node, group.Spec.Path}] = true
		}
	}
	v.places = slices.SortedFunc(maps.Keys(places), func(a, b store) int {
		return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.path, b.path))
	})
	return v
}

// before says that of two launchers of one store this one is spoken to: one that
// answers, then the older.
func (l *Launcher) before(other *Launcher) bool {
	if answers := l.Models != nil; answers != (other.Models != nil) {
		return answers
	}
	return cmp.Or(l.Created.Compare(other.Created), strings.Compare(l.UID, other.UID)) < 0
}

// read notes what a store holds for whom, and what is fetched into it.
func (s *speaker) read() {
	s.held = map[string]launcherapi.Model{}
	for _, m := range s.Models {
		for _, holder := range m.WantedBy {
			if before, ok := s.held[holder]; !ok || better(m, before) {
				s.held[holder] = m
			}
		}
		if m.State == launcherapi.ModelDownloading {
			s.fetches = cmp.Or(m.URI, m.ID)
		}
	}
}

// better says which of two versions that one holder wants counts: one that is whole,
// then the one that came later.
func better(a, b launcherapi.Model) bool {
	if ready := a.State == launcherapi.ModelReady; ready != (b.State == launcherapi.ModelReady) {
		return ready
	}
	return a.Published != nil && (b.Published == nil || a.Published.After(*b.Published))
}

// settle is how long after an answer the launcher's watch may take to show what has
// come of the call.
const settle = 10 * time.Second

// pending says that a call runs, or that what has come of it is not known yet.
func (a Answer) pending(now time.Time) bool {
	return a.Running || a.Err == "" && !a.At.IsZero() && now.Sub(a.At) < settle
}

// Pauses before a call that has failed is made again.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
)

// again is when a call that has failed is made again.
func (a Answer) again() time.Time {
	pause := firstPause << min(max(a.Tries-1, 0), 10)
	return a.At.Add(min(pause, longestPause))
}

// nodesOf are the nodes of a group: those with its labels or, where it names none,
// those that have launchers of it.
func (v *view) nodesOf(group *v1alpha1.ModelCacheNodeGroup) []string {
	var nodes []string
	of := labels.SelectorFromSet(group.Spec.NodeSelector)
	for name, node := range v.Nodes {
		s := v.stores[store{name, group.Spec.Path}]
		if len(group.Spec.NodeSelector) > 0 && of.Matches(labels.Set(node.Labels)) || len(group.Spec.NodeSelector) == 0 && s != nil && s.launched[group.Name] {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes
}
