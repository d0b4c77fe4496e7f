package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

// The rows of the section "Crashes and full disks" of spec/rows.md.

// crashAt starts the launcher anew; it will die at a point of its work.
func (n *Node) crashAt(point string) {
	n.t.Helper()
	if n.Running() {
		n.awaitRecords()
		n.Kill9()
	}
	n.env = append(n.env, "HOTSEAT_CRASH_AT="+point)
	n.Start()
}

// awaitRecords waits until the records on the disk tell the states that the launcher lists:
// it lists a state before it has written it.
func (n *Node) awaitRecords() {
	n.t.Helper()
	n.Eventually("all states are on the disk", func() bool {
		var list launcherapi.InstanceList
		n.Call("GET", "/v2/vllm/instances", nil).Into(n.t, &list)
		return !slices.ContainsFunc(list.Instances, func(i launcherapi.Instance) bool {
			var saved struct{ Record struct{ State string } }
			text, err := os.ReadFile(n.written(i.InstanceID))
			return err != nil || json.Unmarshal(text, &saved) != nil || saved.Record.State != i.State
		})
	})
}

// comeBack waits for the launcher's death and starts it again, sound.
func (n *Node) comeBack() {
	n.t.Helper()
	require.Equal(n.t, -1, n.WaitExit(), "it dies at the point, by SIGKILL: %s", n.Log())
	for i, v := range n.env {
		if strings.HasPrefix(v, "HOTSEAT_CRASH_AT=") {
			n.env = append(n.env[:i], n.env[i+1:]...)
			break
		}
	}
	n.Start()
}

// later makes a call that the launcher may not live to answer.
func (n *Node) later(method, path string, body any) {
	go func() { _, _ = tryCall(context.Background(), method, n.URL+path, body) }()
}

// settled waits until no instance moves and no swap is under way, and lists
// the instances.
func (n *Node) settled() map[string]launcherapi.Instance {
	n.t.Helper()
	var all map[string]launcherapi.Instance
	n.Eventually("everything has settled", func() bool {
		var list launcherapi.InstanceList
		n.Call("GET", "/v2/vllm/instances", nil).Into(n.t, &list)
		all = map[string]launcherapi.Instance{}
		for _, i := range list.Instances {
			switch i.State {
			case "starting", "falling_asleep", "waking", "stopping":
				return false
			}
			if i.SwapID != "" {
				return false
			}
			all[i.InstanceID] = i
		}
		return true
	})
	return all
}

// noneDoubled checks that there are as many API servers as instances that run.
func (n *Node) noneDoubled(all map[string]launcherapi.Instance) {
	n.t.Helper()
	live := 0
	for _, i := range all {
		if i.Status == launcherapi.StatusRunning {
			live++
		}
	}
	n.Eventually("there is one API server for each instance that runs", func() bool {
		servers := 0
		for _, pid := range engines(n.SimFS) {
			if strings.Contains(cmdline(pid), " serve ") {
				servers++
			}
		}
		return live == servers
	})
}

func TestAKillOfTheLauncherLosesNoInstance(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	says := n.Ask(a, "who are you?")
	n.SwapDone(toNew("b", On(0)))
	c := n.Awake("c", On(1))
	n.Kill9()
	assert.NotEmpty(t, engines(n.SimFS), "the models live")
	n.Start()
	all := n.settled()
	require.Len(t, all, 3)
	assert.Equal(t, "sleeping", all["a"].State)
	assert.Equal(t, a.PID, all["a"].PID)
	assert.Equal(t, "awake", all["b"].State)
	assert.Equal(t, "awake", all["c"].State)
	assert.Equal(t, c.Port, all["c"].Port)
	n.noneDoubled(all)
	n.Ask(all["b"], "hello")
	n.SwapDone(to("a"))
	assert.Equal(t, says, n.Ask(n.Get("a"), "who are you?"))
	// What it adopted it sees die, and can stop.
	require.NoError(t, syscall.Kill(all["b"].PID, syscall.SIGKILL))
	n.Await("b", "failed")
	n.Delete("a")
}

func TestAKillWhileAnInstanceStarts(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"start.written", "start.spawned", "state.awake"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n := NewStoppedNode(t)
			n.crashAt(point)
			n.later("PUT", "/v2/vllm/instances/a", Spec("a", On(0)))
			n.comeBack()
			all := n.settled()
			n.noneDoubled(all)
			if point == "start.written" {
				assert.Equal(t, "failed", all["a"].State, "it never ran, and says so")
				return
			}
			require.Equal(t, "awake", all["a"].State, all["a"].Reason)
			n.Ask(all["a"], "hello")
		})
	}
}

