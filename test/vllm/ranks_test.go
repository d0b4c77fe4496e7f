//go:build vllm

package vllm

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// The two ranks of a server are instances of two launchers; the test is the controller. Two nodes
// work on a CPU as on GPUs, but for the device memory, of which there is none to give back. So the
// launcher of the worker learns only from the commit of a swap that the worker has loaded. On a CPU,
// --enforce-eager skips the warm-up that a pipeline needs (spec/plan.md).
func TestTwoLaunchersServeOneModelTogether(t *testing.T) {
	tensors := arguments(modelA, "tiny-a", "-tp", "2")
	pipeline := slices.DeleteFunc(arguments(modelA, "tiny-a", "-pp", "2", "--compilation-config.backend=eager"), func(arg string) bool { return arg == "--enforce-eager" })
	words := map[string]bool{}
	for _, c := range []struct {
		name, method, worker string
		args                 []string
	}{
		{"tensor parallel by exec", launcherapi.StartExec, "VLLM::Worker_TP1", tensors},
		{"tensor parallel by fork", launcherapi.StartFork, "VLLM::Worker_TP1", tensors},
		{"pipeline parallel by fork", launcherapi.StartFork, "VLLM::Worker_PP1", pipeline},
	} {
		t.Run(c.name, func(t *testing.T) { words[showRanks(t, c.method, c.worker, c.args)] = true })
	}
	assert.Len(t, words, 1, "all of them answer the same")
}

// showRanks shows the life of a server whose ranks are started by a method. The title of the
// process of vLLM that works for rank 1 is that of the worker. showRanks returns what the server
// answers.
func showRanks(t *testing.T, method, worksForOne string, args []string) (words string) {
	quick := func(n *node) { n.flags = []string{"--starting-grace", "1s"} }
	first, second := newNode(t, by(method), quick), newNode(t, by(method), quick)
	if method == launcherapi.StartFork {
		first.preloaded("")
		second.preloaded("")
	}
	lease, err := first.LeasePorts(t.Context(), "entry", 1)
	require.NoError(t, err)
	rank := func(index int) *launcherapi.Rank {
		return &launcherapi.Rank{Group: "tiny-a", Index: index, Size: 2, Entry: fmt.Sprintf("127.0.0.1:%d", lease.Ports[0])}
	}
	commit := second.bringInUntilCommit(t, launcherapi.SwapIn{ID: "worker", Args: args, GPUUUIDs: gpu(0), Rank: rank(1)})
	_, err = first.Create(t.Context(), "entry", launcherapi.InstanceSpec{Args: args, GPUUUIDs: gpu(0), Rank: rank(0)})
	require.NoError(t, err)
	entry := first.await("entry", "awake")
	commit()
	worker := second.await("worker", "awake")
	for _, i := range []launcherapi.Instance{entry, worker} {
		assert.Equal(t, method, i.StartedBy, i.Reason)
	}
	words = ask(t, entry)
	assert.Equal(t, words, ask(t, entry))

	for _, level := range []int{1, 2} {
		both(t, func() error {
			_, err := first.Sleep(t.Context(), "entry", launcherapi.SleepRequest{Level: level})
			return err
		}, func() error {
			_, err := second.Sleep(t.Context(), "worker", launcherapi.SleepRequest{Level: level})
			return err
		})
		both(t, func() error {
			_, err := first.Wake(t.Context(), "entry", launcherapi.WakeRequest{})
			return err
		}, func() error {
			_, err := second.Wake(t.Context(), "worker", launcherapi.WakeRequest{})
			return err
		})
		assert.Equal(t, words, ask(t, first.get("entry")))
		second.kill()
		second.start()
	}

	require.NoError(t, syscall.Kill(find(t, second.get("worker"), worksForOne), syscall.SIGKILL))
	second.eventually("the other rank has failed", func() bool { return second.get("worker").State == "failed" })
	assert.Equal(t, "awake", first.get("entry").State, "the entry says nothing of it before a request comes")
	first.remove("entry")
	second.remove("worker")
	first.gone(entry)
	second.gone(worker)
	return words
}

// bringInUntilCommit begins a swap, and returns a function that commits it and waits for its end.
func (n *node) bringInUntilCommit(t *testing.T, in launcherapi.SwapIn) (commit func()) {
	t.Helper()
	answered := make(chan error, 1)
	go func() {
		_, err := n.Swap(t.Context(), launcherapi.SwapRequest{In: &in, Until: launcherapi.UntilHealthy}, nil)
		answered <- err
	}()
	var swap launcherapi.Swap
	n.eventually("the swap waits for its commit", func() bool {
		list, err := n.Swaps(t.Context())
		require.NoError(t, err)
		if len(list.Swaps) > 0 {
			swap = list.Swaps[0]
		}
		return swap.Phase == launcherapi.PhaseCommit
	})
	return func() {
		_, err := n.CommitSwap(t.Context(), swap.SwapID)
		require.NoError(t, err)
		require.NoError(t, <-answered)
	}
}

// both calls two launchers at once.
func both(t *testing.T, a, b func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b() }()
	require.NoError(t, a())
	require.NoError(t, <-done)
}
