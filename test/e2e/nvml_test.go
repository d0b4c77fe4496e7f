package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
)

// The launcher with NVIDIA's management library, which the stand-in for it
// answers from the same folder of simulated GPUs that the engines charge.

var nvmlLibrary = sync.OnceValues(func() (string, error) {
	return fakenvml.Build(filepath.Dir(bin.launcher))
})

const gib = 1 << 30

// nvmlNode makes a node whose launcher finds its GPUs by NVML. It does not run
// yet.
func nvmlNode(t *testing.T, flags ...string) *Node {
	t.Helper()
	library, err := nvmlLibrary()
	require.NoError(t, err)
	n := NewStoppedNode(t, append([]string{"--gpus", "nvml"}, flags...)...)
	var gpus []simgpu.GPU
	for k := range 2 {
		gpus = append(gpus, simgpu.GPU{UUID: GPU(k), Index: k, Product: "NVIDIA H100 80GB HBM3", MemoryTotalBytes: 80 * gib})
	}
	_, err = simgpu.Create(n.SimFS, gpus)
	require.NoError(t, err)
	n.env = append(n.env, "HOTSEAT_NVML_LIBRARY="+library)
	return n
}

func (n *Node) gpus() launcherapi.GPUList {
	n.t.Helper()
	var list launcherapi.GPUList
	n.Call("GET", "/v2/gpus", nil).Into(n.t, &list)
	return list
}

// fault makes a simulated GPU ill, until the returned call.
func fault(t *testing.T, n *Node, gpu int, f simgpu.Fault) (heal func()) {
	t.Helper()
	path := filepath.Join(n.SimFS, GPU(gpu), string(f))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return func() { require.NoError(t, os.Remove(path)) }
}

func TestTheGPUsThatNVMLListsAreShownWithTheirMemoryAndHolders(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t)
	n.Start()
	list := n.gpus()
	assert.Equal(t, "nvml", list.Source)
	require.Len(t, list.GPUs, 2)
	for k, g := range list.GPUs {
		assert.Equal(t, GPU(k), g.UUID)
		assert.Equal(t, k, g.Index)
		assert.Equal(t, "NVIDIA H100 80GB HBM3", g.Product)
		assert.EqualValues(t, 80*gib, g.MemoryTotalBytes)
		assert.EqualValues(t, 80*gib, g.MemoryFreeBytes)
		assert.Zero(t, g.MemoryUsedBytes)
		assert.True(t, g.Healthy)
	}

	a := n.Awake("a", On(0), "--gpu-memory-utilization", "0.5")
	assert.Contains(t, cmdline(a.PID), "--enable-sleep-mode", "real GPUs can sleep")
	visible, _ := variable(t, a.PID, "CUDA_VISIBLE_DEVICES")
	assert.Equal(t, "0", visible)
	g := n.gpus().GPUs[0]
	assert.EqualValues(t, 40*gib, g.MemoryUsedBytes)
	assert.EqualValues(t, 40*gib, g.MemoryFreeBytes)
	assert.Equal(t, []launcherapi.GPUHolder{{InstanceID: "a", State: "awake", Bytes: 40 * gib, Measured: true}}, g.Awake)
	assert.Empty(t, g.Sleepers)
	assert.Zero(t, g.ForeignBytes)

	n.Sleep("a", 1)
	g = n.gpus().GPUs[0]
	residue := heldOn(t, n, 0)
	assert.Equal(t, residue, g.MemoryUsedBytes)
	assert.Equal(t, []launcherapi.GPUHolder{{InstanceID: "a", State: "sleeping", Bytes: residue, Measured: true}}, g.Sleepers)
	assert.Empty(t, g.Awake)

	giveBack := hold(t, n, 1, 3*gib)
	defer giveBack()
	assert.EqualValues(t, 3*gib, n.gpus().GPUs[1].ForeignBytes, "what a stranger holds")
	metrics := string(n.Call("GET", "/metrics", nil).Body)
	assert.Contains(t, metrics, fmt.Sprintf("hotseat_gpu_memory_bytes{gpu=%q,holder=\"_foreign\",state=\"\"} 3.221225472e+09", GPU(1)))
}

