package modelcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// store is the folder of a node that has models.
type store struct{ node, path string }

// view is a World as a decision looks things up in it.
type view struct {
	*World
	stores  map[store]*speaker
	byUID   map[string]*speaker          // of the stores of the launchers
	members map[string][]string          // nodes by group, sorted
	groups  map[store][]string           // that have the node and the folder, sorted
	places  []store                      // where there are launchers, or should be; sorted
	pulls   map[string]map[string]Answer // of what was asked to be fetched: by holder, by launcher
	shown   map[string]credentials       // to sources, by holder
	sums    map[string]string            // of what is asked for, by holder: what launchers said to other such words counts no more
}

// speaker is the launcher of a store that is spoken to.
type speaker struct {
	*Launcher
	holds    map[string]nodeview.Model // by holder
	busy     string                    // why nothing is fetched into the store now; empty: something may be
	until    time.Time                 // it is busy only until then; zero: the launcher tells
	fetching bool                      // something is fetched into it, or may begin to be at any moment
	launched map[string]bool           // groups of the launchers of the store
}

func look(w *World) *view {
	v := &view{World: w, stores: map[store]*speaker{}, members: map[string][]string{}, groups: map[store][]string{}, pulls: map[string]map[string]Answer{}, shown: map[string]credentials{}, sums: map[string]string{}}
	v.readStores()
	for i := range w.Caches {
		c := &w.Caches[i]
		shown := w.credentialsOf(c)
		v.shown[Holder(c)], v.sums[Holder(c)] = shown, sumOf(shown.Values, c)
	}
	for call, a := range w.Answers {
		if call.Remove != "" {
			continue
		}
		if a.Sum != v.sums[call.Holder] && !a.pending(w.Now) { // other words may have another answer
			a = Answer{Model: a.Model}
		}
		if v.pulls[call.Holder] == nil {
			v.pulls[call.Holder] = map[string]Answer{}
		}
		v.pulls[call.Holder][call.Launcher] = a
		if s := v.byUID[call.Launcher]; s != nil && a.pending(w.Now) && s.held(call.Holder).State != launcherapi.ModelReady {
			s.called(call.Holder, a, w.Now)
		}
	}
	places := map[store]bool{}
	for at := range v.stores {
		places[at] = true
	}
	for name, group := range w.Groups {
		v.members[name] = v.nodesOf(group)
		for _, node := range v.members[name] {
			at := store{node, group.Spec.Path}
			places[at] = true
			v.groups[at] = append(v.groups[at], name)
		}
	}
	for _, names := range v.groups {
		slices.Sort(names)
	}
	v.places = slices.SortedFunc(maps.Keys(places), func(a, b store) int {
		return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.path, b.path))
	})
	return v
}

// readStores finds out who is spoken to of each store, and what is in it.
func (v *view) readStores() {
	v.byUID = map[string]*speaker{}
	for i := range v.Launchers {
		l := &v.Launchers[i]
		at := store{l.Node, l.Path}
		s := v.stores[at]
		if s == nil {
			s = &speaker{Launcher: l, launched: map[string]bool{}}
			v.stores[at] = s
		} else if l.before(s.Launcher) {
			s.Launcher = l
		}
		s.launched[l.Group], v.byUID[l.UID] = true, s
	}
	for _, s := range v.stores {
		s.read()
	}
	for i := range v.Launchers {
		if l := &v.Launchers[i]; l.Models == nil && v.Now.Sub(l.Lost) < settle {
			v.byUID[l.UID].silent(l)
		}
	}
}

// before says that of two launchers of one store this one is spoken to: one that
// answers, then one that fetches, then one that may be told credentials, then the older.
func (l *Launcher) before(other *Launcher) bool {
	if answers := l.Models != nil; answers != (other.Models != nil) {
		return answers
	}
	if fetches := l.fetches(); fetches != other.fetches() {
		return fetches
	}
	if l.Plain != other.Plain {
		return other.Plain
	}
	return cmp.Or(l.Created.Compare(other.Created), strings.Compare(l.UID, other.UID)) < 0
}

// fetches says that a launcher fetches a model: others with the same folder show that
// model as Partial.
func (l *Launcher) fetches() bool {
	for _, m := range l.Models {
		if m.State == launcherapi.ModelDownloading {
			return true
		}
	}
	return false
}

// read notes what a store holds for whom, and what is fetched into it.
func (s *speaker) read() {
	s.holds = map[string]nodeview.Model{}
	for _, m := range s.Models {
		for _, holder := range m.WantedBy {
			if before, ok := s.holds[holder]; !ok || better(m, before) {
				s.holds[holder] = m
			}
		}
		if m.State == launcherapi.ModelDownloading {
			s.fetches(cmp.Or(m.URI, m.ID))
		}
	}
}

// held is what a store has for a holder; a model without a state where it has nothing.
func (s *speaker) held(holder string) nodeview.Model {
	if m, ok := s.holds[holder]; ok {
		return m
	}
	return nodeview.Model{Model: &launcherapi.Model{}}
}

// fetches notes that a model is fetched into a store; of several the first by name is told.
func (s *speaker) fetches(what string) {
	s.fetching = true
	if why := "it fetches " + what + " first"; s.busy == "" || !s.until.IsZero() || why < s.busy {
		s.busy, s.until = why, time.Time{}
	}
}

// called notes a call to fetch of which nothing is shown yet.
func (s *speaker) called(holder string, a Answer, now time.Time) {
	s.fetching = true
	if until := a.Since.Add(moment); !a.Running {
		s.fetches(cmp.Or(a.Model.URI, "another model"))
	} else if until.After(now) {
		s.busyUntil(until, "the source of ClusterModelCache "+nameOf(holder)+" is asked first")
	}
}

// silent notes that a launcher of a store fell silent a moment ago. What it was asked to
// fetch, and what it fetched, goes on as far as anybody knows.
func (s *speaker) silent(l *Launcher) {
	s.fetching = true
	s.busyUntil(l.Lost.Add(settle), "launcher "+l.Name+", which fell silent a moment ago, may be fetching")
}

func (s *speaker) busyUntil(until time.Time, why string) {
	if s.busy == "" || until.After(s.until) && !s.until.IsZero() {
		s.busy, s.until = why, until
	}
}

// better says which of two versions that one holder wants counts: one that is whole,
// then the one that came later.
func better(a, b nodeview.Model) bool {
	if ready := a.State == launcherapi.ModelReady; ready != (b.State == launcherapi.ModelReady) {
		return ready
	}
	return a.Published > b.Published
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

// groupsOf names the groups of a cache, with the labels of their nodes.
func (v *view) groupsOf(c *v1alpha1.ClusterModelCache) string {
	names := slices.Clone(c.Spec.Groups())
	for i, name := range names {
		if group := v.Groups[name]; group != nil && len(group.Spec.NodeSelector) > 0 {
			names[i] += " (" + labels.FormatLabels(group.Spec.NodeSelector) + ")"
		}
	}
	return strings.Join(names, ", ")
}
