package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

// Of the section "Life of an instance" of spec/rows.md: an engine that
// dies or hangs while it starts, is awake, falls asleep, sleeps or wakes; the
// causes that can be told; memory that is freed late.

// failed waits until an instance has failed and holds nothing any more, and
// checks what is told of it.
func (n *Node) failed(i launcherapi.Instance, exit int) launcherapi.Instance {
	n.t.Helper()
	f := n.Await(i.InstanceID, "failed")
	assert.Equal(n.t, launcherapi.StatusStopped, f.Status)
	assert.NotEmpty(n.t, f.Reason)
	assert.NotEmpty(n.t, f.Cause)
	assert.NotEmpty(n.t, f.LastLogLines)
	if assert.NotNil(n.t, f.ExitCode) {
		assert.Equal(n.t, exit, *f.ExitCode)
	}
	n.Eventually("nothing of it is left", func() bool { return len(engines(n.SimFS)) == 0 })
	n.Eventually("its memory is back", func() bool { return heldOn(n.t, n, 0)+heldOn(n.t, n, 1) == 0 })
	n.Eventually("its port is given back", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	return f
}

// over deletes a failed instance, and checks that its id, GPU and log are as
// they should be.
func (n *Node) over(id string) {
	n.t.Helper()
	n.Delete(id)
	assert.Equal(n.t, 404, n.Call("GET", "/v2/vllm/instances/"+id, nil).Status)
	n.Ask(n.Awake(id, On(0)), "hello")
}

func TestAnEngineThatDiesFailsWithExitCodeLastLinesAndReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		crash string // how, as the stand-in takes it
		exit  int
		cause string
	}{
		"with an exit code":            {"exit:3", 3, "exited"},
		"with exit code 0":             {"exit:0", 0, "exited"},
		"by a crash":                   {"signal:SEGV", -11, "killed"},
		"killed from outside":          {"signal:KILL", -9, "killed"},
		"since its engine core died":   {"core:signal:KILL", 0, "engine_core_died"},
		"since one of its workers did": {"worker:signal:KILL", 0, "engine_core_died"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			events, leave := n.Watch("")
			defer leave()
			quick := []string{"--sim-dead-delay", "100ms"}

			starting := n.Create("a", Spec("a", On(0), append(quick, "--sim-crash-at-load", c.crash)...))
			f := n.failed(starting, startExit(c.crash, c.exit))
			assert.Contains(t, f.Reason, "while starting")
			assert.Equal(t, []string{"CREATED", "STOPPED failed"}, happened(t, events, launcherapi.EventStopped))
			n.Delete("a")
			next(t, events)

			a := n.Awake("a", On(0), append(quick, "--sim-crash-at-sleep", c.crash)...)
			p := n.Call("POST", "/v2/vllm/instances/a/sleep", nil).Problem(t)
			assert.Equal(t, 502, p.Status)
			assert.Equal(t, "a", p.InstanceID)
			assert.NotEmpty(t, p.LastLogLines)
			f = n.failed(a, c.exit)
			assert.Equal(t, c.cause, f.Cause, f.Reason)
			assert.Equal(t, c.cause, p.Cause)
			assert.Contains(t, f.Reason, "while falling_asleep")
			n.Delete("a")

			a = n.Awake("a", On(0), append(quick, "--sim-crash-at-wake", c.crash)...)
			n.Sleep("a", 1)
			p = n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
			assert.Equal(t, 502, p.Status)
			f = n.failed(a, c.exit)
			assert.Equal(t, c.cause, f.Cause, f.Reason)
			assert.Contains(t, f.Reason, "while waking")
			n.over("a")
		})
	}
}

// startExit is the API server's exit code when something dies while it starts:
// it ends with 1 if that was not itself.
func startExit(crash string, exit int) int {
	if strings.HasPrefix(crash, "core:") || strings.HasPrefix(crash, "worker:") {
		return 1
	}
	return exit
}

