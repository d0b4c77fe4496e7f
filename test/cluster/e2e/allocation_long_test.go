//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

func TestWhileTheKubeletCannotBeAskedNothingIsBoundAndTheStatusSaysWhy(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.AllocationCheck.KubeletDir = "/var/lib/no-kubelet" })
	s.allReady()
	s.deploy(server{app: "waits", node: 1}, 1)
	s.waitsFor("waits", "cannot ask the kubelet at /var/lib/kubelet/pod-resources/kubelet.sock which devices Pods have")
	assert.Empty(t, s.records(s.poolPods()[cluster.NodeName(1)].Name))
	s.eventually("the folder is mended", func() bool {
		config := s.config()
		mended := config.DeepCopy()
		mended.Spec.AllocationCheck.KubeletDir = "/var/lib/kubelet"
		return s.api.Patch(t.Context(), mended, client.MergeFrom(config)) == nil
	})
	require.Equal(t, "waits", s.served("waits", 1)[0].Labels["app"])
	s.answers("waits")
}

func TestWhereNobodyAsksTheKubeletTheStatusSaysSoAndARequestersWordCounts(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.AllocationCheck.Mode = v1alpha1.AllocationCheckNone })
	s.allReady()
	s.configTold("the status says so", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAllocationsChecked, v1alpha1.ReasonRequesterOnly, metav1.ConditionFalse)
	})
	assert.Len(t, s.poolPods()[cluster.NodeName(1)].Spec.Containers, 1)
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
}
