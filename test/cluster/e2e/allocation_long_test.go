//go:build cluster && clusterlong

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// installed installs the chart with some values until the end of the test.
func (s *site) installed(values ...string) {
	s.t.Helper()
	s.t.Cleanup(func() { assert.NoError(s.t, s.install(context.Background())) })
	require.NoError(s.t, s.install(s.t.Context(), values...))
}

func TestWhileTheKubeletCannotBeAskedNothingIsBoundAndTheStatusSaysWhy(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.AllocationCheck.KubeletDir = "/var/lib/another" })
	s.allReady()
	s.configTold("the field is not used", func(status v1alpha1.LauncherConfigStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAllocationsChecked)
		return c != nil && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "agent.kubeletDir")
	})
	s.installed("agent.kubeletDir=/var/lib/no-kubelet/")
	s.deploy(server{app: "waits", node: 1}, 1)
	s.waitsFor("waits", "cannot ask the kubelet at /var/lib/kubelet/pod-resources/kubelet.sock which devices Pods have")
	assert.Empty(t, s.records(s.poolPods()[cluster.NodeName(1)].Name))
	require.NoError(t, s.install(t.Context()))
	require.Equal(t, "waits", s.served("waits", 1)[0].Labels["app"])
	s.answers("waits")
}

func TestOnANodeWithoutAgentALiarIsNotBelieved(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.installed("agent.nodeSelector.hotseat\\.dev/agent=none")
	liar := server{app: "liar", node: 1, claims: s.cluster.UUIDs(1)[0]}
	s.deploy(liar, 1)
	s.waitsFor("liar", "node node-1 has no Pod of the DaemonSet hotseat-agent in namespace "+system)
	assert.Empty(t, s.records(s.poolPods()[cluster.NodeName(1)].Name))
	require.NoError(t, s.install(t.Context()))
	s.claim(liar, "")
	s.served("liar", 1)
	s.answers("liar")
}

func TestWhereNobodyAsksTheKubeletTheStatusSaysSoAndARequestersWordCounts(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.AllocationCheck.Mode = v1alpha1.AllocationCheckNone })
	s.allReady()
	s.configTold("the status says so", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAllocationsChecked, v1alpha1.ReasonRequesterOnly, metav1.ConditionFalse)
	})
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
}