func TestAnEngineThatIsKilledInAnyStateIsFailedAndCleared(t *testing.T) {
	t.Parallel()
	for state, asleep := range map[string]bool{"awake": false, "sleeping": true} {
		for _, victim := range []string{"API server", "EngineCore", "Worker"} {
			t.Run(victim+" while "+state, func(t *testing.T) {
				t.Parallel()
				n := NewNode(t)
				a := n.Awake("a", On(0, 1), "-tp", "2", "--sim-dead-delay", "100ms")
				if asleep {
					n.Sleep("a", 1)
				}
				pid, exit := a.PID, -9
				if victim != "API server" {
					pid, exit = processOf(t, n, victim), 0 // as vLLM ends when its engine died
				}
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				f := n.failed(a, exit)
				assert.Contains(t, f.Reason, "while "+state)
				for _, verb := range []string{"sleep", "wake"} {
					p := n.Call("POST", "/v2/vllm/instances/a/"+verb, nil).Problem(t)
					assert.Equal(t, 409, p.Status, verb)
				}
				n.over("a")
			})
		}
	}
}

// processOf finds the first process of an engine whose title has a word.
func processOf(t *testing.T, n *Node, word string) int {
	t.Helper()
	for _, pid := range engines(n.SimFS) {
		if strings.Contains(cmdline(pid), word) {
			return pid
		}
	}
	require.FailNow(t, "there is no such process: "+word)
	return 0
}

func TestWhoAsksAnEngineThatDiesIsToldAndNotKeptWaiting(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-wake-time", "1h")
	n.Sleep("a", 1)
	answers := make(chan Answer, 2)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/instances/a/wake", nil)
		answers <- answer
	}()
	n.Await("a", "waking")
	go func() {
		answer, _ := tryCall(context.Background(), "POST", publicURL(a, "/v1/completions"), map[string]any{"model": "a", "prompt": "x", "max_tokens": 2})
		answers <- answer
	}()
	n.Eventually("a request waits", func() bool { return n.Get("a").Held == 1 })
	require.NoError(t, syscall.Kill(a.PID, syscall.SIGKILL))
	statuses := []int{(<-answers).Status, (<-answers).Status}
	assert.ElementsMatch(t, []int{502, 503}, statuses, "the wake failed; the request cannot be served")
	n.failed(a, -9)
}

func TestTheCauseOfAFailedStartIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model string
		args  []string
		exit  int
		cause string
		says  string
	}{
		"out of device memory":  {"m", []string{"--sim-oom", "true"}, 1, "out_of_device_memory", "ran out of memory"},
		"a gated model":         {"m", []string{"--sim-gated", "true"}, 1, "gated_model", "HF_TOKEN"},
		"a model not found":     {"/no/such/model", nil, 1, "model_not_found", "/no/such/model"},
		"a flag that is wrong":  {"m", []string{"--no-such-flag"}, 2, "wrong_flag", "--no-such-flag"},
		"a value that is wrong": {"m", []string{"--max-model-len", "1000000000"}, 1, "max_model_len_too_long", "1000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Call("PUT", "/v2/vllm/instances/a", map[string]any{"args": append([]string{c.model}, c.args...), "gpu_uuids": On(0)})
			require.Equal(t, 201, a.Status, "%s", a.Body)
			f := n.failed(a.Instance(t), c.exit)
			assert.Equal(t, c.cause, f.Cause, f.Reason)
			assert.Contains(t, f.Reason, c.says)
			assert.Contains(t, string(n.Call("GET", "/metrics", nil).Body), fmt.Sprintf("hotseat_instance_failures_total{cause=%q} 1", c.cause))

			swap := n.Swap(map[string]any{"gpu_uuids": On(1), "in": map[string]any{"args": append([]string{c.model}, c.args...)}})
			p := swap.Problem(t)
			assert.Equal(t, 502, p.Status)
			assert.Equal(t, c.cause, p.Cause, "a swap tells it too")
		})
	}
	t.Run("a port that a stranger took", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t, "--engine-socket", "never")
		a := n.Create("a", Spec("a", On(0), "--sim-import-time", "3s"))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", engineAddress(t, a)) // Go sets SO_REUSEADDR
		require.NoError(t, err)
		defer l.Close()
		f := n.failed(a, 1)
		assert.Equal(t, "port_taken", f.Cause, f.Reason)
	})
	t.Run("device memory that others hold", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Create("a", Spec("a", On(0), "--sim-import-time", "3s"))
		assert.Equal(t, "starting", a.State)
		giveBack := hold(t, n, 0, 60<<30)
		n.Await("a", "failed")
		giveBack()
		f := n.failed(a, 1)
		assert.Equal(t, "device_memory_taken", f.Cause, f.Reason)
	})
	t.Run("a program that cannot be run", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Create("a", Spec("a", On(0), "--sim-crash-at-load", "exit:127"))
		f := n.failed(a, 127)
		assert.Equal(t, "program_cannot_be_run", f.Cause, f.Reason)
	})
}

