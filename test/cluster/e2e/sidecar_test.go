//go:build cluster

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSidecarRequesterIsServed applies the example of a requester whose program runs in a
// sidecar. The kubelet gives the GPU to the sidecar, and says so; the Pod is ready by the
// sidecar's probe; a request is answered; the model sleeps once the requester is deleted.
func TestSidecarRequesterIsServed(t *testing.T) {
	s := newPool(t, nil)
	s.apply("examples/dual-pods/sidecar.yaml")
	s.scale("model-d", 1)
	pod := s.served("model-d", 1)[0]
	s.answers("model-d")
	require.Len(t, pod.Status.InitContainerStatuses, 1)
	// The controller has compared the kubelet's word about the sidecar with the program's.
	assert.True(t, pod.Status.InitContainerStatuses[0].Ready, "its probe succeeds")
	assert.Empty(t, pod.Spec.ReadinessGates)

	launcher := s.poolPods()[pod.Spec.NodeName].Name
	records := s.records(launcher)
	require.Len(t, records, 1)
	assert.Equal(t, pod.UID, records[0].RequesterUID)
	awake := s.instance(launcher, "model-d", "awake")
	assert.Equal(t, records[0].GPUs, awake.GPUUUIDs)
	for _, c := range s.pod(pod.Name).Status.ContainerStatuses {
		assert.NotNil(t, c.State.Running, "%s waits", c.Name)
	}

	s.scale("model-d", 0)
	s.gone("model-d")
	assert.Equal(t, awake.PID, s.instance(launcher, "model-d", "sleeping").PID)
	s.free(launcher)
	s.scale("model-d", 1)
	again := s.served("model-d", 1)[0]
	s.answers("model-d")
	assert.NotEqual(t, pod.UID, again.UID)
}
