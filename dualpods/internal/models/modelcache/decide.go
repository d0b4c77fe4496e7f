package modelcache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Plan is what is to be done.
type Plan struct {
	Calls []Call            // to be made now
	Told  map[string]*Told  // what is known of each cache, by its name
	Again time.Time         // when to look again, though nothing changes; zero: never
	Pulls map[string]Wanted // what a cache asks launchers for, by its holder
	// Labels are those of nodes, by node and by name of the cache: true where it is to be
	// there, false where it is to stay as it is. All others are to go.
	Labels map[string]map[string]bool
}

// Wanted is a model as launchers are asked for it.
type Wanted struct {
	URI, Ref         string
	Include, Exclude []string             // patterns of its files
	Retention        string               // of launcherapi; empty: as launchers take it for a holder, who keeps its model
	Warm             bool                 // it is read into main memory once it is there
	Private          bool                 // who has it served shows a right of his own
	Credentials      fetchapi.Credentials // nil: the launcher's own
	ExpectedBytes    int64                // that it is said to have; 0: nothing is said
	ExpectedDigest   string               // likewise
	Sum              string               // of the credentials and of what is expected
}

// Told is what is known of a cache.
type Told struct {
	Nodes    []v1alpha1.ModelNode // sorted by name
	Revision string
	Digest   string
	ID       string // of the version in the stores; empty: not known, or not the same in all
	several  bool   // stores have different ones, whole
	Bytes    int64
	Groups   string             // of its nodes, with their labels
	Problem  string             // of what it asks for: groups that are not there
	Asked    bool               // its source is, or was
	Source   string             // why its source could not be asked
	Cause    string             // of that: a code
	Failures map[string]failure // of the last tries, by node
	Clean    bool               // nothing of it is left anywhere that answers
	Blocked  string             // what keeps it from being removed

	Credentials credentials
	Denied      string // what a source has said that refuses them

	Claim   string  // by which Pods mount it; empty: none
	Mounted mounted // what is told of those that do
}

// maxCalls is how many calls run at the same time.
const maxCalls = 64

