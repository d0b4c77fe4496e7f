//go:build cluster && clusterlong

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// loseNode ends what Kubernetes has on a node, as where its machine is gone, and
// deletes the node. back has it come back, and returns when it can be used.
func (s *site) loseNode(number int) (back func()) {
	s.t.Helper()
	var starts []func() error
	for _, part := range []string{cluster.Kubelet, cluster.Proxy} {
		start, err := s.cluster.Stop(s.t.Context(), cluster.PartOf(number, part))
		require.NoError(s.t, err)
		starts = append(starts, start)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.NodeName(number)}}
	came := false
	back = func() {
		if came {
			return
		}
		came = true
		for _, start := range starts {
			require.NoError(s.t, start())
		}
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		s.eventually("the node is ready, with its GPUs", func() bool {
			if s.api.Get(ctx, client.ObjectKeyFromObject(node), node) != nil {
				return false
			}
			gpus := node.Status.Allocatable[podmeta.ResourceGPU]
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c.Status == corev1.ConditionTrue && gpus.Value() == int64(s.cluster.GPUs)
				}
			}
			return false
		})
	}
	s.t.Cleanup(back)
	require.NoError(s.t, s.api.Delete(s.t.Context(), node))
	return back
}

func TestADeletedNodeTakesItsPodsWithItAndIsUsedAgainWhenItComesBack(t *testing.T) {
	withoutNode(t, func(s *site) { // what Kubernetes does by itself in a minute
		for _, pod := range s.all() {
			s.delete(pod.Name, "--grace-period=0", "--force")
		}
	})
}

func TestKubernetesItselfCollectsThePodsOfADeletedNode(t *testing.T) { withoutNode(t, func(*site) {}) }

// all are the Pods of the namespace.
func (s *site) all() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns)))
	return list.Items
}

// withoutNode deletes a node with a requester that is served and one that waits
// for its model; collect has the Pods go that are left on it.
func withoutNode(t *testing.T, collect func(*site)) {
	s := newBareSite(t)
	s.addLauncher(2)
	const key = "example.com/model"
	s.start(server{app: "lost", node: 2, labels: map[string]string{key: "lost"}})
	s.served("lost", 1)
	s.eventually("its label is there", func() bool { return s.pod("lost").Labels[key] == "lost" })
	s.start(server{app: "slow", node: 2, args: []string{"--sim-load-time=1h"}})
	s.instance("launcher-node-2", "slow", "starting")
	back := s.loseNode(2)
	s.eventually("nothing of ours keeps the Pods, and none says that it serves", func() bool {
		for _, pod := range s.all() {
			if len(pod.Finalizers)+len(podmeta.BoundTo(&pod)) > 0 {
				return false
			}
			assert.NotContains(t, pod.Labels, key)
		}
		return true
	})
	collect(s)
	s.eventually("no Pod is left", func() bool { return len(s.all()) == 0 })
	back()
	s.addLauncher(2)
	pod := s.start(server{app: "lost", node: 2})
	served := s.served("lost", 1)[0]
	assert.Equal(t, pod.UID, served.UID)
	s.stillAnswers(served)
	records := s.records("launcher-node-2")
	require.Len(t, records, 1)
	assert.Equal(t, pod.UID, records[0].RequesterUID)
}
