package modelcache

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Plan is the result of a decision.
type Plan struct {
	Calls   []Call                 // calls to start now
	Reports map[string]*Report     // reports by the names of caches
	Again   time.Time              // when to decide again, though nothing changes; zero: never
	Pulls   map[string]PullRequest // pull requests by holder
	// Labels are the models' labels, by node and by cache: true to set the label, false to
	// leave it as it is. Other labels of models are removed.
	Labels map[string]map[string]bool
}

// PullRequest is a pull request to launchers.
type PullRequest struct {
	URI, Ref         string
	Include, Exclude []string             // patterns of its files
	Retention        string               // a retention of launcherapi; empty: the launcher's default, which is to keep the model
	Warm             bool                 // read the model into main memory
	Private          bool                 // inference servers must prove that they may read the model
	Credentials      fetchapi.Credentials // nil: those of the launcher
	ExpectedBytes    int64                // 0: unknown
	ExpectedDigest   string               // empty: unknown
	RequestHash      string               // hash of the credentials, and of the expected size and digest
}

// Report is the report on a cache.
type Report struct {
	Nodes       []v1alpha1.ModelNode // sorted by name
	Revision    string
	Digest      string
	ID          string // id of the version in the stores; empty: unknown, or not the same in all
	several     bool   // stores have different versions, each whole
	Bytes       int64
	Groups      string             // the cache's groups with their labels
	Problem     string             // why the specification cannot be met: groups do not exist
	Asked       bool               // a launcher asks or has asked the source
	Source      string             // why the source could not be asked
	Cause       string             // code of Source
	Failures    map[string]failure // failures of the last tries, by node
	NothingLeft bool               // no launcher that answers has anything for the cache
	Blocked     string             // why the cache cannot be deleted yet

	Credentials credentials
	Denied      string // how a source refused the credentials

	Claim   string  // the claim by which Pods mount the model; empty: none
	Mounted mounted // how Pods use the claim
}

// maxCalls bounds the concurrent calls.
const maxCalls = 64

// Decide decides by the tables in spec/modelcache.md. It does not change w.
func Decide(w *World) *Plan {
	d := &decision{view: newView(w), plan: &Plan{Reports: map[string]*Report{}, Pulls: map[string]PullRequest{}, Labels: map[string]map[string]bool{}}, callsLeft: maxCalls}
	for _, a := range w.Answers {
		if a.Running {
			d.callsLeft--
		}
	}
	d.countFetching()
	caches := slices.Clone(w.Caches)
	for i := range caches {
		if c := &caches[i]; len(w.Mounted[c.Name]) > 0 {
			c.Spec.Retention = v1alpha1.RetentionKeep // launchers do not know the Pods that mount a copy
		}
	}
	slices.SortFunc(caches, func(a, b v1alpha1.ClusterModelCache) int { return Older(&a, &b) })
	holders := map[string]bool{}
	for i := range caches {
		holders[Holder(&caches[i])] = true
		d.cache(&caches[i])
	}
	d.dropOrphans(holders)
	return d.plan
}

// decision is the state of one call of Decide.
type decision struct {
	*view
	plan          *Plan
	callsLeft     int            // calls that may still be started
	fetchingNodes map[string]int // number of nodes that fetch, by group
}

func (d *decision) countFetching() {
	d.fetchingNodes = map[string]int{}
	for at, s := range d.stores {
		if s.fetching {
			d.countNode(at)
		}
		if !s.busyEnd.IsZero() {
			d.waitUntil(s.busyEnd)
		}
	}
}

// countNode counts a node as fetching, for each group with its store.
func (d *decision) countNode(at store) {
	for _, group := range d.groups[at] {
		d.fetchingNodes[group]++
	}
}

// cache decides for one cache.
func (d *decision) cache(c *v1alpha1.ClusterModelCache) {
	report := &Report{Failures: map[string]failure{}, NothingLeft: !c.DeletionTimestamp.IsZero(), Revision: c.Status.Revision, ID: c.Status.ID}
	d.plan.Reports[c.Name] = report
	holder := Holder(c)
	where := d.wantedStores(c, report)
	report.Groups = d.groupsOf(c)
	d.resolveVersion(holder, report, isNamed(c))
	report.setClaim(c, d.World)
	report.Credentials = d.shown[holder]
	asked := d.wanted(c, holder, report.Revision)
	asked.Credentials, asked.Private, asked.Warm = report.Credentials.Values, isPrivate(c), isWarm(c)
	asked.ExpectedBytes, asked.ExpectedDigest, asked.RequestHash = expectedBytes(c), c.Spec.ExpectedDigest, d.requestHashes[holder]
	d.plan.Pulls[holder] = asked
	mayResolve := d.mayResolve(c, holder, report, where)
	labels := map[string]labelAction{}
	for _, at := range d.places {
		if group, here := where[at]; here {
			n := d.node(c, report, at, group, mayResolve)
			report.add(n)
			labels[at.node] = max(labels[at.node], d.labelAction(at, n.State))
		} else if d.stores[at] != nil && (report.Problem == "" || !c.DeletionTimestamp.IsZero()) {
			d.dropUnwanted(c, holder, report, at)
		}
	}
	if report.Problem != "" && c.DeletionTimestamp.IsZero() {
		d.keepLabels(c.Name) // the members of a missing group are unknown
	}
	d.recordLabels(c.Name, labels)
}

