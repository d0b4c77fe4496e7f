package modelcache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// add adds the state of a node's store. When a node has several stores, the state of the
// store that lacks more counts, and the users of all stores count.
func (t *Report) add(n v1alpha1.ModelNode) {
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

// byLack lists the states of a node by how much it lacks of the model.
var byLack = []v1alpha1.ModelNodeState{
	v1alpha1.ModelNodeRemoving, v1alpha1.ModelNodeReady, v1alpha1.ModelNodeDownloading, v1alpha1.ModelNodeWaiting, v1alpha1.ModelNodeFailed,
}

// node decides for a store that should have the model.
func (d *decision) node(c *v1alpha1.ClusterModelCache, report *Report, at store, group string, mayResolve func(store) bool) v1alpha1.ModelNode {
	report.NothingLeft = false
	holder := Holder(c)
	n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeWaiting, InUseBy: d.users(c.Name, at.node, nil)}
	s := d.stores[at]
	switch {
	case s == nil:
		n.Why = "no launcher of node group " + group + " is on it: a LauncherConfig must name the group in spec.modelCache.nodeGroup"
		return n
	case s.Models == nil:
		n.Why = "launcher " + s.Name + " does not answer: " + s.Why
		return n
	}
	s = report.Credentials.called(s)
	m := s.modelFor(holder)
	n.InUseBy = d.users(c.Name, at.node, m.InUseBy)
	answer := d.pulls[holder][s.UID]
	switch {
	case m.State == launcherapi.ModelReady:
		n.State, n.Why = d.wholeModel(c, report, s, m, answer)
		return n
	case m.State == launcherapi.ModelDownloading:
		n.State, n.Why, n.Percent = v1alpha1.ModelNodeDownloading, m.Reason, percent(m)
		reportLastFailure(report, m, answer, &n)
		return n
	case answer.pending(d.Now):
		n.Why = "launcher " + s.Name + " is asking the source"
		if !answer.Running {
			d.waitUntil(answer.AnsweredAt.Add(watchDelay))
		}
		reportLastFailure(report, m, answer, &n)
		return n
	}
	if n.Why = report.Credentials.whyNot(s.Launcher); n.Why == "" {
		d.fetchMissing(c, report, at, s, mayResolve, &n)
	}
	return n
}

// wholeModel decides for a store that has the whole model, though perhaps with another digest.
func (d *decision) wholeModel(c *v1alpha1.ClusterModelCache, report *Report, s *storeView, m nodeview.Model, answer Answer) (v1alpha1.ModelNodeState, string) {
	if digestDiffers(c, m) {
		return v1alpha1.ModelNodeFailed, report.recordNodeFailure(s.Node, fmt.Sprintf("it has the digest %s, but spec.expectedDigest is %s", m.Digest, c.Spec.ExpectedDigest), fetchapi.ReasonIntegrityMismatch)
	}
	return v1alpha1.ModelNodeReady, d.updateSettings(c, report, s, m, answer)
}

// fetchMissing decides for a store without the whole model, whose launcher may be called.
func (d *decision) fetchMissing(c *v1alpha1.ClusterModelCache, report *Report, at store, s *storeView, mayResolve func(store) bool, n *v1alpha1.ModelNode) {
	holder := Holder(c)
	m, answer := s.modelFor(holder), d.pulls[holder][s.UID]
	n.Why = d.whyNotFetch(report, at, s, mayResolve)
	mayFetch := n.Why == ""
	if mayFetch {
		n.Why = "launcher " + s.Name + " is asking the source"
	}
	reportLastFailure(report, m, answer, n)
	if answer.Cause == fetchapi.ReasonCapacityExceeded && d.dropInTheWay(c, report, s) {
		return // the fetch begins when the launcher reports that the copy is gone
	}
	if mayFetch && (answer.Err == "" || !d.waitUntil(answer.retryAt())) {
		d.fetch(at, Call{Launcher: s.UID, Holder: holder})
	}
}

