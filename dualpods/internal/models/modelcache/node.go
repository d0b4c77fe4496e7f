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

// node decides for a node that should have the model.
func (d *decision) node(c *v1alpha1.ClusterModelCache, told *Told, at store, group string, resolves func(store) bool) v1alpha1.ModelNode {
	told.Clean = false
	holder := Holder(c)
	n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeWaiting, InUseBy: d.users(c.Name, at.node, nil)}
	s := d.stores[at]
	switch {
	case s == nil:
		n.Why = "there is no launcher of node group " + group + " on it: a LauncherConfig names the group in spec.modelCache.nodeGroup"
		return n
	case s.Models == nil:
		n.Why = "launcher " + s.Name + " does not answer: " + s.Why
		return n
	}
	m := s.held(holder)
	n.InUseBy = d.users(c.Name, at.node, m.InUseBy)
	answer := d.pulls[holder][s.UID]
	switch {
	case m.State == launcherapi.ModelReady:
		n.State, n.Why = d.whole(c, told, s, m, answer)
		return n
	case m.State == launcherapi.ModelDownloading:
		n.State, n.Why, n.Percent = v1alpha1.ModelNodeDownloading, m.Reason, percent(m)
		met(c, told, m, answer, &n)
		return n
	case answer.pending(d.Now):
		n.Why = "launcher " + s.Name + " asks the source"
		if !answer.Running {
			d.later(answer.At.Add(settle))
		}
		met(c, told, m, answer, &n)
		return n
	}
	if n.Why = told.Credentials.cannot(s.Launcher); n.Why == "" {
		d.lacks(c, told, at, s, resolves, &n)
	}
	return n
}

// whole decides for a node that has the model whole, which may be another than is expected.
func (d *decision) whole(c *v1alpha1.ClusterModelCache, told *Told, s *speaker, m nodeview.Model, answer Answer) (v1alpha1.ModelNodeState, string) {
	if other(c, m) {
		return v1alpha1.ModelNodeFailed, told.nodeFailed(s.Node, fmt.Sprintf("it has the digest %s, and spec.expectedDigest is %s", m.Digest, c.Spec.ExpectedDigest), fetchapi.ReasonIntegrityMismatch)
	}
	return v1alpha1.ModelNodeReady, d.note(c, told, s, m, answer)
}

// lacks decides for a node that has not the model, and whose launcher may be asked for it.
func (d *decision) lacks(c *v1alpha1.ClusterModelCache, told *Told, at store, s *speaker, resolves func(store) bool, n *v1alpha1.ModelNode) {
	holder := Holder(c)
	m, answer := s.held(holder), d.pulls[holder][s.UID]
	n.Why = d.mayNot(told, at, s, resolves)
	free := n.Why == ""
	if free {
		n.Why = "launcher " + s.Name + " asks the source"
	}
	met(c, told, m, answer, n)
	if free && (answer.Err == "" || !d.later(answer.again())) {
		d.fetch(at, Call{Launcher: s.UID, Holder: holder})
	}
}

// note has a launcher note what becomes of a copy when room is needed and whether it is to
// be in main memory, where that was changed, and who may read it, of which the launcher asks
// the source. It gives why that could not be noted.
func (d *decision) note(c *v1alpha1.ClusterModelCache, told *Told, s *speaker, m nodeview.Model, answer Answer) (why string) {
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

// other says that what a node has is not what is expected. Launchers refuse it, but for
// what was there before it was expected.
func other(c *v1alpha1.ClusterModelCache, m nodeview.Model) bool {
	return c.Spec.ExpectedDigest != "" && m.Digest != "" && m.Digest != c.Spec.ExpectedDigest
}

func expectedBytes(c *v1alpha1.ClusterModelCache) int64 {
	if c.Spec.Size == nil {
		return 0
	}
	return c.Spec.Size.Value()
}

// private says that whoever has the model of a cache served shows a right of his own.
func private(c *v1alpha1.ClusterModelCache) bool {
	return c.Spec.Credentials != nil && !c.Spec.Credentials.Shared
}

// warm says that copies of a cache are to be in main memory.
func warm(c *v1alpha1.ClusterModelCache) bool { return c.Spec.Warm == v1alpha1.WarmPageCache }

// percent is how much of a model is fetched.
func percent(m nodeview.Model) int32 {
	if m.Bytes <= 0 {
		return 0
	}
	return int32(100 * min(m.FetchedBytes, m.Bytes) / m.Bytes)
}

// nodeFailed is failed, of a node.
func (t *Told) nodeFailed(node, why, cause string) string {
	why = t.failed(why, cause)
	if _, told := t.Failures[node]; !told {
		t.Failures[node] = failure{why, cause}
	}
	return why
}

// failed gives what is told of a failure, and notes when a source refuses.
func (t *Told) failed(why, cause string) string {
	why = t.Credentials.Remedy("ClusterModelCache", why, cause)
	if cause == fetchapi.ReasonAccessDenied {
		t.Denied = cmp.Or(t.Denied, why)
	}
	return why
}

// met tells what the last try of a node met that failed, also while another one is made.
func met(c *v1alpha1.ClusterModelCache, told *Told, m nodeview.Model, answer Answer, n *v1alpha1.ModelNode) {
	last, shown, waits := answer.last(), m.State == launcherapi.ModelFailed, n.State == v1alpha1.ModelNodeWaiting
	if shown {
		last = failure{m.Reason, m.Cause}
	}
	switch {
	case last == failure{} && !shown:
	case last.cause == fetchapi.ReasonCapacityExceeded && givesWay(c) == 1:
		if waits {
			n.Why = "there is no room for it; with retention LRU it gives way to others, and is fetched once there is room without any other's going: " + last.why
		}
	default:
		why := told.nodeFailed(n.Node, last.why, last.cause)
		if waits {
			n.State, n.Why = v1alpha1.ModelNodeFailed, why
		}
	}
}

// mayNot says why a node is not asked to fetch now; empty: it is.
func (d *decision) mayNot(told *Told, at store, s *speaker, resolves func(store) bool) string {
	switch {
	case !resolves(at) && told.Source != "":
		return "the source could not be asked: " + told.Source
	case !resolves(at):
		return "another node asks the source which version it is"
	case s.busy != "":
		return s.busy
	case d.room <= 0:
		return "many launchers are being asked"
	}
	itself := 0
	if s.fetching { // a source is asked, which may take long
		itself = 1
	}
	for _, group := range d.groups[at] {
		if limit := d.Groups[group].Spec.MaxConcurrentNodes; limit != nil && d.fetching[group]-itself >= int(*limit) {
			return fmt.Sprintf("%d of the nodes of group %s fetch, which are as many as may at the same time", d.fetching[group]-itself, group)
		}
	}
	return ""
}