// hold has this process hold memory of a simulated GPU, as a stranger does.
func hold(t *testing.T, n *Node, gpu int, bytes uint64) (giveBack func()) {
	t.Helper()
	dir, err := simgpu.Open(n.SimFS)
	require.NoError(t, err)
	require.NoError(t, dir.Set(GPU(gpu), os.Getpid(), bytes))
	return func() { require.NoError(t, dir.Set(GPU(gpu), os.Getpid(), 0)) }
}

func TestAnEngineThatHangsIsTimedOutUndoneAndTheReasonIsTold(t *testing.T) {
	t.Parallel()
	t.Run("while it starts", func(t *testing.T) {
		t.Parallel()
		for _, fault := range []string{"--sim-hang-at-load", "--sim-hang-at-health"} {
			n := NewNode(t, "--start-timeout", "1s")
			n.Create("a", Spec("a", On(0), fault, "always"))
			p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
			assert.Equal(t, 504, p.Status, "whoever waits for it is told")
			f := n.Get("a")
			assert.Equal(t, "failed", f.State)
			assert.Equal(t, "start_timeout", f.Cause)
			assert.Contains(t, f.Reason, "1s")
			assert.NotEmpty(t, f.LastLogLines)
			n.Eventually("nothing of it is left", func() bool { return len(engines(n.SimFS)) == 0 })
			n.over("a")
		}
	})
	for name, fault := range map[string][]string{
		"while it falls asleep":              {"--sim-hang-at-sleep", "1"},
		"while it falls asleep, and is slow": {"--sim-sleep-time", "2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--sleep-timeout", "500ms")
			a := n.Awake("a", On(0), fault...)
			p := n.Call("POST", "/v2/vllm/instances/a/sleep", nil).Problem(t)
			assert.Equal(t, 504, p.Status, p.Detail)
			assert.Equal(t, "sleep_failed", p.Cause)
			now := n.Get("a")
			assert.Equal(t, "awake", now.State, "it is what it was before")
			assert.Equal(t, a.PID, now.PID)
			assert.Contains(t, now.Reason, "did not fall asleep")
			n.Ask(now, "hello")
		})
	}
	for name, fault := range map[string][]string{
		"while it wakes":              {"--sim-hang-at-wake", "1"},
		"while it wakes, and is slow": {"--sim-wake-time", "2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--wake-timeout", "500ms")
			a := n.Awake("a", On(0), fault...)
			n.Sleep("a", 1)
			residue := heldOn(t, n, 0)
			p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
			assert.Equal(t, 504, p.Status, p.Detail)
			assert.Equal(t, "wake_failed", p.Cause)
			now := n.Get("a")
			assert.Equal(t, "sleeping", now.State, "it is what it was before")
			assert.Equal(t, a.PID, now.PID)
			assert.Contains(t, now.Reason, "did not wake")
			assert.Equal(t, residue, heldOn(t, n, 0))
			woken := n.Call("POST", "/v2/vllm/instances/a/wake", map[string]any{"timeout": "30s"})
			assert.Equal(t, 200, woken.Status, "%s", woken.Body)
			assert.Empty(t, woken.Instance(t).Reason, "what is past is not told any more")
			n.Ask(n.Get("a"), "hello")
		})
	}
}