func TestAKillWhileAnInstanceFallsAsleepOrWakes(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"state.falling_asleep", "sleep.drained", "sleep.done", "state.sleeping"} {
		t.Run("sleep: "+point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.crashAt(point)
			n.later("POST", "/v2/vllm/instances/a/sleep", nil)
			n.comeBack()
			all := n.settled()
			assert.Equal(t, "sleeping", all["a"].State, "the sleep goes on to its end")
			assert.Equal(t, a.PID, all["a"].PID)
			n.Wake("a")
			n.Ask(n.Get("a"), "hello")
		})
	}
	for _, point := range []string{"state.waking", "wake.done", "state.awake"} {
		t.Run("wake: "+point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.Sleep("a", 2)
			n.crashAt(point)
			n.later("POST", "/v2/vllm/instances/a/wake", nil)
			n.comeBack()
			all := n.settled()
			assert.Equal(t, "awake", all["a"].State, "the wake goes on to its end")
			assert.Equal(t, a.PID, all["a"].PID)
			n.Ask(all["a"], "hello")
		})
	}
}

func TestAKillWhileAnInstanceStops(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"state.stopping", "stop.gone", "state.stopped"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			n.Awake("a", On(0))
			n.crashAt(point)
			n.later("DELETE", "/v2/vllm/instances/a", nil)
			n.comeBack()
			n.Eventually("a is forgotten, as was asked", func() bool {
				return n.Call("GET", "/v2/vllm/instances/a", nil).Status == 404
			})
			assert.Empty(t, engines(n.SimFS))
		})
	}
}

func TestAKillInTheMiddleOfASwapIsFinishedOrUndone(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"swap.written", "swap.drain.begun", "swap.drain.done", "swap.sleep.begun", "swap.sleep.done",
		"swap.start.begun", "start.written", "start.spawned", "swap.start.done", "swap.healthy.begun", "swap.healthy.done",
		"swap.open.begun", "swap.open.done",
	} {
		t.Run("to a new one: "+point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.crashAt(point)
			n.later("POST", "/v2/vllm/swap", toNew("b", On(0)))
			n.comeBack()
			n.consistent(a)
		})
	}
	for _, point := range []string{"swap.written", "swap.sleep.done", "swap.wake.begun", "wake.done", "swap.wake.done", "swap.open.done"} {
		t.Run("to a sleeper: "+point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.SwapDone(toNew("b", On(0)))
			n.SwapDone(to("a"))
			n.crashAt(point)
			n.later("POST", "/v2/vllm/swap", to("b"))
			n.comeBack()
			n.consistent(a)
		})
	}
	for _, point := range []string{"swap.undo.begun", "state.waking", "swap.undo.done"} {
		t.Run("while it is undone: "+point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.crashAt(point)
			n.later("POST", "/v2/vllm/swap", toNew("b", On(0), "--sim-crash-at-load", "exit:1"))
			n.comeBack()
			n.consistent(a)
			assert.Equal(t, "awake", n.Get("a").State)
		})
	}
}

func TestAKillInTheMiddleOfASwapLeavesTheOneThatStayedAwakeAsItWas(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"swap.written", "swap.drain.begun", "swap.sleep.done"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0), "--gpu-memory-utilization", "0.4")
			b := n.Awake("b", On(0), "--gpu-memory-utilization", "0.4")
			n.crashAt(point)
			n.later("POST", "/v2/vllm/swap", to("a")) // b has to leave, a stays
			n.comeBack()
			all := n.settled()
			assert.Equal(t, "awake", all["a"].State)
			assert.Equal(t, a.StateSince, all["a"].StateSince, "it never slept")
			assert.Equal(t, a.PID, all["a"].PID)
			assert.Equal(t, b.PID, all["b"].PID)
			if point == "swap.written" {
				assert.Equal(t, "awake", all["b"].State, "undone")
			}
			n.Ask(all["a"], "hello")
		})
	}
}

// consistent checks that exactly one of a and b is awake and serves, that the
// other sleeps or is gone, and that a further swap works.
func (n *Node) consistent(a launcherapi.Instance) {
	n.t.Helper()
	all := n.settled()
	n.noneDoubled(all)
	var awake []launcherapi.Instance
	for _, i := range all {
		if i.State == "awake" {
			awake = append(awake, i)
		}
	}
	require.Len(n.t, awake, 1, "%v", all)
	assert.Equal(n.t, a.PID, all["a"].PID, "a is the same process")
	n.Ask(awake[0], "hello")
	overlaps, err := recorder.Overlaps(n.SimFS)
	require.NoError(n.t, err)
	assert.Empty(n.t, overlaps)
	if awake[0].InstanceID != "a" {
		n.SwapDone(to("a"))
		n.Ask(n.Get("a"), "hello")
	}
}