func TestSwapsByTheMemoryThatNVMLTells(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t)
	n.Start()
	a := n.Awake("a", On(0))
	says := n.Ask(a, "who are you?")
	n.SwapDone(toNew("b", On(0)))
	g := n.gpus().GPUs[0]
	require.Len(t, g.Awake, 1)
	require.Len(t, g.Sleepers, 1)
	assert.Equal(t, "b", g.Awake[0].InstanceID)
	assert.Equal(t, g.MemoryUsedBytes, g.Awake[0].Bytes+g.Sleepers[0].Bytes)
	n.SwapDone(to("a"))
	assert.Equal(t, says, n.Ask(n.Get("a"), "who are you?"))

	giveBack := hold(t, n, 1, 60*gib)
	defer giveBack()
	p := n.Call("PUT", "/v2/vllm/instances/c", Spec("c", On(1), "--gpu-memory-utilization", "0.5")).Problem(t)
	assert.Equal(t, 409, p.Status)
	require.NotNil(t, p.Fit)
	assert.EqualValues(t, 40*gib, p.Fit.Needed)
	assert.EqualValues(t, 20*gib, p.Fit.Available)
	assert.EqualValues(t, 60*gib, p.Fit.Foreign)

	n.Kill9()
	n.Start()
	n.SwapDone(to("b"))
	n.Delete("a")
	n.Delete("b")
	assert.Zero(t, n.gpus().GPUs[0].MemoryUsedBytes)
}

func TestAMemoryThatTheDriverDoesNotSplitUpIsStillSwapped(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t)
	n.Start()
	require.NoError(t, os.WriteFile(filepath.Join(n.SimFS, GPU(0), "no_process_memory"), nil, 0o600))
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	n.SwapDone(to("a"))
	n.Ask(n.Get("a"), "hello")
	assert.NotZero(t, n.gpus().GPUs[0].MemoryUsedBytes)
}

func TestAnIllGPUIsShownWithTheReason(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t)
	n.Start()
	for f, reason := range map[simgpu.Fault]string{
		simgpu.FaultECC:     "uncorrectable",
		simgpu.FaultPending: "reset",
		simgpu.FaultRemap:   "no spare memory rows",
		simgpu.FaultLost:    "fallen off the bus",
	} {
		heal := fault(t, n, 1, f)
		gpus := n.gpus().GPUs
		assert.True(t, gpus[0].Healthy, "%s is the other's", f)
		assert.False(t, gpus[1].Healthy, f)
		assert.Contains(t, gpus[1].HealthReason, reason, f)
		heal()
		assert.True(t, n.gpus().GPUs[1].Healthy, f)
	}
	// One that is lost can be asked nothing; the others work on.
	heal := fault(t, n, 1, simgpu.FaultLost)
	defer heal()
	n.SwapDone(toNew("a", On(0)))
	n.Ask(n.Get("a"), "hello")
	n.Call("GET", "/metrics", nil)
}

func TestAGPUWhoseDriverHangsHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t, "--memory-timeout", "2s")
	n.Start()
	n.Awake("b", On(0))
	a := n.Awake("a", On(1))
	heal := fault(t, n, 1, "hang")

	gpus := n.gpus().GPUs
	assert.True(t, gpus[0].Healthy)
	assert.False(t, gpus[1].Healthy)
	assert.Contains(t, gpus[1].HealthReason, "does not answer")
	assert.NotZero(t, gpus[0].MemoryUsedBytes)
	before := n.threads()
	for range 50 {
		n.gpus()
		require.Equal(t, 200, n.Call("GET", "/metrics", nil).Status)
	}
	assert.Less(t, n.threads(), before+10, "a thread is lost with each call")

	n.SwapDone(toNew("c", On(0)))
	n.Awake("d", On(0), "--gpu-memory-utilization", "0.02")
	assert.Contains(t, n.Delete("a").Reason, "cannot tell whether the memory of GPU "+GPU(1)+" has come back")
	assert.NoDirExists(t, fmt.Sprint("/proc/", a.PID))
	assert.Zero(t, n.Stop())

	n.Start()
	gpus = n.gpus().GPUs
	require.Len(t, gpus, 1)
	assert.Equal(t, GPU(0), gpus[0].UUID)
	assert.Contains(t, n.Log(), "the GPUs' driver does not answer")
	n.Awake("e", On(0))
	heal()
}