// updateSettings updates what the launcher has recorded for the cache: retention, warm-up, and who
// may read the model, for which the launcher asks the source. It returns why that failed.
func (d *decision) updateSettings(c *v1alpha1.ClusterModelCache, report *Report, s *storeView, m nodeview.Model, answer Answer) (why string) {
	holder := Holder(c)
	var changed []string
	if noted := slices.Contains(m.LRUBy, holder); noted != (c.Spec.Retention == v1alpha1.RetentionLRU) {
		changed = append(changed, "its retention")
	}
	if noted := slices.Contains(m.PrivateBy, holder); noted != isPrivate(c) {
		changed = append(changed, "who may read it")
	}
	if noted := slices.Contains(m.WarmBy, holder); noted != isWarm(c) {
		changed = append(changed, "its warm-up")
	}
	if len(changed) == 0 {
		return ""
	}
	cannot := report.Credentials.whyNot(s.Launcher)
	if cannot := cmp.Or(cannot, answer.Err); cannot != "" {
		why = strings.Join(changed, " and ") + " could not be changed: " + cannot
	}
	switch {
	case cannot != "":
	case answer.pending(d.Now):
		d.waitUntil(d.Now.Add(watchDelay))
	case d.callsLeft > 0 && (answer.Err == "" || !d.waitUntil(answer.retryAt())):
		d.startCall(Call{Launcher: s.UID, Holder: holder})
	}
	return why
}

// digestDiffers reports whether a store's model has another digest than expected. Launchers refuse
// such models, but not one that was stored before the digest was expected.
func digestDiffers(c *v1alpha1.ClusterModelCache, m nodeview.Model) bool {
	return c.Spec.ExpectedDigest != "" && m.Digest != "" && m.Digest != c.Spec.ExpectedDigest
}

func expectedBytes(c *v1alpha1.ClusterModelCache) int64 {
	if c.Spec.Size == nil {
		return 0
	}
	return c.Spec.Size.Value()
}

// isPrivate reports whether inference servers must prove that they may read the model.
func isPrivate(c *v1alpha1.ClusterModelCache) bool {
	return c.Spec.Credentials != nil && !c.Spec.Credentials.Shared
}

// isWarm reports whether copies of a cache are read into main memory.
func isWarm(c *v1alpha1.ClusterModelCache) bool { return c.Spec.Warm == v1alpha1.WarmPageCache }

// percent returns how much of a model is fetched.
func percent(m nodeview.Model) int32 {
	if m.Bytes <= 0 {
		return 0
	}
	return int32(100 * min(m.FetchedBytes, m.Bytes) / m.Bytes)
}

// recordNodeFailure records a failure of a node and returns its description.
func (t *Report) recordNodeFailure(node, why, cause string) string {
	why = t.describeFailure(why, cause)
	if _, recorded := t.Failures[node]; !recorded {
		t.Failures[node] = failure{why, cause}
	}
	return why
}

// describeFailure returns the description of a failure, and records a refusal by a source.
func (t *Report) describeFailure(why, cause string) string {
	why = t.Credentials.Remedy("ClusterModelCache", why, cause)
	if cause == fetchapi.ReasonAccessDenied {
		t.Denied = cmp.Or(t.Denied, why)
	}
	return why
}

// reportLastFailure reports the last failure of a node, also while another try runs.
func reportLastFailure(report *Report, m nodeview.Model, answer Answer, n *v1alpha1.ModelNode) {
	last := answer.lastFailure()
	switch {
	case m.State == launcherapi.ModelFailed:
		last = failure{m.Reason, m.Cause}
	case last == failure{}:
		return
	}
	why := report.recordNodeFailure(n.Node, last.why, last.cause)
	if n.State == v1alpha1.ModelNodeWaiting {
		n.State, n.Why = v1alpha1.ModelNodeFailed, why
	}
}

// whyNotFetch returns why a launcher must not fetch now; empty: it may.
func (d *decision) whyNotFetch(report *Report, at store, s *storeView, mayResolve func(store) bool) string {
	switch {
	case !mayResolve(at) && report.Source != "":
		return "the source could not be asked: " + report.Source
	case !mayResolve(at):
		return "another node is asking the source for the version"
	case s.busyWhy != "":
		return s.busyWhy
	case d.callsLeft <= 0:
		return "too many calls to launchers are running"
	}
	itself := 0
	if s.fetching { // its own call waits for the source, which may take long
		itself = 1
	}
	for _, group := range d.groups[at] {
		if limit := d.Groups[group].Spec.MaxConcurrentNodes; limit != nil && d.fetchingNodes[group]-itself >= int(*limit) {
			return fmt.Sprintf("%d of the nodes of group %s are fetching, which is the group's limit", d.fetchingNodes[group]-itself, group)
		}
	}
	return ""
}
