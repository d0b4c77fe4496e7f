//go:build vllm

package vllm

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// The two ranks of a server are instances of two launchers; the test is the controller. Tensor
// parallel over two nodes works on a CPU as it does on GPUs, but for the device memory, of which
// there is none to give back.
func TestTwoLaunchersServeOneModelTogether(t *testing.T) {
	words := map[string]string{}
	for _, method := range []string{launcherapi.StartExec, launcherapi.StartFork} {
		t.Run(method, func(t *testing.T) { words[method] = showRanks(t, method) })
	}
	assert.Equal(t, words[launcherapi.StartExec], words[launcherapi.StartFork])
}

// showRanks shows the life of a server whose ranks are started by a method. It returns what the
// server answers.
func showRanks(t *testing.T, method string) (words string) {
	quick := func(n *node) { n.flags = []string{"--starting-grace", "1s"} }
	first, second := newNode(t, by(method), quick), newNode(t, by(method), quick)
	if method == launcherapi.StartFork {
		first.preloaded("")
		second.preloaded("")
	}
	lease, err := first.LeasePorts(t.Context(), "entry", 1)
	require.NoError(t, err)
	for index, n := range []*node{first, second} {
		i, err := n.Create(t.Context(), []string{"entry", "worker"}[index], launcherapi.InstanceSpec{
			Args: arguments(modelA, "tiny-a", "-tp", "2"), GPUUUIDs: gpu(0),
			Rank: &launcherapi.Rank{Group: "tiny-a", Index: index, Size: 2, Entry: fmt.Sprintf("127.0.0.1:%d", lease.Ports[0])},
		})
		require.NoError(t, err)
		assert.Equal(t, method, i.StartedBy, i.Reason)
	}
	worker, entry := second.await("worker", "awake"), first.await("entry", "awake")
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
	}

	require.NoError(t, syscall.Kill(find(t, second.get("worker"), "VLLM::Worker_TP1"), syscall.SIGKILL))
	second.eventually("the other rank has failed", func() bool { return second.get("worker").State == "failed" })
	assert.Equal(t, "awake", first.get("entry").State, "the entry says nothing of it before a request comes")
	first.remove("entry")
	second.remove("worker")
	first.gone(entry)
	second.gone(worker)
	return words
}

// both calls two launchers at once.
func both(t *testing.T, a, b func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b() }()
	require.NoError(t, a())
	require.NoError(t, <-done)
}
