package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Starts that wait for a preloader, seen from outside.

// waiting makes an instance that waits for a preloader.
func (n *forkNode) waiting(id string) launcherapi.Instance {
	n.t.Helper()
	i := n.Create(id, by("auto"))
	require.Equal(n.t, "starting", i.State)
	require.Contains(n.t, i.Reason, "waiting for the preloader")
	return i
}

func TestTwoThatAreMadeJustAfterServeWaitForOnePreloader(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.Start()
	n.waiting("a")
	n.waiting("b")
	load()
	for _, id := range []string{"a", "b"} {
		i := n.Await(id, "awake")
		assert.Equal(t, "fork", i.StartedBy)
		assert.Empty(t, i.Reason)
		assert.Contains(t, phases(i.Timings), "preload")
	}
	assert.Equal(t, 2, n.preloader().Forks)
	n.Delete("a")
	n.Delete("b")
	n.nothingLeft()
}

func TestTheFirstOfAnUncommonEnvironmentIsForkedFromAPreloaderOfItsOwn(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	n.Start()
	n.preloader()
	spec := by("auto")
	spec["env_vars"] = map[string]string{"OMP_NUM_THREADS": "2"}
	i := n.Create("a", spec)
	assert.Regexp(t, `waiting for a separate preloader for OMP_NUM_THREADS, .*; the last load took [\d.]+ s`, i.Reason)
	i = n.Await("a", "awake")
	assert.Equal(t, "fork", i.StartedBy)
	assert.Empty(t, i.Reason)
}

func TestAnInstanceWhosePreloaderFailsWhileItWaitsIsStartedByExec(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.loads("1 / 0\n")
	n.Start()
	n.waiting("a")
	load()
	i := n.Await("a", "awake")
	assert.Equal(t, "exec", i.StartedBy)
	assert.Contains(t, i.Reason, "ZeroDivisionError")
	i = n.Create("b", by("auto"))
	assert.Equal(t, "exec", i.StartedBy, "nobody waits for what has failed")
	n.Await("b", "awake")
}

func TestAnInstanceWhosePreloaderHangsIsStartedByExecInTheEnd(t *testing.T) {
	t.Parallel()
	n := newForkNode(t, "--on-exit", "leave")
	n.Start()
	n.preloader()
	n.Stop()
	n.loads("import signal\nsignal.pause()\n")
	n.Start()
	assert.Contains(t, n.waiting("a").Reason, "the last load took ", "it is known from the launcher before")
	i := n.Await("a", "awake")
	assert.Equal(t, "exec", i.StartedBy)
	assert.Contains(t, i.Reason, "the preloader is loading, for ")
	assert.Equal(t, "exec", n.Create("b", by("auto")).StartedBy, "nobody waits for what takes too long")
	n.Await("b", "awake")
	n.Delete("a")
	n.Delete("b")
}

func TestAnInstanceThatIsDeletedWhileItWaitsForAPreloaderNeverRuns(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.Start()
	a := n.waiting("a")
	assert.Equal(t, launcherapi.StatusStopped, n.Delete("a").Status)
	assert.Empty(t, string(n.logFile(a)))
	n.waiting("a")
	load()
	assert.Equal(t, "fork", n.Await("a", "awake").StartedBy, "the id is free again")
	assert.Equal(t, 1, n.preloader().Forks)
	n.Delete("a")
	n.nothingLeft()
}

func TestWhatWaitsForAPreloaderWhenTheLauncherIsToldToEnd(t *testing.T) {
	t.Parallel()
	t.Run("is started, and lives, where engines are left", func(t *testing.T) {
		t.Parallel()
		n := newForkNode(t, "--on-exit", "leave")
		load := n.hold()
		n.Start()
		n.waiting("a")
		assert.Zero(t, n.Stop())
		load()
		n.Start()
		i := n.Await("a", "awake")
		assert.Equal(t, "exec", i.StartedBy)
		assert.Equal(t, "started by exec: the launcher ended before it forked the instance", i.Reason)
		n.Delete("a")
	})
	t.Run("is ended where they are stopped", func(t *testing.T) {
		t.Parallel()
		n := newForkNode(t)
		n.hold()
		n.Start()
		n.waiting("a")
		assert.Zero(t, n.Stop())
		assert.Empty(t, preloaders(n.Node))
		n.Start()
		assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/a", nil).Status)
	})
}

func TestWhatWaitsForAPreloaderWhenTheLauncherIsKilledSaysThatItNeverRan(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.Start()
	n.waiting("a")
	n.Kill9()
	load()
	n.Start()
	i := n.Get("a")
	assert.Equal(t, "failed", i.State)
	assert.Equal(t, "the launcher ended before it started the engine; create the instance again", i.Reason)
	n.Delete("a")
	n.preloader()
	assert.Equal(t, "fork", n.run("a", "auto").StartedBy, "the id is free again")
}

func TestASwapWhoseTimeRunsOutWhileItWaitsForAPreloaderIsUndone(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.Start()
	spec := by("exec")
	spec["gpu_uuids"] = On(0)
	n.Create("a", spec)
	a := n.Await("a", "awake")
	began := time.Now()
	p := n.Swap(with(toNew("b", On(0)), "timeout", "1s")).Problem(t)
	assert.Less(t, time.Since(began), patience/2)
	assert.Equal(t, 504, p.Status)
	assert.Equal(t, launcherapi.OutcomeUndone, p.Outcome)
	assert.Equal(t, "healthy", p.FailedPhase)
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
	now := n.Get("a")
	assert.Equal(t, "awake", now.State)
	assert.Equal(t, a.PID, now.PID)
	assert.NoError(t, syscall.Kill(a.PID, 0))
	load()
	n.preloader()
	assert.Equal(t, launcherapi.OutcomeDone, n.SwapDone(toNew("b", On(0))).Outcome)
}
