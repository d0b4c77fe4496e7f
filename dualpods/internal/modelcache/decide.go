package modelcache

import (
	"cmp"
	"fmt"
	"maps"
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
	for group, nodes := range d.members {
		for _, node := range nodes {
			if s := d.stores[store{node, d.Groups[group].Spec.Path}]; s != nil && s.fetches != "" {
				d.fetching[group]++
			}
		}
	}
}

// cache decides for one cache.
func (d *decision) cache(c *v1alpha1.ClusterModelCache) {
	told := &Told{Clean: !c.DeletionTimestamp.IsZero(), Revision: c.Status.Revision}
	d.plan.Told[c.Name] = told
	holder := Holder(c)
	where := d.where(c, told)
	d.know(holder, told)
	told.Credentials = d.shown[holder]
	asked := d.wanted(c, holder, told.Revision)
	asked.Credentials, asked.Sum = told.Credentials.values, told.Credentials.sum
	d.plan.Pulls[holder] = asked
	resolves := d.resolves(c, holder, told, where)
	if told.Problem != "" && c.DeletionTimestamp.IsZero() {
		d.stayLabelled(c.Name) // who is in a group that is not there is not known
	}
	for _, at := range d.places {
		if group, here := where[at]; here {
			n := d.node(c, told, at, group, resolves)
			told.add(n)
			d.label(c.Name, at, n.State)
		} else if d.stores[at] != nil && (told.Problem == "" || !c.DeletionTimestamp.IsZero()) {
			d.leave(c, holder, told, at)
		}
	}
}

// add tells of a node. What of its stores is wanted counts; else what is to be dropped.
func (t *Told) add(n v1alpha1.ModelNode) {
	last := len(t.Nodes) - 1
	switch {
	case last < 0 || t.Nodes[last].Node != n.Node:
		t.Nodes = append(t.Nodes, n)
	case t.Nodes[last].State == v1alpha1.ModelNodeRemoving:
		t.Nodes[last] = n
	}
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
	if len(missing) > 0 {
		told.Problem = fmt.Sprintf("spec.nodeGroups: there is no ModelCacheNodeGroup %s: make it, or name another one; nothing is removed until then", strings.Join(missing, ", "))
	}
	return where
}

// know finds out which version the cache is, and its size.
func (d *decision) know(holder string, told *Told) {
	note := func(m launcherapi.Model) {
		if told.Revision == "" {
			told.Revision = m.Revision
		}
		told.Bytes = max(told.Bytes, m.Bytes)
	}
	for _, at := range d.places {
		if s := d.stores[at]; s != nil {
			note(s.held[holder])
		}
	}
	for _, a := range d.pulls[holder] {
		note(a.Model)
	}
}

// wanted is what launchers are asked for. A launcher of before there was a retention
// refuses one: that a copy stays is said where another launcher has noted that it goes.
func (d *decision) wanted(c *v1alpha1.ClusterModelCache, holder, revision string) Wanted {
	w := address(c, revision)
	w.Include, w.Exclude = c.Spec.Source.Include, c.Spec.Source.Exclude
	noted := func(s *speaker) bool { return slices.Contains(s.held[holder].LRUBy, holder) }
	switch {
	case c.Spec.Retention == v1alpha1.RetentionLRU:
		w.Retention = launcherapi.RetentionLRU
	case slices.ContainsFunc(slices.Collect(maps.Values(d.stores)), noted):
		w.Retention = launcherapi.RetentionKeep
	}
	return w
}

// address is what launchers are asked for of a source. Of a model of the hub it is one
// commit, by the name that the cache has for it, so that all nodes have the same.
func address(c *v1alpha1.ClusterModelCache, revision string) Wanted {
	source := c.Spec.Source
	switch {
	case !strings.HasPrefix(source.URI, modelref.HubScheme):
		return Wanted{URI: source.URI}
	case revision != "":
		return Wanted{URI: source.URI + "@" + revision, Ref: cmp.Or(source.Revision, modelref.MainBranch)}
	case source.Revision != "":
		return Wanted{URI: source.URI + "@" + source.Revision}
	default:
		return Wanted{URI: source.URI}
	}
}