// What says nothing at all any more cannot be undone: it fails, and is cleared.
func TestAnEngineThatStandsStillFailsAndIsCleared(t *testing.T) {
	t.Parallel()
	t.Run("told to sleep or to wake", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t, "--sleep-timeout", "500ms", "--wake-timeout", "500ms")
		n.Awake("a", On(0))
		n.Awake("b", On(1))
		slept := n.Call("POST", "/v2/vllm/instances/b/sleep", map[string]any{"timeout": patience.String()})
		require.Equal(t, 200, slept.Status, "%s", slept.Body)
		n.halt(engines(n.SimFS)...)
		var both sync.WaitGroup
		for id, verb := range map[string]string{"a": "sleep", "b": "wake"} {
			both.Go(func() {
				answer, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/instances/"+id+"/"+verb, nil)
				assert.NoError(t, err)
				assert.Equal(t, 504, answer.Status, "%s", answer.Body)
			})
		}
		both.Wait()
		for id, verb := range map[string]string{"a": "sleep", "b": "wake"} {
			f := n.Get(id)
			assert.Equal(t, "failed", f.State)
			assert.Equal(t, verb+"_failed", f.Cause)
			assert.NotEmpty(t, f.LastLogLines)
		}
		n.Eventually("nothing of them is left", func() bool { return len(engines(n.SimFS)) == 0 })
		n.over("a")
	})
	t.Run("and is deleted", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t, "--stop-grace", "300ms")
		n.Awake("a", On(0))
		n.halt(engines(n.SimFS)...)
		n.Delete("a")
		n.nothingLeft()
	})
}

func TestAVerbThatAnEngineRefusesIsUndoneAndTheReasonIsTold(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-fail-sleep", "1")
	p := n.Call("POST", "/v2/vllm/instances/a/sleep", nil).Problem(t)
	assert.Equal(t, 502, p.Status)
	assert.Contains(t, p.Detail, "simulated failure", "in the engine's words")
	n.Ask(n.Await("a", "awake"), "hello")
	n.Sleep("a", 1)
	n.Wake("a")

	n.Awake("b", On(1), "--sim-fail-wake", "1")
	n.Sleep("b", 1)
	p = n.Call("POST", "/v2/vllm/instances/b/wake", nil).Problem(t)
	assert.Equal(t, 502, p.Status)
	assert.Contains(t, p.Detail, "simulated failure")
	assert.Equal(t, "sleeping", n.Get("b").State)
	n.Ask(n.Wake("b"), "hello")
}

func TestMemoryThatIsFreedLateIsWaitedForBeforeTheNextStart(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-free-late-after-exit", "700ms")
	full := heldOn(t, n, 0)
	require.NotZero(t, full)
	n.Delete("a")
	assert.Zero(t, heldOn(t, n, 0), "the delete ends when the memory is back")
	n.Ask(n.Awake("b", On(0)), "hello")
}

func TestMemoryThatIsNotFreedInTimeIsToldAndTheNextStartIsRefusedWithTheNumbers(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--memory-timeout", "300ms")
	events, leave := n.Watch("")
	defer leave()
	n.Awake("a", On(0), "--sim-free-late-after-exit", "20s")
	n.Delete("a")
	var stopped launcherapi.Instance
	for stopped.State != "stopped" {
		require.NoError(t, json.Unmarshal(next(t, events).Object, &stopped))
	}
	assert.Contains(t, stopped.Reason, "had not come back", "the stop tells of it")
	a := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(0)))
	p := a.Problem(t)
	assert.Equal(t, 409, p.Status)
	require.NotNil(t, p.Fit, "%s", a.Body)
	assert.Equal(t, "device_memory", p.Fit.Bound)
	assert.Less(t, p.Fit.Available, p.Fit.Needed)
	n.Eventually("the memory is back at last", func() bool { return heldOn(t, n, 0) == 0 })
	n.Ask(n.Awake("b", On(0)), "hello")
}

func TestManyThatFailAtOnceLeaveNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	var all sync.WaitGroup
	for k := range 12 {
		all.Go(func() {
			id := fmt.Sprintf("i%d", k)
			crash := []string{"exit:1", "signal:KILL", "core:signal:KILL", "worker:exit:2"}[k%4]
			a, err := tryCall(context.Background(), "PUT", n.URL+"/v2/vllm/instances/"+id,
				Spec(id, nil, "--sim-crash-at-load", crash+"@"+fmt.Sprint(time.Duration(k)*5*time.Millisecond), "--sim-dead-delay", "50ms"))
			assert.NoError(t, err)
			assert.Equal(t, 201, a.Status, "%s", a.Body)
		})
	}
	all.Wait()
	for id, i := range n.settled() {
		assert.Equal(t, "failed", i.State, id)
	}
	n.Eventually("nothing of them is left", func() bool { return len(engines(n.SimFS)) == 0 })
	var list launcherapi.StoppedList
	n.Call("DELETE", "/v2/vllm/instances", nil).Into(t, &list)
	assert.Equal(t, 12, list.TotalStopped)
}
