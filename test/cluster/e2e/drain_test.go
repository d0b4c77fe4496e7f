//go:build cluster

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestANodeIsDrainedWhileAModelServesAndTheModelWakesThereAfterwards(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) {
		c.Spec.Population.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)}
	})
	s.onOneGPU() // so that the one who comes after has the same GPU
	s.deploy(server{app: "talker", node: 1}, 1)
	first := s.served("talker", 1)[0]
	launcher := s.pod(s.launcherOf("simulated"))
	was := s.instances(s.launcher(launcher.Name))["org/talker"]

	s.t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "uncordon", cluster.NodeName(1))
		assert.NoError(t, err)
	})
	s.kubectl("drain", cluster.NodeName(1), "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=talker", "--timeout="+patience.Wait().String())
	s.eventually("the one who comes after waits for a node", func() bool {
		pods := s.pods("talker")
		if len(pods) != 1 || pods[0].UID == first.UID || len(pods[0].Status.Conditions) == 0 {
			return false
		}
		c := pods[0].Status.Conditions[0]
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && pods[0].Spec.NodeName == ""
	})
	assert.Equal(t, launcher.UID, s.pod(launcher.Name).UID, "the launcher stays, as every Pod of a DaemonSet")
	assert.Empty(t, s.records(launcher.Name), "nobody is bound to it")
	sleeps := s.instances(s.launcher(launcher.Name))["org/talker"]
	assert.Equal(t, "sleeping", sleeps.State)

	s.kubectl("uncordon", cluster.NodeName(1))
	s.served("talker", 1)
	s.answers("talker")
	again := s.instances(s.launcher(launcher.Name))["org/talker"]
	require.Equal(t, was.InstanceID, again.InstanceID)
	assert.Equal(t, was.PID, again.PID, "it was woken, and not started")
}

// launcherOf waits until the launcher of a LauncherConfig is ready on the first
// node, and names it.
func (s *site) launcherOf(config string) string {
	s.t.Helper()
	var name string
	s.eventually("the launcher of "+config+" is ready", func() bool {
		var list corev1.PodList
		if err := s.api.List(s.t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelLauncherConfig: config}); err != nil {
			return false
		}
		for _, p := range list.Items {
			name = p.Name
			if readyPod(&p) {
				return true
			}
		}
		return false
	})
	return name
}
