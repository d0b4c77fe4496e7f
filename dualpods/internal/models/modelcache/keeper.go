package modelcache

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// KeeperOf returns the cache that counts for a model of that name, with the progress of a
// node. It returns nil unless the cache requires copies in the launchers' stores.
func KeeperOf(all []v1alpha1.ClusterModelCache, name modelref.Name, node string) *dualpods.ModelKeeper {
	c := Of(all, name)
	if c == nil || c.Spec.OnMissing != v1alpha1.MissingFail && c.Spec.OnMissing != v1alpha1.MissingWait {
		return nil
	}
	return &dualpods.ModelKeeper{Name: c.Name, Waits: c.Spec.OnMissing == v1alpha1.MissingWait, Node: nodeProgress(c, node)}
}

// nodeProgress describes the progress of a node with the model of a cache, in tenths.
func nodeProgress(c *v1alpha1.ClusterModelCache, node string) string {
	all := c.Status.Nodes
	at := slices.IndexFunc(all, func(n v1alpha1.ModelNode) bool { return n.Node == node })
	if at < 0 {
		return unlistedProgress(c, node)
	}
	why := ""
	if all[at].Why != "" {
		why = ": " + all[at].Why
	}
	switch all[at].State {
	case v1alpha1.ModelNodeDownloading:
		return fmt.Sprintf("node %s is fetching its model and has %d %% of it%s", node, all[at].Percent/10*10, why)
	case v1alpha1.ModelNodeWaiting:
		return fmt.Sprintf("node %s has not started to fetch its model%s", node, why)
	case v1alpha1.ModelNodeFailed:
		return fmt.Sprintf("node %s failed to fetch its model%s", node, why)
	case v1alpha1.ModelNodeReady:
		return fmt.Sprintf("node %s reports the model as ready in the folder of the ModelCacheNodeGroups %s, but its launcher does not have it there", node, groupsOf(c))
	default:
		return fmt.Sprintf("node %s is removing its model%s", node, why)
	}
}

// unlistedProgress describes the progress of a node that the status of a cache does not list.
func unlistedProgress(c *v1alpha1.ClusterModelCache, node string) string {
	available := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case c.Status.ObservedGeneration < c.Generation:
		return fmt.Sprintf("node %s has not started to fetch its model", node)
	case available != nil && available.Reason == v1alpha1.ReasonNodeGroupMissing:
		return fmt.Sprintf("no launcher fetches its model on node %s: %s", node, available.Message)
	case c.Status.NodesLeftOut > 0:
		return fmt.Sprintf("the launcher of node %s does not have the whole model; the status of the cache has no room for the node's progress", node)
	default:
		return fmt.Sprintf("no launcher fetches its model on node %s, which is in none of the ModelCacheNodeGroups %s: add the node to one of them, or run the requester on a node of one", node, groupsOf(c))
	}
}

func groupsOf(c *v1alpha1.ClusterModelCache) string { return strings.Join(c.Spec.Groups(), ", ") }

// Changed returns the nodes on which a change of a cache affects requesters that wait for
// its model: all nodes, or some.
func Changed(before, after *v1alpha1.ClusterModelCache) (all bool, nodes []string) {
	ends := before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	if ends || before.Spec.OnMissing != after.Spec.OnMissing || before.Status.Revision != after.Status.Revision {
		return true, nil
	}
	if after.Spec.OnMissing != v1alpha1.MissingWait {
		return false, nil
	}
	if unlistedProgress(before, "") != unlistedProgress(after, "") {
		return true, nil
	}
	for _, n := range slices.Concat(before.Status.Nodes, after.Status.Nodes) {
		if nodeProgress(before, n.Node) != nodeProgress(after, n.Node) && !slices.Contains(nodes, n.Node) {
			nodes = append(nodes, n.Node)
		}
	}
	return false, nodes
}

// ReadKeeper returns a function that reads the cache that counts for a model; see
// [KeeperOf]. Caches are cluster-scoped, so a controller that watches only one namespace
// knows none.
func ReadKeeper(api client.Reader, only string) func(ctx context.Context, model modelref.Name, node string) (*dualpods.ModelKeeper, []podmeta.Problem) {
	return func(ctx context.Context, model modelref.Name, node string) (*dualpods.ModelKeeper, []podmeta.Problem) {
		if only != "" || model.Model == "" {
			return nil, nil
		}
		var caches v1alpha1.ClusterModelCacheList
		if err := api.List(ctx, &caches, client.UnsafeDisableDeepCopy); err != nil {
			return nil, []podmeta.Problem{{Kind: podmeta.Invalid, Field: "ClusterModelCaches", Message: "cannot be read: " + err.Error()}}
		}
		return KeeperOf(caches.Items, model, node), nil
	}
}