// resolves says which store asks which version a model of the hub is, for all: one at
// a time, and after a pause when that could not be told. All may ask where that is
// known.
func (d *decision) resolves(c *v1alpha1.ClusterModelCache, holder string, told *Told, where map[store]string) func(store) bool {
	if told.Revision != "" || !strings.HasPrefix(c.Spec.Source.URI, modelref.HubScheme) {
		return func(store) bool { return true }
	}
	var last Answer
	tries := 0
	for _, a := range d.pulls[holder] {
		if a.Running {
			return func(store) bool { return false }
		}
		if tries += a.Tries; a.Err != "" && a.At.After(last.At) {
			last = a
		}
	}
	if last.Err != "" {
		told.Source, told.Cause = told.failed(last.Err, last.Cause), last.Cause
		last.Tries = tries
		if d.later(last.again()) {
			return func(store) bool { return false }
		}
	}
	var first *store
	var since time.Time // when it was asked last
	for _, at := range d.places {
		s := d.stores[at]
		if _, here := where[at]; !here || s == nil || s.Models == nil {
			continue
		}
		if asked := d.pulls[holder][s.UID].At; first == nil || asked.Before(since) {
			first, since = &at, asked
		}
	}
	return func(at store) bool { return first != nil && at == *first }
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
		n.State, n.Why = v1alpha1.ModelNodeReady, d.retain(c, told, s, m, answer)
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
	n.Why = d.mayNot(told, at, s, group, resolves)
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

// retain has a launcher note what becomes of a copy when room is needed, where that was
// changed. It gives why that could not be noted.
func (d *decision) retain(c *v1alpha1.ClusterModelCache, told *Told, s *speaker, m launcherapi.Model, answer Answer) (why string) {
	holder := Holder(c)
	if noted := slices.Contains(m.LRUBy, holder); noted == (givesWay(c) == 1) {
		return ""
	}
	cannot := told.Credentials.cannot(s.Launcher)
	if cannot := cmp.Or(cannot, answer.Err); cannot != "" {
		why = "its retention could not be changed: " + cannot
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
	d.stores[at].fetches = "another model"
	for name, nodes := range d.members {
		if d.Groups[name].Spec.Path == at.path && slices.Contains(nodes, at.node) {
			d.fetching[name]++
		}
	}
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
func (d *decision) mayNot(told *Told, at store, s *speaker, group string, resolves func(store) bool) string {
	limit := d.Groups[group].Spec.MaxConcurrentNodes
	switch {
	case !resolves(at) && told.Source != "":
		return "the source cannot be asked: " + told.Source
	case !resolves(at):
		return "another node asks the source which version it is"
	case s.fetches != "":
		return "it fetches " + s.fetches + " first"
	case limit != nil && d.fetching[group] >= int(*limit):
		return fmt.Sprintf("%d of the nodes of group %s fetch, which are as many as may at the same time", d.fetching[group], group)
	case d.room <= 0:
		return "many launchers are being asked"
	default:
		return ""
	}
}

func (d *decision) ask(call Call) {
	d.room--
	d.plan.Calls = append(d.plan.Calls, call)
}

// leave decides for a store where the model is not wanted, or not any more.
func (d *decision) leave(c *v1alpha1.ClusterModelCache, holder string, told *Told, at store) {
	s := d.stores[at]
	if d.Answers[Call{Launcher: s.UID, Holder: holder}].pending(d.Now) { // a fetch may begin
		told.Clean = false
		d.later(d.Now.Add(settle))
	}
	if s.Models == nil {
		mayHave := slices.Contains(c.Spec.NodeGroups, s.Group) || slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.ModelNode) bool { return n.Node == at.node })
		if node, exists := d.Nodes[at.node]; mayHave && exists && !node.Down && !c.DeletionTimestamp.IsZero() {
			told.Clean = false
			told.block("launcher " + s.Name + " on node " + at.node + " does not answer: " + s.Why)
			told.add(v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, Why: "launcher " + s.Name + " does not answer: " + s.Why})
		}
		return
	}
	if _, has := s.held[holder]; !has {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(s.Models)) {
		m := s.Models[id]
		if !slices.Contains(m.WantedBy, holder) {
			continue
		}
		told.Clean = false
		n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, InUseBy: m.InUseBy}
		if why := d.remove(s, holder, m); why != "" {
			n.Why = why
			told.block("node " + at.node + ": " + why)
		}
		told.add(n)
	}
}

func (t *Told) block(why string) { t.Blocked = cmp.Or(t.Blocked, why) }

// remove has a launcher drop what a holder wanted. It gives what is in the way.
func (d *decision) remove(s *speaker, holder string, m launcherapi.Model) (blocked string) {
	call := Call{Launcher: s.UID, Holder: holder, Remove: m.ID}
	answer := d.Answers[call]
	if len(m.InUseBy) > 0 { // the launcher tells when that is over
		return "it is in use by " + strings.Join(m.InUseBy, ", ")
	}
	if answer.pending(d.Now) {
		if !answer.Running {
			d.later(answer.At.Add(settle))
		}
		return ""
	}
	if answer.Err != "" && d.later(answer.again()) || d.room <= 0 {
		return answer.Err
	}
	d.ask(call)
	return answer.Err
}

// orphans has launchers drop what caches wanted that are no more: their nodes were
// away when they went.
func (d *decision) orphans(holders map[string]bool) {
	for _, at := range d.places {
		s := d.stores[at]
		if s == nil {
			continue
		}
		for holder := range s.held {
			if !strings.HasPrefix(holder, holderPrefix) || holders[holder] {
				continue
			}
			for _, m := range s.Models {
				if slices.Contains(m.WantedBy, holder) {
					d.remove(s, holder, m)
				}
			}
		}
	}
}
