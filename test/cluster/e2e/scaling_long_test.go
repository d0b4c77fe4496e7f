//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestAutoscalerScalesTheDecodeRole(t *testing.T) {
	s := newPool(t, nil)
	s.customMetrics()
	s.apply(exampleGroups)
	s.edit("llama-decode", `{"spec":{"modelServerConfig":{"args":["org/llama","--gpu-memory-utilization=0.4","--sim-token-time=100ms","--sim-tokens=4000"]}}}`)
	s.runs("llama", 1)
	s.kubectl("patch", "ms/llama", "--type=json", `-p=[{"op": "add", "path": "/spec/template/roles/1/scaling", "value": {"mode": "External"}}]`)
	s.apply("examples/groups/hpa-decode.yaml")
	s.kubectl("patch", "hpa/llama-decode", "--type=merge", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	decode := func(n int32) {
		s.eventually("the group runs with the decode replicas", func() bool {
			groups := s.modelServing("llama").Status.Groups
			return len(groups) == 1 && groups[0].State == v1alpha1.GroupRunning && groups[0].RoleReplicas["decode"] == n
		})
	}
	decode(1)
	pod := s.pod("llama-0-decode-0-0")
	var ends []func() error
	for range 6 { // of which one replica should have 4
		conn, _ := s.stream(pod.Status.PodIP, "org/llama", 4000)
		ends = append(ends, conn.Close)
	}
	decode(2)
	for _, end := range ends {
		require.NoError(t, end())
	}
	decode(1)
}
