package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

func TestAnEngineChargesItsGPUsAndGivesBackAllButAResidueAsleep(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 3)
	p := launch(t, setup{
		args: []string{"m", "-tp", "2", "--gpu-memory-utilization", "0.5", "--sim-residue=2GiB", "--enable-sleep-mode"},
		gpus: dir.Path(), env: []string{"CUDA_VISIBLE_DEVICES=2,GPU-0"}, dev: true,
	}).ready()
	check := func(first, second uint64) {
		t.Helper()
		require.Equal(t, first, used(t, dir, "GPU-2"))
		require.Zero(t, used(t, dir, "GPU-1"))
		require.Equal(t, second, used(t, dir, "GPU-0"))
	}
	check(40*gib, 40*gib)
	for _, level := range []string{"1", "2"} {
		p.ok("POST", "/sleep?level="+level, "")
		check(2*gib, 2*gib)
		p.ok("POST", "/wake_up?tags=weights", "")
		check(21*gib, 21*gib)
		p.ok("POST", "/wake_up?tags=kv_cache", "")
		check(40*gib, 40*gib)
	}
	holders, err := dir.Holders("GPU-2")
	require.NoError(t, err)
	require.Equal(t, p.find("VLLM::Worker_TP0"), holders[0].PID, "local rank 0 has the first visible device")
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, p.exit())
	check(0, 0)
}

func TestAnEngineThatFindsTooLittleFreeMemoryFailsAsVLLMDoes(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	launch(t, setup{args: []string{"first", "--gpu-memory-utilization=0.3"}, gpus: dir.Path()}).ready()
	p := launch(t, setup{args: []string{"second"}, gpus: dir.Path()})
	require.Equal(t, 1, p.exit())
	require.Contains(t, p.text(), "ValueError: Free memory on device cuda:0 (56.0/80.0 GiB) on startup is less than desired GPU memory utilization (0.92, 73.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.")
	require.Equal(t, uint64(24*gib), used(t, dir, "GPU-0"))
}

func TestAWakeThatFindsTooLittleFreeMemoryFailsAndStaysAsleep(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	p := launch(t, setup{args: []string{"m"}, gpus: dir.Path(), dev: true}).ready()
	p.ok("POST", "/sleep", "")
	other := launch(t, setup{args: []string{"other"}, gpus: dir.Path()}).ready()
	a := p.call("POST", "/wake_up", "")
	require.Equal(t, 500, a.status)
	require.Contains(t, a.body, "Call to wake_up method failed: CUDA Error: out of memory")
	require.Equal(t, "true 0 1 0", p.sleepState())
	other.signal(other.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, other.exit())
	p.ok("POST", "/wake_up", "")
	overlaps, err := recorder.Overlaps(dir.Path())
	require.NoError(t, err)
	require.Empty(t, overlaps)
}

func TestMoreWorkersThanVisibleGPUsIsAnInvalidOrdinal(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "-tp", "2"}, gpus: gpus(t, 2).Path(), env: []string{"CUDA_VISIBLE_DEVICES=1"}})
	require.Equal(t, 1, p.exit())
	require.Contains(t, p.text(), "CUDA error: invalid device ordinal")
}

func TestMemoryCanComeBackLateAfterASleep(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	p := launch(t, setup{args: []string{"m", "--sim-free-late-after-sleep=300ms"}, gpus: dir.Path(), dev: true}).ready()
	full := used(t, dir, "GPU-0")
	p.ok("POST", "/sleep", "")
	require.Equal(t, full, used(t, dir, "GPU-0"))
	eventually(t, "the memory", func() bool { return used(t, dir, "GPU-0") < full })
	p.ok("POST", "/wake_up", "")
	p.ok("POST", "/sleep", "")
	p.ok("POST", "/wake_up", "")
	require.Never(t, func() bool { return used(t, dir, "GPU-0") != full }, 400*time.Millisecond, 20*time.Millisecond, "a wake calls off what the sleep before it was late with")
}

func TestMemoryCanComeBackLateAfterAnExitHoweverItWas(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"asked": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := func(late string) (d *simgpu.Dir, full uint64) {
				d = gpus(t, 1)
				p := launch(t, setup{args: []string{"m", "--sim-free-late-after-exit=" + late}, gpus: d.Path()}).ready()
				full = used(t, d, "GPU-0")
				for _, pid := range p.processes() {
					if err := syscall.Kill(pid, sig); err != nil { // the end of one may have ended it already
						require.ErrorIs(t, err, syscall.ESRCH)
					}
				}
				p.exit()
				eventually(t, "the end", func() bool { return len(p.processes()) == 0 })
				return d, full
			}
			dir, full := after("1h")
			require.Equal(t, full, used(t, dir, "GPU-0"))
			dir, _ = after("50ms")
			eventually(t, "the memory", func() bool { return used(t, dir, "GPU-0") == 0 })
		})
	}
}

func TestWeightsAreReallyInHostMemoryUntilALevel2Sleep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weights")
	for name, args := range map[string][]string{
		"generated": {"m", "--sim-weights-bytes=256MiB"},
		"of a file": {"m", "--sim-weights-bytes=256MiB", "--sim-weights-file=" + file},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, setup{args: args, dev: true}).ready()
			worker := p.find("VLLM::Worker")
			const most = 200 << 20
			require.Greater(t, resident(t, worker), most)
			p.ok("POST", "/sleep?level=1", "")
			require.Greater(t, resident(t, worker), most, "level 1 keeps them")
			p.ok("POST", "/wake_up", "")
			p.ok("POST", "/sleep?level=2", "")
			require.Less(t, resident(t, worker), most, "level 2 drops them")
			p.ok("POST", "/wake_up?tags=weights", "")
			p.ok("POST", "/collective_rpc", `{"method":"reload_weights"}`)
			require.Greater(t, resident(t, worker), most)
		})
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, int64(256<<20), info.Size())
	require.Less(t, info.Sys().(*syscall.Stat_t).Blocks, int64(1000), "the file that is made is sparse")
}

// resident is a process's resident memory in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(data)
	require.NotNil(t, m)
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return kb << 10
}

func TestEveryWakeAndSleepIsRecorded(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	p := launch(t, setup{args: []string{"m", "--served-model-name", "name"}, gpus: dir.Path(), dev: true}).ready()
	p.ok("POST", "/sleep", "")
	p.ok("POST", "/wake_up", "")
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, p.exit())
	events, err := recorder.Events(dir.Path())
	require.NoError(t, err)
	var kinds []recorder.Kind
	for i, e := range events {
		kinds = append(kinds, e.Kind)
		require.Equal(t, "name", e.Model)
		require.Equal(t, p.cmd.Process.Pid, e.Engine)
		require.InDelta(t, 0.92, e.Share, 1e-9)
		require.True(t, i == 0 || e.At >= events[i-1].At)
	}
	require.Equal(t, []recorder.Kind{recorder.Awake, recorder.Asleep, recorder.Awake, recorder.Asleep}, kinds)
}

func TestEnginesThatFitTogetherShareAGPUWithoutAnOverlap(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	launch(t, setup{args: []string{"a", "--gpu-memory-utilization=0.5"}, gpus: dir.Path()}).ready()
	launch(t, setup{args: []string{"b", "--gpu-memory-utilization=0.5"}, gpus: dir.Path()}).ready()
	events, err := recorder.Events(dir.Path())
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, recorder.Shared, events[1].Kind)
	require.Equal(t, "a", events[1].Others[0].Model)
	overlaps, err := recorder.Overlaps(dir.Path())
	require.NoError(t, err)
	require.Empty(t, overlaps)
}