// wantedStores returns the stores in which a cache is wanted, with one of its groups. A cache
// that is being deleted is wanted nowhere.
func (d *decision) wantedStores(c *v1alpha1.ClusterModelCache, report *Report) map[store]string {
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
	d.keepWhileReplaced(c, where)
	if len(missing) > 0 {
		report.Problem = fmt.Sprintf("spec.nodeGroups: there is no ModelCacheNodeGroup %s: create it, or name another one; nothing is removed until then", strings.Join(missing, ", "))
	}
	return where
}

// replacementTime is how long a node with the model stays in a group without labels after the
// group's last launcher left it. The launcher's replacement may be about to start.
const replacementTime = time.Minute

// keepWhileReplaced adds stores to where that the launcher of a group without labels has
// just left. A launcher of another group must report the whole model there. A new leader
// does not know the past, and assumes that all such launchers have just left.
func (d *decision) keepWhileReplaced(c *v1alpha1.ClusterModelCache, where map[store]string) {
	for at, s := range d.stores {
		if s.modelFor(Holder(c)).State != launcherapi.ModelReady {
			continue
		}
		for _, name := range c.Spec.Groups() {
			group := d.Groups[name]
			if _, there := where[at]; there || group == nil || len(group.Spec.NodeSelector) > 0 || group.Spec.Path != at.path {
				continue
			}
			since := d.LeadingSince
			if left := d.Departed[member{name, at.node}]; left.After(since) {
				since = left
			}
			if d.waitUntil(since.Add(replacementTime)) {
				where[at] = name
			}
		}
	}
}

// resolveVersion determines the version and the size of a cache. named means that the controller
// can ask launchers for a version. Then the first version counts that any node had. Otherwise the
// last published version counts, since later fetches get what the source has then.
func (d *decision) resolveVersion(holder string, report *Report, named bool) {
	var last int64
	var ids []string
	whole := map[string]bool{}
	observe := func(m *launcherapi.Model) {
		if named && isOther(m, report.Revision) { // two nodes have asked; see spec/modelcache.md
			return
		}
		if report.Revision == "" {
			report.Revision = m.Revision
		}
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
		if m.State == launcherapi.ModelReady {
			whole[m.ID] = true
		}
		report.Bytes = max(report.Bytes, m.Bytes)
		if report.Digest == "" {
			report.Digest = m.Digest
		}
	}
	for _, at := range d.places {
		s := d.stores[at]
		if s == nil {
			continue
		}
		m := s.modelFor(holder)
		if observe(m.Model); !named && m.State == launcherapi.ModelReady && m.Revision != "" && m.Published > last {
			last, report.Revision, report.Digest = m.Published, m.Revision, m.Digest
		}
	}
	for _, a := range d.pulls[holder] {
		report.Asked = true
		observe(&a.Model)
	}
	switch report.several = len(whole) > 1; {
	case report.several:
		report.ID = ""
	case len(ids) > 0 && !slices.Contains(ids, report.ID):
		report.ID = ids[0]
	}
}

// waitUntil reports whether a time is in the future, and requests a pass at that time.
func (d *decision) waitUntil(when time.Time) bool {
	if !when.After(d.Now) {
		return false
	}
	if d.plan.Again.IsZero() || when.Before(d.plan.Again) {
		d.plan.Again = when
	}
	return true
}

// fetch calls a launcher to fetch the model, and counts its node as fetching.
func (d *decision) fetch(at store, call Call) {
	d.startCall(call)
	s := d.stores[at]
	if !s.fetching {
		d.countNode(at)
	}
	s.markCalled(call.Holder, Answer{Running: true, CalledAt: d.Now}, d.Now)
	d.waitUntil(s.busyEnd)
}

func (d *decision) startCall(call Call) {
	d.callsLeft--
	d.plan.Calls = append(d.plan.Calls, call)
}
