//go:build cluster && clusterlong

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// customMetrics has the cluster serve the custom metrics API until the test is over.
func (s *site) customMetrics() {
	s.t.Helper()
	program := filepath.Join(s.t.TempDir(), "adapter")
	build := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "./test/cluster/adapter")
	build.Dir, build.Env = root("."), append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	require.NoError(s.t, s.cluster.LoadImage(s.t.Context(), "hotseat.local/adapter:dev", images.Image{Files: map[string]string{"/adapter": program}}))
	const manifest = "test/cluster/e2e/testdata/adapter.yaml"
	s.t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "delete", "--ignore-not-found", "--wait=false", "-f", root(manifest))
		assert.NoError(s.t, err)
	})
	require.NoError(s.t, s.applyFile(s.t.Context(), "", root(manifest)))
	_, err = s.cluster.Kubectl(s.t.Context(), nil, "wait", "--for=condition=Available", "apiservice/v1beta2.custom.metrics.k8s.io", "--timeout="+patience.Wait().String())
	require.NoError(s.t, err)
}

// pooled waits until the headless Service has exactly the ready requesters, n of them.
func (s *site) pooled(n int) []corev1.Pod {
	s.t.Helper()
	pods := s.served("model-c", n)
	var want []string
	for _, p := range pods {
		want = append(want, p.Status.PodIP)
	}
	s.eventually("the pool has exactly the requesters that serve", func() bool {
		got := s.endpoints("model-c-pool")
		return slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)))
	})
	return pods
}

func TestAnAutoscalerFollowsWhatIsInFlightAndThePoolHasThoseThatServe(t *testing.T) {
	s := newPool(t, nil)
	s.customMetrics()
	s.allReady()
	s.apply("examples/dual-pods/config.yaml")
	s.apply("examples/dual-pods/inferencepool.yaml")
	s.edit("model-c", `{"spec":{"modelServerConfig":{"args":["org/model-c","--gpu-memory-utilization=0.4","--sim-token-time=100ms","--sim-tokens=4000"]}}}`)
	assert.Empty(t, s.endpoints("model-c-pool"))
	s.scale("model-c", 1)
	pod := s.pooled(1)[0]
	s.answers("model-c")
	s.apply("examples/dual-pods/hpa.yaml")
	s.kubectl("patch", "hpa/model-c", "--type=merge", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)

	var ends []func() error
	for range 6 { // of which one requester should have 4
		conn, _ := s.stream(pod.Status.PodIP, "org/model-c", 4000)
		ends = append(ends, conn.Close)
	}
	s.pooled(2)
	for _, end := range ends {
		require.NoError(t, end())
	}
	s.pooled(1)
	s.configTold("the model of the other one sleeps", func(status v1alpha1.LauncherConfigStatus) bool { return status.Awake == 1 && status.Asleep == 1 })
}

// TestTwoModelsTakeTurnsOnFourGPUsAsTheirAutoscalersSay has the first model take three
// GPUs, then the second, then the first again. At least one of the two GPUs that are
// free then was the first model's before, whichever requesters were deleted meanwhile.
func TestTwoModelsTakeTurnsOnFourGPUsAsTheirAutoscalersSay(t *testing.T) {
	s := newPool(t, nil)
	s.customMetrics()
	s.allReady()
	s.apply("examples/placement/two-models.yaml")
	for _, model := range []string{"day", "night"} {
		s.edit(model, `{"spec":{"modelServerConfig":{"args":["org/`+model+`","--gpu-memory-utilization=0.4","--sim-token-time=100ms","--sim-tokens=4000"]}}}`)
		s.kubectl("patch", "hpa/"+model, "--type=merge", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	}
	var launchers []string
	for _, pod := range s.poolPods() {
		launchers = append(launchers, pod.Name)
	}
	// busy has a model asked for three times what one requester should have, until the end.
	busy := func(model string) (end func()) {
		pod := s.served(model, 1)[0]
		var ends []func() error
		for range 12 {
			conn, _ := s.stream(pod.Status.PodIP, "org/"+model, 4000)
			ends = append(ends, conn.Close)
		}
		return func() {
			for _, end := range ends {
				require.NoError(t, end())
			}
		}
	}
	s.served("night", 1)
	end := busy("day")
	s.served("day", 3)
	before := s.pids("day", launchers, "awake")
	end()
	s.served("day", 1)
	end = busy("night")
	s.served("night", 3)
	end()
	s.served("night", 1)
	end = busy("day")
	defer end()
	s.served("day", 3)
	again := 0
	for _, pid := range s.pids("day", launchers, "awake") {
		if slices.Contains(before, pid) {
			again++
		}
	}
	assert.GreaterOrEqual(t, again, 2, "the one that stayed, and one that was woken at least")
	for _, pod := range s.pods("day") {
		_, why := s.placed(pod.Name)
		assert.NotEmpty(t, why.Why)
	}
}
