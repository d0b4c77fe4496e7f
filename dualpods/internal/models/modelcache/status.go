package modelcache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Bounds of texts in a status.
const (
	maxWhy   = 1024 // bytes
	maxUsers = 16   // names for each node
)

// writeStatus writes the report to the status of a cache.
func (t *Report) writeStatus(c *v1alpha1.ClusterModelCache) {
	s := &c.Status
	s.ObservedGeneration, s.Revision, s.Digest = c.Generation, t.Revision, cmp.Or(t.Digest, s.Digest)
	s.ID, s.Claim = t.ID, t.Claim
	if t.Bytes > 0 {
		s.SizeBytes, s.Size = t.Bytes, launcher.BytesText(uint64(t.Bytes))
	}
	s.Desired, s.Ready, s.Downloading, s.Failed, s.InUse = 0, 0, 0, 0, 0
	removing := 0
	for _, n := range t.Nodes {
		s.InUse += int32(len(n.InUseBy))
		if n.State != v1alpha1.ModelNodeRemoving {
			s.Desired++
		}
		switch n.State {
		case v1alpha1.ModelNodeReady:
			s.Ready++
		case v1alpha1.ModelNodeDownloading:
			s.Downloading++
		case v1alpha1.ModelNodeFailed:
			s.Failed++
		case v1alpha1.ModelNodeRemoving:
			removing++
		case v1alpha1.ModelNodeWaiting:
		}
	}
	s.Progress = fmt.Sprintf("%d/%d", s.Ready, s.Desired)
	s.Nodes, s.NodesLeftOut = listedNodes(t.Nodes)
	set := dualpods.NewConditionSetter(&s.Conditions, c.Generation)
	t.setResolved(set)
	t.setAvailable(c, set)
	switch {
	case s.Downloading > 0:
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonDownloading, fmt.Sprintf("%d nodes fetch it", s.Downloading))
	case removing > 0:
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonRemoving, fmt.Sprintf("%d nodes have still to drop it", removing))
	default:
		set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonIdle, "")
	}
	t.setDegraded(s, set)
	t.Credentials.Tell(&s.Conditions, set, t.Denied, false)
	t.setMountable(s, set)
	t.setDeletionBlocked(c, set)
}

// setDeletionBlocked sets the condition DeletionBlocked of a cache that is being deleted.
func (t *Report) setDeletionBlocked(c *v1alpha1.ClusterModelCache, set dualpods.ConditionSetter) {
	switch {
	case c.DeletionTimestamp.IsZero():
		meta.RemoveStatusCondition(&c.Status.Conditions, v1alpha1.ConditionDeletionBlocked)
	case t.Blocked != "":
		set(v1alpha1.ConditionDeletionBlocked, true, v1alpha1.ReasonInUse, t.Blocked)
	default:
		set(v1alpha1.ConditionDeletionBlocked, false, v1alpha1.ReasonRemoving, "")
	}
}

func (t *Report) setResolved(set dualpods.ConditionSetter) {
	cause, failed := t.firstFailed(func(string) bool { return true })
	switch {
	case t.Revision != "":
		set(v1alpha1.ConditionResolved, true, v1alpha1.ReasonResolved, "")
	case t.Source != "":
		set(v1alpha1.ConditionResolved, false, cmp.Or(t.Cause, v1alpha1.ReasonFailed), t.Source)
	case failed != "":
		set(v1alpha1.ConditionResolved, false, cmp.Or(cause, v1alpha1.ReasonFailed), failed)
	case t.Asked:
		set(v1alpha1.ConditionResolved, false, v1alpha1.ReasonAsked, "a launcher has asked the source for its version and has no answer yet")
	default:
		set(v1alpha1.ConditionResolved, false, v1alpha1.ReasonNotAsked, "no launcher has asked the source yet")
	}
}

func (t *Report) setAvailable(c *v1alpha1.ClusterModelCache, set dualpods.ConditionSetter) {
	s := &c.Status
	switch {
	case !c.DeletionTimestamp.IsZero():
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonRemoving, "it is being deleted")
	case t.Problem != "":
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNodeGroupMissing, t.Problem)
	case s.Desired == 0:
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNoNodes, fmt.Sprintf(
			"no node is in the ModelCacheNodeGroups %s of spec.nodeGroups: label nodes as a group asks or, for a group without labels, name it in spec.modelCache.nodeGroup of a LauncherConfig", t.Groups))
	case s.Ready == s.Desired:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAllReady, "")
	default:
		message := fmt.Sprintf("%d of %d nodes have it", s.Ready, s.Desired)
		for _, n := range s.Nodes {
			if n.State != v1alpha1.ModelNodeReady && n.State != v1alpha1.ModelNodeRemoving {
				message += fmt.Sprintf("; node %s is %s", n.Node, n.State)
				if n.Why != "" {
					message += ": " + n.Why
				}
				break
			}
		}
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNotReady, message)
	}
}

func (t *Report) setDegraded(s *v1alpha1.ClusterModelCacheStatus, set dualpods.ConditionSetter) {
	if cause, why := t.firstFailed(func(string) bool { return true }); why != "" {
		set(v1alpha1.ConditionDegraded, true, cmp.Or(cause, v1alpha1.ReasonFailed), why)
	} else {
		set(v1alpha1.ConditionDegraded, false, v1alpha1.ReasonNoneFailed, "")
	}
	if cause, why := t.firstFailed(func(cause string) bool { return cause == fetchapi.ReasonCapacityExceeded }); why != "" {
		set(v1alpha1.ConditionCapacityExceeded, true, cause, why)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionCapacityExceeded)
	}
}

// firstFailed returns the first node whose last try failed for such a cause; empty: none.
func (t *Report) firstFailed(of func(cause string) bool) (cause, why string) {
	for _, n := range t.Nodes {
		if f, failed := t.Failures[n.Node]; failed && of(f.cause) {
			return f.cause, "node " + n.Node + ": " + dualpods.Truncate(f.why, maxWhy)
		}
	}
	return "", ""
}

// listedNodes returns the nodes that a status lists, sorted by name. When there are too many,
// nodes that are not Ready come first.
func listedNodes(all []v1alpha1.ModelNode) (shown []v1alpha1.ModelNode, leftOut int32) {
	shown = slices.Clone(all)
	if len(shown) > v1alpha1.MaxListedNodes {
		slices.SortStableFunc(shown, func(a, b v1alpha1.ModelNode) int { return cmp.Compare(rank(a), rank(b)) })
		leftOut = int32(len(shown) - v1alpha1.MaxListedNodes)
		shown = shown[:v1alpha1.MaxListedNodes]
		slices.SortFunc(shown, func(a, b v1alpha1.ModelNode) int { return strings.Compare(a.Node, b.Node) })
	}
	for i := range shown {
		shown[i].Why = dualpods.Truncate(shown[i].Why, maxWhy)
		shown[i].InUseBy = shown[i].InUseBy[:min(len(shown[i].InUseBy), maxUsers)]
	}
	return shown, leftOut
}

func rank(n v1alpha1.ModelNode) int {
	if n.State == v1alpha1.ModelNodeReady {
		return 1
	}
	return 0
}