func TestEnginesAreFoundAgainWhateverBecomesOfTheirFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(t *testing.T, path string)
		kept int // files kept aside
	}{
		"they are gone": {func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Remove(path))
		}, 0},
		"they hold something else": {func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte("this is no record\nat all\n"), 0o600))
		}, 2},
		"they are damaged in the middle": {func(t *testing.T, path string) {
			t.Helper()
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			copy(data[len(data)/2:], "\x00\x00\x00\x00\x00\x00\x00\x00")
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}, 2},
		"their ends are cut off": {func(t *testing.T, path string) {
			t.Helper()
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()-20))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			b := n.SwapDone(toNew("b", On(0))).In
			n.Kill9()
			c.harm(t, n.written("a"))
			c.harm(t, n.written("b"))
			n.Start()
			all := n.settled()
			assert.Equal(t, "sleeping", all["a"].State)
			assert.Equal(t, a.PID, all["a"].PID)
			assert.Equal(t, "awake", all["b"].State)
			assert.Equal(t, b.PID, all["b"].PID)
			n.Ask(all["b"], "hello")
			n.SwapDone(to("a"))
			n.Ask(n.Get("a"), "hello")
			kept, err := filepath.Glob(filepath.Join(n.State, "instances", "*.broken"))
			require.NoError(t, err)
			assert.Len(t, kept, c.kept, "a damaged file is kept aside")
		})
	}
}

func TestATermLetsAnswersEndStopsTheEnginesAndEndsWithZero(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "20ms")
	n.Awake("b", On(1))
	wait := stream(t, a, 20)
	done := make(chan int, 1)
	go func() { done <- n.Stop() }()
	_, whole := wait()
	assert.True(t, whole, "an answer in flight ends before its engine does")
	assert.Zero(t, <-done, n.Log())
	assert.Empty(t, engines(n.SimFS))
}

func TestATermLeavesTheEnginesWhenConfiguredSo(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--on-exit", "leave")
	a := n.Awake("a", On(0))
	assert.Zero(t, n.Stop(), n.Log())
	assert.NotEmpty(t, engines(n.SimFS))
	n.args[len(n.args)-1] = "stop"
	n.Start()
	assert.Equal(t, a.PID, n.Get("a").PID)
	n.Ask(n.Get("a"), "hello")
}

func TestARestartWithAnotherConfigurationTouchesNoInstance(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.Kill9()
	n.args = append(n.args, "--budgets-max-sleepers-per-gpu", "1", "--drain-timeout", "5s", "--start-timeout", "1m")
	n.Start()
	now := n.Get("a")
	assert.Equal(t, a.PID, now.PID)
	assert.Equal(t, a.Port, now.Port)
	assert.Equal(t, "awake", now.State)
	var gpus launcherapi.GPUList
	n.Call("GET", "/v2/gpus", nil).Into(t, &gpus)
	assert.Equal(t, 1, gpus.Budgets.MaxSleepersPerGPU)
}

func TestUnderInitTheLauncherIsBackAtOnceAndKnowsExitCodes(t *testing.T) {
	t.Parallel()
	n := NewStoppedNode(t)
	n.args = append([]string{"init", "--"}, n.args...)
	n.Start()
	a := n.Awake("a", On(0))
	b := n.Awake("b", On(1))
	n.killServe(a)
	n.killAndKnowWhy(b)
	n.Ask(n.Get("a"), "hello")
}

// killServe kills the launcher under init, and waits until the next one serves
// and has adopted an instance.
func (n *Node) killServe(i launcherapi.Instance) {
	n.t.Helper()
	serve := n.serve()
	require.NotZero(n.t, serve)
	require.NoError(n.t, syscall.Kill(serve, syscall.SIGKILL))
	n.serveAfter(serve)
	n.Eventually("it serves", func() bool {
		answer, err := tryCall(n.t.Context(), "GET", n.URL+"/v2/vllm/instances/"+i.InstanceID, nil)
		return err == nil && answer.Status == 200
	})
	assert.Equal(n.t, i.PID, n.Get(i.InstanceID).PID)
}

// killAndKnowWhy kills an engine whose parent is init: that saw how it ended.
func (n *Node) killAndKnowWhy(i launcherapi.Instance) {
	n.t.Helper()
	require.NoError(n.t, syscall.Kill(i.PID, syscall.SIGKILL))
	failed := n.Await(i.InstanceID, "failed")
	require.NotNil(n.t, failed.ExitCode)
	assert.Equal(n.t, -9, *failed.ExitCode)
}
