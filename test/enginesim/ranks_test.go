package main

import (
	"net/http"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
)

// twoRanks starts the two ranks of a server on two GPUs, the entry first. ready: both serve.
func twoRanks(t *testing.T, dir *simgpu.Dir, ready bool) (entry, worker *proc) {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	args := func(node int, others ...string) setup {
		return setup{
			args: append([]string{"m", "-tp", "2", "--sim-residue=2GiB", "--nnodes", "2", "--node-rank", strconv.Itoa(node), "--master-addr", "127.0.0.1", "--master-port", port}, others...),
			gpus: dir.Path(), env: []string{"CUDA_VISIBLE_DEVICES=" + strconv.Itoa(node)}, dev: true,
		}
	}
	entry = launch(t, args(0))
	if ready {
		s := args(1, "--headless")
		worker = command(t, s, append([]string{"serve"}, s.args...)...)
		entry.ready()
	}
	return entry, worker
}

func TestEntryServesOnceEveryRankHasLoaded(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 2)
	alone, _ := twoRanks(t, dir, false)
	alone.says("init engine")
	_, err := alone.try("GET", "/health", "")
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "it waits for the other rank without end")
	alone.signal(alone.cmd.Process.Pid, syscall.SIGKILL)
	alone.clean()

	entry, worker := twoRanks(t, dir, true)
	entry.find("VLLM::Worker_TP0")
	worker.find("VLLM::Worker_TP1")
	entry.complete(`{"model":"m","prompt":"x"}`)
	awake := used(t, dir, "GPU-1")
	require.Equal(t, awake, used(t, dir, "GPU-0"))
	for _, level := range []string{"1", "2"} {
		entry.ok("POST", "/sleep?level="+level, "")
		require.Equal(t, uint64(2*gib), used(t, dir, "GPU-0"))
		require.Equal(t, uint64(2*gib), used(t, dir, "GPU-1"), "the sleep reaches the other rank")
		entry.ok("POST", "/wake_up", "")
		require.Equal(t, awake, used(t, dir, "GPU-1"))
	}
}

func TestEntryEndsWithTheFirstRequestAfterTheEndOfAnotherRank(t *testing.T) {
	t.Parallel()
	entry, worker := twoRanks(t, gpus(t, 2), true)
	worker.signal(worker.find("VLLM::Worker_TP1"), syscall.SIGKILL)
	worker.exit()
	entry.ok("GET", "/health", "")
	require.Equal(t, http.StatusInternalServerError, entry.call("POST", "/v1/completions", `{"model":"m","prompt":"x"}`).status)
	entry.exit()
}

func TestRankWhoseEntryIsGoneStaysWithoutAWord(t *testing.T) {
	t.Parallel()
	entry, worker := twoRanks(t, gpus(t, 2), true)
	entry.signal(entry.cmd.Process.Pid, syscall.SIGKILL)
	entry.exit()
	tp1 := worker.find("VLLM::Worker_TP1")
	worker.signal(worker.cmd.Process.Pid, syscall.SIGTERM)
	eventually(t, "the end of the worker", func() bool { return titleOf(tp1) == "" })
	require.False(t, worker.ended(), "SIGTERM does not end the process itself")
}
