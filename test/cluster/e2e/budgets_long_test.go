//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

func TestLoweredBudgetEvictsSleepersWhileARequesterIsBound(t *testing.T) {
	s := newPool(t, func(config *v1alpha1.LauncherConfig) {
		config.Spec.Population.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)}
	})
	s.onOneGPU()
	for _, app := range []string{"first", "second"} {
		s.deploy(server{app: app, node: 1}, 1)
		s.served(app, 1)
		s.scale(app, 0)
		s.gone(app)
	}
	s.deploy(server{app: "third", node: 1}, 1)
	pod := s.served("third", 1)[0]
	launcherPod := s.poolPods()[cluster.NodeName(1)]
	launcher := s.launcher(launcherPod.Name)
	require.Len(t, s.instances(launcher), 3)

	s.eventually("the budget is lowered", func() bool { // the controller writes the status meanwhile
		config := s.config()
		changed := config.DeepCopy()
		changed.Spec.Budgets.MaxSleepersPerGPU = new(int32(1))
		return s.api.Patch(t.Context(), changed, client.MergeFrom(config)) == nil
	})
	s.eventually("the sleeper that was used least recently is gone", func() bool { return len(s.instances(launcher)) == 2 })
	assert.Equal(t, "sleeping", s.instances(launcher)["org/second"].State)
	assert.Equal(t, pod.UID, s.served("third", 1)[0].UID)
	assert.Equal(t, launcherPod.UID, s.poolPods()[cluster.NodeName(1)].UID, "the launcher is the same")
}
