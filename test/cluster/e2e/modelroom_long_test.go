//go:build cluster && clusterlong

package e2e

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// onNode is what the status of a cache says of a node.
func onNode(status *v1alpha1.ClusterModelCacheStatus, node int) v1alpha1.ModelNode {
	at := slices.IndexFunc(status.Nodes, func(n v1alpha1.ModelNode) bool { return n.Node == cluster.NodeName(node) })
	if at < 0 {
		return v1alpha1.ModelNode{}
	}
	return status.Nodes[at]
}

func TestCopyWithLRUIsEvictedUnlessItIsInUseAndComesBack(t *testing.T) {
	s := newModelSite(t, func(g *v1alpha1.ModelCacheNodeGroup) {
		limit := resource.MustParse("4Mi") // for one of the two
		g.Spec.StorageLimit = &limit
	})
	for name, size := range map[string]int{"spare": 2 << 20, "needed": 3 << 20} {
		s.hub.Put("org/"+name, hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"model.safetensors": bytes.Repeat([]byte(name[:1]), size)}})
	}
	s.allReady()
	spare := s.keepThis(&v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "spare"}, Spec: v1alpha1.ClusterModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/spare"}, NodeGroups: []string{s.group}, Retention: v1alpha1.RetentionLRU,
	}})
	s.told(spare.Name, "both nodes have it", everywhere)
	pod := s.start(server{app: "spare", node: 2})
	s.served("spare", 1)
	require.NoError(t, s.api.Delete(t.Context(), pod))
	s.gone("spare")
	launcher := s.poolPods()[cluster.NodeName(2)].Name
	asleep := s.instance(launcher, "spare", "sleeping")

	needed := s.keep("needed", "org/needed")
	status := s.told(needed.Name, "node 1 makes room for it, and node 2 cannot", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		return onNode(status, 1).State == v1alpha1.ModelNodeReady && onNode(status, 2).State == v1alpha1.ModelNodeFailed
	})
	assert.Contains(t, onNode(status, 2).Why, "these models stay: hf://org/spare (2.0 MiB), in use by instance "+asleep.InstanceID)
	assert.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionCapacityExceeded))
	gaveWay := func(node int) func(*v1alpha1.ClusterModelCacheStatus) bool {
		return func(status *v1alpha1.ClusterModelCacheStatus) bool {
			n := onNode(status, node)
			return n.State == v1alpha1.ModelNodeFailed && strings.Contains(n.Why, "no model is evicted for one with retention lru") && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionCapacityExceeded)
		}
	}
	status = s.told(spare.Name, "it has given way on node 1", gaveWay(1))
	assert.Equal(t, v1alpha1.ModelNodeReady, onNode(status, 2).State, "what is in use does not go")

	_, err := s.launcher(launcher).Delete(t.Context(), asleep.InstanceID)
	require.NoError(t, err)
	s.told(needed.Name, "both nodes have it", everywhere)
	s.told(spare.Name, "it has given way on node 2", gaveWay(2))
	require.NoError(t, s.api.Delete(t.Context(), needed))
	s.told(spare.Name, "it has come back", everywhere)

	s.hub.Seen()
	s.kubectl("patch", "cmc/spare", "--type=merge", "-p", `{"spec":{"retention":"Keep"}}`)
	s.eventually("each launcher has noted that its copy stays", func() bool {
		return !slices.ContainsFunc(slices.Concat(s.modelsOf(1), s.modelsOf(2)), func(m launcherapi.Model) bool { return len(m.LRUBy) > 0 })
	})
	assert.Empty(t, s.hub.Seen(), "nobody has asked the source")
}
