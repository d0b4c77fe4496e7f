package modelcache

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// KeeperOf is the cache that counts for a model of that name, where it has the model
// served from launchers' own copies alone, with how far a node is; nil: none does.
func KeeperOf(all []v1alpha1.ClusterModelCache, name modelref.Name, node string) *dualpods.ModelKeeper {
	c := Of(all, name)
	if c == nil || c.Spec.OnMissing != v1alpha1.MissingFail && c.Spec.OnMissing != v1alpha1.MissingWait {
		return nil
	}
	return &dualpods.ModelKeeper{Name: c.Name, Waits: c.Spec.OnMissing == v1alpha1.MissingWait, Node: howFar(c, node)}
}

// howFar says in words how far a node is with the model of a cache, in tenths.
func howFar(c *v1alpha1.ClusterModelCache, node string) string {
	all := c.Status.Nodes
	at := slices.IndexFunc(all, func(n v1alpha1.ModelNode) bool { return n.Node == node })
	if at < 0 {
		return notListed(c, node)
	}
	why := ""
	if all[at].Why != "" {
		why = ": " + all[at].Why
	}
	switch all[at].State {
	case v1alpha1.ModelNodeDownloading:
		return fmt.Sprintf("node %s fetches its model, and has %d %% of it%s", node, all[at].Percent/10*10, why)
	case v1alpha1.ModelNodeWaiting:
		return fmt.Sprintf("node %s does not fetch its model yet%s", node, why)
	case v1alpha1.ModelNodeFailed:
		return fmt.Sprintf("node %s could not fetch its model%s", node, why)
	case v1alpha1.ModelNodeReady:
		return fmt.Sprintf("node %s has its model in the folder of the ModelCacheNodeGroups %s, as far as is known, and its launcher does not have there what is asked for", node, groupsOf(c))
	default:
		return fmt.Sprintf("node %s is to have its model no more%s", node, why)
	}
}

// notListed is howFar of a node that the status of a cache does not list.
func notListed(c *v1alpha1.ClusterModelCache, node string) string {
	available := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case c.Status.ObservedGeneration < c.Generation:
		return fmt.Sprintf("node %s does not fetch its model yet", node)
	case available != nil && available.Reason == v1alpha1.ReasonNodeGroupMissing:
		return fmt.Sprintf("nobody fetches its model on node %s: %s", node, available.Message)
	case c.Status.NodesLeftOut > 0:
		return fmt.Sprintf("the launcher of node %s does not have its model whole; how far the node is has no room in the status of the cache", node)
	default:
		return fmt.Sprintf("nobody fetches its model on node %s, which is in none of the ModelCacheNodeGroups %s: put the node into one of them, or the requester on a node that is", node, groupsOf(c))
	}
}

func groupsOf(c *v1alpha1.ClusterModelCache) string { return strings.Join(c.Spec.Groups(), ", ") }

// Changed says whom a change of a cache concerns that wait for its model, or do not any
// more: those on all nodes, or else on some.
func Changed(before, after *v1alpha1.ClusterModelCache) (all bool, nodes []string) {
	ends := before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	if ends || before.Spec.OnMissing != after.Spec.OnMissing || before.Status.Revision != after.Status.Revision {
		return true, nil
	}
	if after.Spec.OnMissing != v1alpha1.MissingWait {
		return false, nil
	}
	if notListed(before, "") != notListed(after, "") {
		return true, nil
	}
	for _, n := range slices.Concat(before.Status.Nodes, after.Status.Nodes) {
		if howFar(before, n.Node) != howFar(after, n.Node) && !slices.Contains(nodes, n.Node) {
			nodes = append(nodes, n.Node)
		}
	}
	return false, nodes
}
