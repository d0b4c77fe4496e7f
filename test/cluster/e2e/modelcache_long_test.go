//go:build cluster && clusterlong

package e2e

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// weightsSent is how many bytes of weights the hub has sent.
func (s *modelSite) weightsSent() (sum int64) {
	for _, r := range s.hub.Seen() {
		if r.Content {
			sum += r.Sent
		}
	}
	return sum
}

// empty takes away all that a node has in the folder of the group.
func (s *modelSite) empty(node int) {
	s.t.Helper()
	cmd, err := s.cluster.InNode(s.t.Context(), node, "rm", "-rf", "/var/lib/hotseat/"+s.ns)
	require.NoError(s.t, err)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

func TestANodeThatDiesWhileItFetchesLeavesTheStatusAndFetchesAnewWhenItComesBackEmpty(t *testing.T) {
	s := newModelSite(t, func(g *v1alpha1.ModelCacheNodeGroup) {
		slow := resource.MustParse("1Mi")
		g.Spec.PerNode.BytesPerSecond = &slow
	})
	const size = 4 << 20
	s.hub.Put("org/m", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("w"), size)}})
	s.hub.Put("org/other", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}")}})
	s.allReady()
	other := s.keep("other", "org/other")
	s.told(other.Name, "both nodes have it", everywhere)
	c := s.keep("dies", "org/m")
	s.told(c.Name, "node 2 fetches", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		for _, n := range status.Nodes {
			if n.Node == cluster.NodeName(2) && n.State == v1alpha1.ModelNodeDownloading {
				return true
			}
		}
		return false
	})
	lost := s.poolPods()[cluster.NodeName(2)]
	back := s.loseNode(2)
	s.told(c.Name, "the node that is gone counts no more", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		return status.Progress == "1/1" && len(status.Nodes) == 1 && status.Nodes[0].Node == cluster.NodeName(1)
	})
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	stale := other.DeepCopy()
	stale.Status.Nodes[0].InUseBy = []string{"an instance that has ended long ago"}
	require.NoError(t, s.api.Status().Patch(t.Context(), stale, client.MergeFrom(other)))
	require.NoError(t, s.api.Delete(t.Context(), other), "a user of before keeps nobody from it")
	s.eventually("a cache is deleted that the node that is gone has had", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	})
	s.delete(lost.Name, "--grace-period=0", "--force") // what Kubernetes does by itself in a minute
	s.empty(2)
	back()
	status := s.told(c.Name, "both nodes have it", everywhere)
	assert.EqualValues(t, 2, status.Desired)
	for node := range 2 {
		models := s.modelsOf(node + 1)
		require.Len(t, models, 1)
		assert.Equal(t, launcherapi.ModelReady, models[0].State)
		var n corev1.Node
		s.eventually("the node has the model's label", func() bool {
			require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: cluster.NodeName(node + 1)}, &n))
			return n.Labels[podmeta.ModelLabel(c.Name)] == podmeta.ModelReady
		})
	}
	assert.LessOrEqual(t, s.weightsSent(), int64(3*size), "what node 1 has was fetched once, and of node 2 what it had is gone")
}

func TestAControllerThatIsKilledAgainAndAgainHasNothingFetchedTwiceAndLeavesNothing(t *testing.T) {
	s := newModelSite(t, func(g *v1alpha1.ModelCacheNodeGroup) {
		slow := resource.MustParse("2Mi")
		g.Spec.PerNode.BytesPerSecond = &slow
	})
	const size = 6 << 20
	s.hub.Put("org/m", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("w"), size)}})
	s.allReady()
	crashing := s.crashing()
	// killing has a controller killed at another time of its life each time, until that is
	// so; the last one goes on.
	killing := func(what string, so func() bool) {
		t.Helper()
		for lives := 1; !so(); lives++ {
			require.Less(t, lives, 60, "%s", what)
			crashing.run("")
			time.Sleep(time.Duration(lives%12) * 250 * time.Millisecond)
			crashing.stop()
		}
		crashing.run("")
	}
	c := s.keep("killed", "org/m")
	killing("both nodes fetch", func() bool { return s.weightsSent() > size/2 })
	killing("both nodes have it", func() bool {
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(c), c))
		return everywhere(&c.Status)
	})
	assert.LessOrEqual(t, s.weightsSent(), int64(2*size), "each node has fetched it once")
	require.NoError(t, s.api.Delete(t.Context(), c))
	killing("it is deleted", func() bool { return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(c), c)) })
	for node := range 2 {
		assert.Empty(t, s.modelsOf(node+1))
		s.eventually("no node has the model's label", func() bool {
			var n corev1.Node
			require.NoError(t, s.api.Get(context.Background(), client.ObjectKey{Name: cluster.NodeName(node + 1)}, &n))
			_, has := n.Labels[podmeta.ModelLabel(c.Name)]
			return !has
		})
	}
}

func TestACacheThatIsMadeAfterTheServersOfItsModelDisturbsNoneAndServesTheNext(t *testing.T) {
	s := newModelSite(t, nil)
	s.hub.Put("org/late", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}")}})
	s.allReady()
	s.start(server{app: "late", node: 1})
	pod := s.shown("late")
	i := s.instance(s.status(pod.Name).Launcher, "late", "awake")
	assert.Equal(t, launcherapi.ModelFromSource, i.ModelFrom)
	c := s.keep("late", "org/late")
	s.told(c.Name, "both nodes have it", everywhere)
	s.stillAnswers(pod)
	now := s.instance(s.status(pod.Name).Launcher, "late", "awake")
	assert.Equal(t, i.PID, now.PID)
	assert.Equal(t, launcherapi.ModelFromSource, now.ModelFrom)
	require.NoError(t, s.api.Delete(t.Context(), &pod))
	s.gone("late")
	s.start(server{app: "late", node: 2})
	next := s.shown("late")
	assert.Equal(t, launcherapi.ModelFromCache, s.instance(s.status(next.Name).Launcher, "late", "awake").ModelFrom)
	require.NoError(t, s.api.Delete(t.Context(), &next))
	s.gone("late")
	s.kubectl("delete", "lcfg/simulated") // what sleeps goes with its launcher, and its lease with both
}
