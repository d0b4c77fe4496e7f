//go:build cluster && clusterlong

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// autoscaled is a Model in mode External with a standby, and its HorizontalPodAutoscaler.
const autoscaled = `
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: e2e-rare}
spec:
  launcherConfigName: simulated
  limits: {nvidia.com/gpu: 1}
  nodeSelector: {example.com/gpu: rare}
---
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  args: [--gpu-memory-utilization=0.4, --sim-token-time=100ms, --sim-tokens=4000]
  autoscaling: {mode: External}
specs:
- {name: a, resourceProfile: e2e-gpu, maxReplicas: 1}
- {name: rare, resourceProfile: e2e-rare, unschedulableSeconds: 2}
- {name: b, resourceProfile: e2e-gpu}
- {name: standby, resourceProfile: e2e-processor, args: [], minReplicas: 1, targetRequests: 0}
`

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llama}
spec:
  scaleTargetRef: {apiVersion: hotseat.dev/v1alpha1, kind: Model, name: llama}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - {type: Pods, pods: {metric: {name: "vllm:num_requests_running"}, target: {type: AverageValue, averageValue: "4"}}}
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
`

func TestAutoscalerOfAModelSaysTheTotal(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	s.customMetrics()
	s.declare(autoscaled)
	s.serves("llama", "standby (1)") // at zero
	s.kubectl("scale", "mdl/llama", "--replicas=1")
	s.serves("llama", "a (1)")
	s.eventually("the standby rests", func() bool { return len(s.modelPods("llama")) == 1 })
	_, err := s.cluster.Kubectl(t.Context(), strings.NewReader(autoscaler), "-n", s.ns, "apply", "-f", "-")
	require.NoError(t, err)

	var ends []func() error
	pod := s.modelPods("llama")[0]
	for range 6 { // of which a replica should have 4
		conn, _ := s.stream(pod.Status.PodIP, "llama", 4000)
		ends = append(ends, conn.Close)
	}
	s.serves("llama", "a (1), b (1)")
	assert.Equal(t, "Unschedulable", s.failure("llama", "rare").Reason, "what there is not goes to the next entry")
	assert.Equal(t, "2", s.kubectl("get", "mdl/llama", "-o=jsonpath={.spec.replicas}"), "the autoscaler has asked")
	assert.Zero(t, s.replicasOf("llama-standby"))
	for _, end := range ends {
		require.NoError(t, end())
	}
	s.serves("llama", "a (1)")
	assert.Equal(t, "1", s.kubectl("get", "mdl/llama", "-o=jsonpath={.spec.replicas}"))
	s.kubectl("delete", "hpa/llama")
	s.kubectl("scale", "mdl/llama", "--replicas=0")
	s.serves("llama", "standby (1)")
	s.eventually("the others are gone", func() bool { return len(s.modelPods("llama")) == 1 })
}
