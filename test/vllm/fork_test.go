//go:build vllm

package vllm

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

func TestForkedInstancesComeAndGoAndOutliveTheirPreloader(t *testing.T) {
	t.Parallel()
	n := newNode(t, auto)
	preloader := n.preloaded("")

	n.show("five come and go, and nothing of them stays", func(t *testing.T) { n.comeAndGo(t, preloader.PID) })

	n.createBy(launcherapi.StartFork, "a", gpu(0))
	a := n.await("a", "awake")
	words := ask(t, a)
	n.show("the preloader dies: what it forked answers, and another one takes its place", func(t *testing.T) {
		require.NoError(t, syscall.Kill(preloader.PID, syscall.SIGKILL))
		n.eventually("the dead preloader is noticed", func() bool { return n.ready("").PID != preloader.PID })
		assert.Equal(t, words, ask(t, a))
		next := n.preloaded("")
		assert.NotEqual(t, preloader.PID, next.PID)
		preloader = next
		assert.Equal(t, words, ask(t, a))
		n.createBy(launcherapi.StartFork, "b", gpu(1))
		n.await("b", "awake")
		n.remove("b")
	})
	n.show("a new launcher adopts what was forked, and ends it", func(t *testing.T) {
		n.kill()
		n.eventually("the preloader ends with its launcher", func() bool {
			return len(harness.Processes(func(p harness.Process) bool { return p.PID == preloader.PID })) == 0
		})
		n.start()
		adopted := n.get("a")
		assert.Equal(t, "awake", adopted.State)
		assert.Equal(t, launcherapi.StartFork, adopted.StartedBy)
		assert.Equal(t, a.PID, adopted.PID)
		assert.Equal(t, words, ask(t, adopted))
		// It is no child of the new launcher, which is told exit codes by launcher
		// init alone: so it is for exec too.
		n.remove("a")
		assert.Empty(t, tree(a))
	})
}

// auto has the launcher fork what it can.
func auto(n *node) { n.startMethod = launcherapi.StartAuto }

// ready is the preloader that differs in one variable from the first, or the
// first: all zero when it is not ready.
func (n *node) ready(variable string) launcherapi.Preloader {
	n.t.Helper()
	list, err := n.Preloaders(n.t.Context())
	require.NoError(n.t, err)
	require.Empty(n.t, list.Reason)
	for _, p := range list.Preloaders {
		if strings.Join(p.Variables, " ") == variable && p.State == "ready" {
			return p
		}
	}
	return launcherapi.Preloader{}
}

// preloaded waits for that preloader.
func (n *node) preloaded(variable string) (p launcherapi.Preloader) {
	n.t.Helper()
	n.eventually("a preloader is ready", func() bool {
		p = n.ready(variable)
		return p.PID > 0
	})
	return p
}

// createBy makes an instance of the first model by a start method.
func (n *node) createBy(method, id string, gpus []string) {
	n.t.Helper()
	i, err := n.Create(n.t.Context(), id, launcherapi.InstanceSpec{Args: arguments(modelA, "tiny-a"), GPUUUIDs: gpus, StartMethod: method})
	require.NoError(n.t, err)
	require.Equal(n.t, "starting", i.State)
	require.Equal(n.t, method, i.StartedBy, i.Reason)
}

// comings is how many instances comeAndGo forks.
const comings = 5

// comeAndGo forks instances, one after the other, and compares what there is after the
// first and after the last.
func (n *node) comeAndGo(t *testing.T, preloader int) {
	var before inventory
	var memory uint64
	for k := range comings {
		id := fmt.Sprintf("one-%d", k)
		n.createBy(launcherapi.StartFork, id, gpu(k%2))
		ask(t, n.await(id, "awake"))
		n.stops(t, id)
		if k == 0 {
			before, memory = n.inventory(), ownMemory(t, preloader)
		}
	}
	after := ownMemory(t, preloader)
	t.Logf("the preloader's memory: %d MiB after the first, %d MiB after the last", memory>>20, after>>20)
	assert.LessOrEqual(t, after, memory+(comings-1)*memory/180, "an instance leaves next to nothing")
	assert.Equal(t, comings, n.ready("").Forks)
	n.leftNothing(before)
}

// ownMemory is the part of a process's PSS that is no file's, in bytes: what
// else has the same libraries mapped does not count in it.
func ownMemory(t *testing.T, pid int) uint64 {
	t.Helper()
	rollup, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	require.NoError(t, err)
	defer rollup.Close()
	for lines := bufio.NewScanner(rollup); lines.Scan(); {
		var kib uint64
		if k, _ := fmt.Sscanf(lines.Text(), "Pss_Anon: %d kB", &kib); k == 1 {
			return kib << 10
		}
	}
	require.FailNow(t, "the kernel does not tell Pss_Anon")
	return 0
}