func TestModelsServeOnWhileTheDriverAnswersForNoGPU(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t, "--memory-timeout", "1s")
	n.Start()
	a := n.Awake("a", On(0), "--gpu-memory-utilization", "0.5")
	var heal []func()
	for k := range 2 {
		heal = append(heal, fault(t, n, k, "hang"))
	}
	n.Kill9()
	n.Start()
	n.Await("a", "awake")
	again := n.Get("a")
	assert.Equal(t, a.PID, again.PID)
	n.Ask(again, "through the launcher, which is the proxy")
	gpus := n.gpus().GPUs
	require.Len(t, gpus, 2)
	for _, g := range gpus {
		assert.False(t, g.Healthy)
		assert.Contains(t, g.HealthReason, "does not answer")
	}
	failed := n.Call("POST", "/v2/vllm/swap", toNew("b", On(1)))
	assert.Equal(t, 502, failed.Status)
	assert.Contains(t, string(failed.Body), "does not answer")

	for _, h := range heal {
		h()
	}
	require.Eventually(t, func() bool { return n.gpus().GPUs[1].Healthy }, patience, 10*time.Millisecond)
	n.SwapDone(toNew("b", On(1)))
}

func TestALauncherIsLimitedToSomeGPUs(t *testing.T) {
	t.Parallel()
	n := nvmlNode(t)
	n.env = append(n.env, "CUDA_VISIBLE_DEVICES=1")
	n.Start()
	require.Len(t, n.gpus().GPUs, 1)
	a := n.Awake("a", On(1))
	visible, _ := variable(t, a.PID, "CUDA_VISIBLE_DEVICES")
	assert.Equal(t, "1", visible)
	p := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(0))).Problem(t)
	assert.Equal(t, 422, p.Status)

	// An instance on a GPU that is not to be used any more lives on.
	n.Kill9()
	n.args = append(n.args, "--visible-gpus", "0")
	n.Start()
	assert.Equal(t, GPU(0), n.gpus().GPUs[0].UUID)
	a2 := n.Await("a", "awake")
	assert.Equal(t, a.PID, a2.PID)
	n.Ask(a2, "hello")
	n.Sleep("a", 1)
	n.Wake("a")
	n.Ask(n.Get("a"), "hello")
	assert.Empty(t, n.Delete("a").Reason)
	n.Awake("b", On(0))
}

// threads is how many threads the launcher has.
func (n *Node) threads() int {
	n.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.PID()))
	require.NoError(n.t, err)
	return len(all)
}

func TestWithoutADriverNVMLIsRefusedAndAutoSimulatesLoudly(t *testing.T) {
	t.Parallel()
	const missing = "HOTSEAT_NVML_LIBRARY=/no/such/libnvidia-ml.so.1"
	line := refused(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), missing) },
		"--gpus", "nvml", "--state-dir", t.TempDir())
	assert.Contains(t, line, "/no/such/libnvidia-ml.so.1")
	assert.Contains(t, line, "--gpus simulated:2", "it names a remedy")

	n := nvmlNode(t)
	n.env = append(n.env, missing)
	n.args = append(n.args, "--gpus", "auto")
	n.Start()
	assert.Equal(t, "simulated", n.gpus().Source)
	assert.Contains(t, n.Log(), "SIMULATING GPUs")

	driven := nvmlNode(t, "--gpus", "auto")
	driven.Start()
	assert.Equal(t, "nvml", driven.gpus().Source)
}
