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
	Sum              string               // of them
}

// Told is what is known of a cache.
type Told struct {
	Nodes    []v1alpha1.ModelNode // sorted by name
	Revision string
	Bytes    int64
	Problem  string // of what it asks for: groups that are not there
	Source   string // why its source cannot be asked
	Cause    string // of that or of the first node that failed: a code
	Clean    bool   // nothing of it is left anywhere that answers
	Blocked  string // what keeps it from being removed

	Credentials credentials
	Denied      string // what a source has said that refuses them
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
		if s.busy != "" {
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
	told := &Told{Clean: !c.DeletionTimestamp.IsZero(), Revision: c.Status.Revision}
	d.plan.Told[c.Name] = told
	holder := Holder(c)
	where := d.where(c, told)
	d.know(holder, told, strings.HasPrefix(c.Spec.Source.URI, modelref.HubScheme))
	told.Credentials = d.shown[holder]
	asked := d.wanted(c, holder, told.Revision)
	asked.Credentials, asked.Sum, asked.Private = told.Credentials.values, told.Credentials.sum, private(c)
	asked.Warm = warm(c)
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

// add tells of a store of a node, whose stores come one after the other. Of several the
// one counts that lacks more, whoever uses any of them.
func (t *Told) add(n v1alpha1.ModelNode) {
	last := len(t.Nodes) - 1
	if last < 0 || t.Nodes[last].Node != n.Node {
		t.Nodes = append(t.Nodes, n)
		return
	}
	is := &t.Nodes[last]
	users := append(slices.Clone(is.InUseBy), n.InUseBy...)
	slices.Sort(users)
	if slices.Index(byLack, n.State) > slices.Index(byLack, is.State) {
		*is = n
	}
	is.InUseBy = slices.Compact(users)
}

// byLack are the states of a node, that come later the more it lacks of what is wanted.
var byLack = []v1alpha1.ModelNodeState{
	v1alpha1.ModelNodeRemoving, v1alpha1.ModelNodeReady, v1alpha1.ModelNodeDownloading, v1alpha1.ModelNodeWaiting, v1alpha1.ModelNodeFailed,
}

// where says in which stores a cache is wanted, and for which of its groups. A cache
// that is being deleted is wanted nowhere.
func (d *decision) where(c *v1alpha1.ClusterModelCache, told *Told) map[store]string {
	where := map[store]string{}
	if !c.DeletionTimestamp.IsZero() {
		return where
	}
	var missing []string
	for _, name := range c.Spec.NodeGroups {
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
		if s.held[Holder(c)].State != launcherapi.ModelReady {
			continue
		}
		for _, name := range c.Spec.NodeGroups {
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
	var last time.Time
	note := func(m launcherapi.Model) {
		if told.Revision == "" {
			told.Revision = m.Revision
		}
		told.Bytes = max(told.Bytes, m.Bytes)
	}
	for _, at := range d.places {
		s := d.stores[at]
		if s == nil {
			continue
		}
		m := s.held[holder]
		if note(m); !named && m.State == launcherapi.ModelReady && m.Revision != "" && m.Published != nil && m.Published.After(last) {
			last, told.Revision = *m.Published, m.Revision
		}
	}
	for _, a := range d.pulls[holder] {
		note(a.Model)
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

// node decides for a node that should have the model.
func (d *decision) node(c *v1alpha1.ClusterModelCache, told *Told, at store, group string, resolves func(store) bool) v1alpha1.ModelNode {
	told.Clean = false
	holder := Holder(c)
	n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeWaiting}
	s := d.stores[at]
	switch {
	case s == nil:
		n.Why = "there is no launcher of node group " + group + " on it: a LauncherConfig names the group in spec.modelCache.nodeGroup"
		return n
	case s.Models == nil:
		n.Why = "launcher " + s.Name + " does not answer: " + s.Why
		return n
	}
	m, there := s.held[holder]
	n.InUseBy = m.InUseBy
	answer := d.pulls[holder][s.UID]
	switch {
	case there && m.State == launcherapi.ModelReady:
		n.State, n.Why = v1alpha1.ModelNodeReady, d.note(c, told, s, m, answer)
		return n
	case there && m.State == launcherapi.ModelDownloading:
		n.State, n.Why, n.Percent = v1alpha1.ModelNodeDownloading, m.Reason, percent(m)
		return n
	case answer.pending(d.Now):
		n.Why = "launcher " + s.Name + " asks the source"
		if !answer.Running {
			d.later(answer.At.Add(settle))
		}
		return n
	}
	if n.Why = told.Credentials.cannot(s.Launcher); n.Why != "" {
		return n
	}
	n.Why = d.mayNot(told, at, s, resolves)
	free := n.Why == ""
	if free {
		n.Why = "launcher " + s.Name + " asks the source"
	}
	if failed, why, cause := failure(m, answer); failed && cause == fetchapi.ReasonCapacityExceeded && givesWay(c) == 1 {
		n.Why = "there is no room for it; with retention LRU it gives way to others, and is fetched once there is room without any other's going: " + why
	} else if failed {
		n.State, n.Why = v1alpha1.ModelNodeFailed, told.failed(why, cause)
	}
	if free && (answer.Err == "" || !d.later(answer.again())) {
		d.fetch(at, Call{Launcher: s.UID, Holder: holder})
	}
	return n
}

// note has a launcher note what becomes of a copy when room is needed, who may read it,
// and whether it is to be in main memory, where that was changed. It gives why that could not be noted.
func (d *decision) note(c *v1alpha1.ClusterModelCache, told *Told, s *speaker, m launcherapi.Model, answer Answer) (why string) {
	holder := Holder(c)
	var changed []string
	if noted := slices.Contains(m.LRUBy, holder); noted != (givesWay(c) == 1) {
		changed = append(changed, "its retention")
	}
	if noted := slices.Contains(m.PrivateBy, holder); noted != private(c) {
		changed = append(changed, "who may read it")
	}
	if noted := slices.Contains(m.WarmBy, holder); noted != warm(c) {
		changed = append(changed, "its warm-up")
	}
	if len(changed) == 0 {
		return ""
	}
	cannot := told.Credentials.cannot(s.Launcher)
	if cannot := cmp.Or(cannot, answer.Err); cannot != "" {
		why = strings.Join(changed, " and ") + " could not be changed: " + cannot
	}
	switch {
	case cannot != "":
	case answer.pending(d.Now):
		d.later(d.Now.Add(settle))
	case d.room > 0 && (answer.Err == "" || !d.later(answer.again())):
		d.ask(Call{Launcher: s.UID, Holder: holder})
	}
	return why
}

// private says that whoever has the model of a cache served shows a right of his own.
func private(c *v1alpha1.ClusterModelCache) bool {
	return c.Spec.Credentials != nil && !c.Spec.Credentials.Shared
}

// warm says that copies of a cache are to be in main memory.
func warm(c *v1alpha1.ClusterModelCache) bool { return c.Spec.Warm == v1alpha1.WarmPageCache }

// percent is how much of a model is fetched.
func percent(m launcherapi.Model) int32 {
	if m.Bytes <= 0 {
		return 0
	}
	return int32(100 * min(m.FetchedBytes, m.Bytes) / m.Bytes)
}

// failed gives what is told of a failure, and notes its cause, and when a source refuses.
func (t *Told) failed(why, cause string) string {
	t.Cause = cmp.Or(t.Cause, cause)
	why = t.Credentials.remedy(why, cause)
	if cause == fetchapi.ReasonAccessDenied {
		t.Denied = cmp.Or(t.Denied, why)
	}
	return why
}

// fetch has a launcher asked to fetch, and counts its node among those that do.
func (d *decision) fetch(at store, call Call) {
	d.ask(call)
	d.stores[at].fetches("another model")
	d.fetches(at)
}

// failure says that a fetch has failed, and why.
func failure(m launcherapi.Model, answer Answer) (failed bool, why, cause string) {
	switch {
	case m.State == launcherapi.ModelFailed:
		return true, m.Reason, m.Cause
	case answer.Err != "":
		return true, answer.Err, answer.Cause
	default:
		return false, "", ""
	}
}

// mayNot says why a node is not asked to fetch now; empty: it is.
func (d *decision) mayNot(told *Told, at store, s *speaker, resolves func(store) bool) string {
	switch {
	case !resolves(at) && told.Source != "":
		return "the source cannot be asked: " + told.Source
	case !resolves(at):
		return "another node asks the source which version it is"
	case s.busy != "":
		return s.busy
	case d.room <= 0:
		return "many launchers are being asked"
	}
	for _, group := range d.groups[at] {
		if limit := d.Groups[group].Spec.MaxConcurrentNodes; limit != nil && d.fetching[group] >= int(*limit) {
			return fmt.Sprintf("%d of the nodes of group %s fetch, which are as many as may at the same time", d.fetching[group], group)
		}
	}
	return ""
}

func (d *decision) ask(call Call) {
	d.room--
	d.plan.Calls = append(d.plan.Calls, call)
}
