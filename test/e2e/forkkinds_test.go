package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

// capabilities is a platform that asks which GPU it will use, as vLLM does while it is
// imported, and keeps the answer. With the second GPU it waits for a file.
const capabilities = `
import os, time

while os.environ.get("CUDA_VISIBLE_DEVICES") == "1" and not os.path.exists(%q):
    time.sleep(0.01)


class Platform:
    device_type = "cpu"
    capability = {"0": "9.0", "1": "8.9"}[os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]]

    def is_cpu(self):
        return True

current_platform = Platform()
print("CAPABILITY", Platform.capability, flush=True)
`

// On a node with two kinds of GPU, each kind has a preloader of its own, so that a
// forked engine has what its own GPU can do.
func TestEachKindOfGPUHasItsOwnPreloader(t *testing.T) {
	t.Parallel()
	library, err := nvmlLibrary()
	require.NoError(t, err)
	n := newForkNode(t, "--gpus", "nvml")
	_, err = simgpu.Create(n.SimFS, []simgpu.GPU{
		{UUID: GPU(0), Index: 0, Product: "NVIDIA H100 80GB HBM3", MemoryTotalBytes: 80 * gib},
		{UUID: GPU(1), Index: 1, Product: "NVIDIA L4", MemoryTotalBytes: 24 * gib},
	})
	require.NoError(t, err)
	n.env = append(n.env, "HOTSEAT_NVML_LIBRARY="+library)
	begin := filepath.Join(t.TempDir(), "begin")
	require.NoError(t, os.WriteFile(filepath.Join(n.site, "vllm", "platforms.py"), fmt.Appendf(nil, capabilities, begin), 0o600))
	n.Start()
	first := n.preloader()
	assert.Empty(t, first.Variables)

	spec := Spec("small", On(1))
	spec["start_method"] = "auto"
	small := n.Create("small", spec)
	assert.Contains(t, small.Reason, "waiting for a separate preloader for GPUs of the kind NVIDIA L4, which began to load at ")
	require.NoError(t, os.WriteFile(begin, nil, 0o600))
	small = n.Await("small", "awake")
	assert.Equal(t, "fork", small.StartedBy, small.Reason)
	assert.Contains(t, string(n.logFile(small)), "CAPABILITY 8.9\n")

	spec = Spec("big", On(0))
	spec["start_method"] = "fork"
	n.Create("big", spec)
	assert.Contains(t, string(n.logFile(n.Await("big", "awake"))), "CAPABILITY 9.0\n")

	var list launcherapi.PreloaderList
	n.Call("GET", "/v2/vllm/preloaders", nil).Into(t, &list)
	require.Len(t, list.Preloaders, 2)
	assert.Equal(t, first.PID, list.Preloaders[0].PID, "the first GPU's preloader serves the big one")
	assert.Equal(t, []string{"CUDA_VISIBLE_DEVICES"}, list.Preloaders[1].Variables)
	log, err := os.ReadFile(n.output)
	require.NoError(t, err)
	assert.Contains(t, string(log), "several kinds of GPU; each kind gets a preloader of its own")
}
