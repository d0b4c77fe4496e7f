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

// store identifies a model store: a node and a folder.
type store struct{ node, path string }

// view is a World with indexes for a decision.
type view struct {
	*World
	stores        map[store]*storeView
	byUID         map[string]*storeView        // the store of each launcher
	members       map[string][]string          // nodes by group, sorted
	groups        map[store][]string           // groups with the store's node and folder, sorted
	places        []store                      // stores that have launchers or should have; sorted
	pulls         map[string]map[string]Answer // answers to pull requests, by holder and launcher
	shown         map[string]credentials       // credentials by holder
	requestHashes map[string]string            // hashes of the current requests, by holder: answers to others are void
}

// storeView is a store with the launcher that is called for it. For a cache with credentials,
// another launcher of the store may be called; see [credentials.called].
type storeView struct {
	*Launcher
	launchers      []*Launcher               // all launchers of the store
	holds          map[string]nodeview.Model // models by holder
	busyWhy        string                    // why the store must not fetch now; empty: it may
	busyEnd        time.Time                 // end of busyWhy; zero: an event of the launcher ends it
	fetching       bool                      // it fetches a model, or may begin to
	launcherGroups map[string]bool           // groups of the launchers of the store
}

func newView(w *World) *view {
	v := &view{World: w, stores: map[store]*storeView{}, members: map[string][]string{}, groups: map[store][]string{}, pulls: map[string]map[string]Answer{}, shown: map[string]credentials{}, requestHashes: map[string]string{}}
	v.readStores(w.versions())
	for i := range w.Caches {
		c := &w.Caches[i]
		shown := w.credentialsOf(c)
		v.shown[Holder(c)], v.requestHashes[Holder(c)] = shown, requestHash(shown.Values, c)
	}
	for call, a := range w.Answers {
		if call.Remove != "" {
			continue
		}
		if a.RequestHash != v.requestHashes[call.Holder] && !a.pending(w.Now) { // another request may have another answer
			a = Answer{Model: a.Model}
		}
		if v.pulls[call.Holder] == nil {
			v.pulls[call.Holder] = map[string]Answer{}
		}
		v.pulls[call.Holder][call.Launcher] = a
		if s := v.byUID[call.Launcher]; s != nil && a.pending(w.Now) && s.modelFor(call.Holder).State != launcherapi.ModelReady {
			s.markCalled(call.Holder, a, w.Now)
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

// versions returns the versions of the hub's models that caches have fixed, by holder.
func (w *World) versions() map[string]string {
	fixed := map[string]string{}
	for i := range w.Caches {
		if c := &w.Caches[i]; isNamed(c) && c.Status.Revision != "" {
			fixed[Holder(c)] = c.Status.Revision
		}
	}
	return fixed
}

// readStores chooses the launcher of each store and reads the store's models. versions are
// those of World.versions.
func (v *view) readStores(versions map[string]string) {
	v.byUID = map[string]*storeView{}
	for i := range v.Launchers {
		l := &v.Launchers[i]
		at := store{l.Node, l.Path}
		s := v.stores[at]
		if s == nil {
			s = &storeView{Launcher: l, launcherGroups: map[string]bool{}}
			v.stores[at] = s
		} else if l.preferredTo(s.Launcher) {
			s.Launcher = l
		}
		s.launchers = append(s.launchers, l)
		s.launcherGroups[l.Group], v.byUID[l.UID] = true, s
	}
	for _, s := range v.stores {
		s.readModels(versions)
	}
	for i := range v.Launchers {
		if l := &v.Launchers[i]; l.Models == nil && v.Now.Sub(l.Lost) < watchDelay {
			v.byUID[l.UID].markSilent(l)
		}
	}
}

// preferredTo reports whether to call this launcher of a store rather than the other. It prefers
// a launcher that answers, then one that fetches, then one that may get credentials, then the
// older one.
func (l *Launcher) preferredTo(other *Launcher) bool {
	if answers := l.Models != nil; answers != (other.Models != nil) {
		return answers
	}
	if fetches := l.isFetching(); fetches != other.isFetching() {
		return fetches
	}
	if may := l.mayHaveCredentials(); may != other.mayHaveCredentials() {
		return may
	}
	return cmp.Or(l.Created.Compare(other.Created), strings.Compare(l.UID, other.UID)) < 0
}

// isFetching reports whether a launcher fetches a model. Other launchers with the same folder
// report that model as Partial.
func (l *Launcher) isFetching() bool {
	for _, m := range l.Models {
		if m.State == launcherapi.ModelDownloading {
			return true
		}
	}
	return false
}

// readModels indexes the store's models by holder, and finds what it fetches. A whole copy of
// another version than the cache's is one to replace, like a damaged copy.
func (s *storeView) readModels(versions map[string]string) {
	s.holds = map[string]nodeview.Model{}
	for _, m := range s.Models {
		for _, holder := range m.WantedBy {
			m := m
			if m.State == launcherapi.ModelReady && isOther(m.Model, versions[holder]) {
				other := *m.Model
				other.State, m.Model = launcherapi.ModelDamaged, &other
			}
			if before, ok := s.holds[holder]; !ok || preferredVersion(m, before) {
				s.holds[holder] = m
			}
		}
		if m.State == launcherapi.ModelDownloading {
			s.markFetching(cmp.Or(m.URI, m.ID))
		}
	}
}

// isOther reports whether a model is another version than a known one.
func isOther(m *launcherapi.Model, version string) bool {
	return version != "" && m.Revision != "" && m.Revision != version
}

// modelFor returns the model that a store has for a holder. If the store has none, the returned
// model has no state.
func (s *storeView) modelFor(holder string) nodeview.Model {
	if m, ok := s.holds[holder]; ok {
		return m
	}
	return nodeview.Model{Model: &launcherapi.Model{}}
}

// markFetching records that the store fetches a model. If the store fetches several, busyWhy names
// the first by name.
func (s *storeView) markFetching(what string) {
	s.fetching = true
	if why := "it fetches " + what + " first"; s.busyWhy == "" || !s.busyEnd.IsZero() || why < s.busyWhy {
		s.busyWhy, s.busyEnd = why, time.Time{}
	}
}

// markCalled records a call to fetch whose effect is not visible yet.
func (s *storeView) markCalled(holder string, a Answer, now time.Time) {
	s.fetching = true
	if until := a.CalledAt.Add(sourceWait); !a.Running { // if the fetch has ended already, no event follows
		s.setBusyUntil(a.AnsweredAt.Add(watchDelay), "it fetches "+cmp.Or(a.Model.URI, "another model")+" first")
	} else if until.After(now) {
		s.setBusyUntil(until, "its launcher asks the source of ClusterModelCache "+nameOf(holder)+" first")
	}
}

// markSilent records that a launcher of the store fell silent a short time ago. It may still be
// fetching.
func (s *storeView) markSilent(l *Launcher) {
	s.fetching = true
	s.setBusyUntil(l.Lost.Add(watchDelay), "launcher "+l.Name+" fell silent less than 10 s ago and may be fetching")
}

// setBusyUntil records that the store must not fetch until a time, for that reason. The latest time
// counts, and of several reasons the first by name.
func (s *storeView) setBusyUntil(until time.Time, why string) {
	if s.busyWhy == "" || until.After(s.busyEnd) && !s.busyEnd.IsZero() || until.Equal(s.busyEnd) && why < s.busyWhy {
		s.busyWhy, s.busyEnd = why, until
	}
}

// preferredVersion reports whether a counts rather than b for one holder. It prefers a whole
// version, and then the version that was published later.
func preferredVersion(a, b nodeview.Model) bool {
	if ready := a.State == launcherapi.ModelReady; ready != (b.State == launcherapi.ModelReady) {
		return ready
	}
	return a.Published > b.Published
}

// nodesOf returns the nodes of a group, by the labels of the group. The nodes of a group without
// labels are the nodes with a launcher of the group.
func (v *view) nodesOf(group *v1alpha1.ModelCacheNodeGroup) []string {
	var nodes []string
	of := labels.SelectorFromSet(group.Spec.NodeSelector)
	for name, node := range v.Nodes {
		s := v.stores[store{name, group.Spec.Path}]
		if len(group.Spec.NodeSelector) > 0 && of.Matches(labels.Set(node.Labels)) || len(group.Spec.NodeSelector) == 0 && s != nil && s.launcherGroups[group.Name] {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// groupsOf returns the names of a cache's groups, with the labels of their nodes.
func (v *view) groupsOf(c *v1alpha1.ClusterModelCache) string {
	names := slices.Clone(c.Spec.Groups())
	for i, name := range names {
		if group := v.Groups[name]; group != nil && len(group.Spec.NodeSelector) > 0 {
			names[i] += " (" + labels.FormatLabels(group.Spec.NodeSelector) + ")"
		}
	}
	return strings.Join(names, ", ")
}