// Decide says what is to be done, by spec/modelcache.md. It changes nothing of w.
func Decide(w *World) *Plan {
	d := &decision{view: look(w), plan: &Plan{Told: map[string]*Told{}, Pulls: map[string]Wanted{}, Labels: map[string]map[string]bool{}}, room: maxCalls}
	for _, a := range w.Answers {
		if a.Running {
			d.room--
		}
	}
	d.countFetching()
	caches := slices.Clone(w.Caches)
	for i := range caches {
		if c := &caches[i]; len(w.Mounted[c.Name]) > 0 {
			c.Spec.Retention = v1alpha1.RetentionKeep // launchers know nothing of Pods that mount a copy
		}
	}
	slices.SortFunc(caches, func(a, b v1alpha1.ClusterModelCache) int {
		return cmp.Or(cmp.Compare(givesWay(&a), givesWay(&b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	holders := map[string]bool{}
	for i := range caches {
		holders[Holder(&caches[i])] = true
		d.cache(&caches[i])
	}
	d.orphans(holders)
	return d.plan
}

// givesWay is 1 for a cache whose copies go when room is needed: it comes after those
// whose copies stay, which would take its place.
func givesWay(c *v1alpha1.ClusterModelCache) int {
	if c.Spec.Retention == v1alpha1.RetentionLRU {
		return 1
	}
	return 0
}

// decision is one under way.
type decision struct {
	*view
	plan     *Plan
	room     int            // for calls
	fetching map[string]int // nodes that fetch, by group
}

func (d *decision) countFetching() {
	d.fetching = map[string]int{}
	for at, s := range d.stores {
		if s.fetching {
			d.fetches(at)
		}
		if !s.until.IsZero() {
			d.later(s.until)
		}
	}
}

// fetches counts a node among those that fetch, for each group that has its store.
func (d *decision) fetches(at store) {
	for _, group := range d.groups[at] {
		d.fetching[group]++
	}
}

// cache decides for one cache.
func (d *decision) cache(c *v1alpha1.ClusterModelCache) {
	told := &Told{Failures: map[string]failure{}, Clean: !c.DeletionTimestamp.IsZero(), Revision: c.Status.Revision, ID: c.Status.ID}
	d.plan.Told[c.Name] = told
	holder := Holder(c)
	where := d.where(c, told)
	told.Groups = d.groupsOf(c)
	d.know(holder, told, strings.HasPrefix(c.Spec.Source.URI, modelref.HubScheme))
	told.claim(c, d.World)
	told.Credentials = d.shown[holder]
	asked := d.wanted(c, holder, told.Revision)
	asked.Credentials, asked.Private, asked.Warm = told.Credentials.Values, private(c), warm(c)
	asked.ExpectedBytes, asked.ExpectedDigest, asked.Sum = expectedBytes(c), c.Spec.ExpectedDigest, d.sums[holder]
	d.plan.Pulls[holder] = asked
	resolves := d.resolves(c, holder, told, where)
	labels := map[string]labelling{}
	for _, at := range d.places {
		if group, here := where[at]; here {
			n := d.node(c, told, at, group, resolves)
			told.add(n)
			labels[at.node] = max(labels[at.node], d.labelling(at, n.State))
		} else if d.stores[at] != nil && (told.Problem == "" || !c.DeletionTimestamp.IsZero()) {
			d.leave(c, holder, told, at)
		}
	}
	if told.Problem != "" && c.DeletionTimestamp.IsZero() {
		d.stayLabelled(c.Name) // who is in a group that is not there is not known
	}
	d.label(c.Name, labels)
}

// where says in which stores a cache is wanted, and for which of its groups. A cache
// that is being deleted is wanted nowhere.
func (d *decision) where(c *v1alpha1.ClusterModelCache, told *Told) map[store]string {
	where := map[store]string{}
	if !c.DeletionTimestamp.IsZero() {
		return where
	}
	var missing []string
	for _, name := range c.Spec.Groups() {
		group := d.Groups[name]
		if group == nil {
			missing = append(missing, name)
			continue
		}
		for _, node := range d.members[name] {
			at := store{node, group.Spec.Path}
			if _, there := where[at]; !there {
				where[at] = name
			}
		}
	}
	d.replaced(c, where)
	if len(missing) > 0 {
		told.Problem = fmt.Sprintf("spec.nodeGroups: there is no ModelCacheNodeGroup %s: make it, or name another one; nothing is removed until then", strings.Join(missing, ", "))
	}
	return where
}

// replaceTime is how long a node stays in a group without labels, where it has the model,
// after the group's last launcher on it has gone: that may be replaced just now.
const replaceTime = time.Minute

// replaced adds the stores to where from which a launcher of a group without labels has
// gone a moment ago, and in which another group's launcher shows the model whole. Of what
// was before it began a controller knows nothing.
func (d *decision) replaced(c *v1alpha1.ClusterModelCache, where map[store]string) {
	for at, s := range d.stores {
		if s.held(Holder(c)).State != launcherapi.ModelReady {
			continue
		}
		for _, name := range c.Spec.Groups() {
			group := d.Groups[name]
			if _, there := where[at]; there || group == nil || len(group.Spec.NodeSelector) > 0 || group.Spec.Path != at.path {
				continue
			}
			since := d.Began
			if left := d.Left[member{name, at.node}]; left.After(since) {
				since = left
			}
			if d.later(since.Add(replaceTime)) {
				where[at] = name
			}
		}
	}
}

// know finds out which version the cache is, and its size. Where launchers can be asked for
// one, it is the first that a node had; else the one that came last: nodes that fetch
// again, or later, have what the source has then.
func (d *decision) know(holder string, told *Told, named bool) {
	var last int64
	var ids []string
	whole := map[string]bool{}
	note := func(m *launcherapi.Model) {
		if told.Revision == "" {
			told.Revision = m.Revision
		}
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
		if m.State == launcherapi.ModelReady {
			whole[m.ID] = true
		}
		told.Bytes = max(told.Bytes, m.Bytes)
		if told.Digest == "" {
			told.Digest = m.Digest
		}
	}
	for _, at := range d.places {
		s := d.stores[at]
		if s == nil {
			continue
		}
		m := s.held(holder)
		if note(m.Model); !named && m.State == launcherapi.ModelReady && m.Revision != "" && m.Published > last {
			last, told.Revision, told.Digest = m.Published, m.Revision, m.Digest
		}
	}
	for _, a := range d.pulls[holder] {
		told.Asked = true
		note(&a.Model)
	}
	switch told.several = len(whole) > 1; {
	case told.several:
		told.ID = ""
	case len(ids) > 0 && !slices.Contains(ids, told.ID):
		told.ID = ids[0]
	}
}

// later says that a time has not come, and has the next pass made then.
func (d *decision) later(when time.Time) bool {
	if !when.After(d.Now) {
		return false
	}
	if d.plan.Again.IsZero() || when.Before(d.plan.Again) {
		d.plan.Again = when
	}
	return true
}

// fetch has a launcher asked to fetch, and counts its node among those that do.
func (d *decision) fetch(at store, call Call) {
	d.ask(call)
	s := d.stores[at]
	if !s.fetching {
		d.fetches(at)
	}
	s.called(call.Holder, Answer{Running: true, Since: d.Now}, d.Now)
	d.later(s.until)
}

func (d *decision) ask(call Call) {
	d.room--
	d.plan.Calls = append(d.plan.Calls, call)
}
