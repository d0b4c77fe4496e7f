package e2e

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// line is a connection to the launcher that is open already: calls on it work
// when the launcher can open no other.
type line struct {
	n      *Node
	client *http.Client
}

func (n *Node) line() line {
	n.t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 1}
	n.t.Cleanup(transport.CloseIdleConnections)
	n.checked()
	l := line{n, &http.Client{Transport: n.Document.Transport(transport, n.wrong.add)}}
	require.Equal(n.t, 200, l.call("GET", "/health").Status)
	return l
}

func (l line) call(method, path string) Answer {
	l.n.t.Helper()
	a, err := send(l.n.t.Context(), l.client, method, l.n.URL+path, nil)
	require.NoError(l.n.t, err)
	return a
}

// exhaust takes all free descriptors from the launcher, until the call of give.
func (n *Node) exhaust() (give func()) {
	n.t.Helper()
	var limit unix.Rlimit
	require.NoError(n.t, unix.Prlimit(n.PID(), unix.RLIMIT_NOFILE, nil, &limit))
	none := limit
	none.Cur = 3
	require.NoError(n.t, unix.Prlimit(n.PID(), unix.RLIMIT_NOFILE, &none, nil))
	give = func() { require.NoError(n.t, unix.Prlimit(n.PID(), unix.RLIMIT_NOFILE, &limit, nil)) }
	n.t.Cleanup(func() {
		if n.t.Failed() && n.Running() {
			give()
		}
	})
	return give
}

func TestAnInstanceThatCannotBeEndedIsNotCalledStopped(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	deletes, looks := n.line(), n.line()

	give := n.exhaust()
	answer := deletes.call("DELETE", "/v2/vllm/instances/a")
	assert.Equal(t, 504, answer.Status, "%s", answer.Body)
	problem := answer.Problem(t)
	assert.Contains(t, problem.Detail, "instance a is still stopping")
	assert.Contains(t, problem.Detail, "too many open files")
	assert.Equal(t, "a", problem.InstanceID)
	require.NoError(t, syscall.Kill(a.PID, 0), "the engine lives")
	view := looks.call("GET", "/v2/vllm/instances/a").Instance(t)
	assert.Equal(t, "stopping", view.State)
	assert.Equal(t, launcherapi.StatusRunning, view.Status)
	assert.Contains(t, view.Reason, "too many open files")
	assert.Equal(t, a.Port, view.Port)

	give()
	n.Eventually("the launcher has gone on trying", func() bool {
		return n.Call("GET", "/v2/vllm/instances/a", nil).Status == 404
	})
	n.nothingLeft()
}

func TestWhatACrashedEngineLeftIsClearedAsSoonAsItCanBe(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	l := n.line()
	require.Greater(t, len(engines(n.SimFS)), 1, "it has an engine core beside its API server")

	give := n.exhaust()
	require.NoError(t, syscall.Kill(a.PID, syscall.SIGKILL))
	var view launcherapi.Instance
	n.Eventually("what it left cannot be cleared", func() bool {
		view = l.call("GET", "/v2/vllm/instances/a").Instance(t)
		return view.State == "failed" && (view.Port == 0 || strings.Contains(view.Reason, "too many open files"))
	})
	assert.Equal(t, a.Port, view.Port, "it has not given its port back: %s", view.Reason)
	assert.Equal(t, "killed", view.Cause)
	assert.NotEmpty(t, engines(n.SimFS), "its engine core lives")

	give()
	n.Eventually("it has given its port back", func() bool { return n.Get("a").Port == 0 })
	assert.NotContains(t, n.Get("a").Reason, "too many open files")
	assert.Empty(t, engines(n.SimFS))
	gone := n.Call("DELETE", "/v2/vllm/instances/a", nil).Instance(t)
	assert.Equal(t, "failed", gone.State)
	assert.Equal(t, "killed", gone.Cause)
	assert.NotEmpty(t, gone.Reason)
	assert.NotEmpty(t, gone.LastLogLines)
	require.NotNil(t, gone.ExitCode)
	assert.Equal(t, -9, *gone.ExitCode)
}

func TestATermDoesNotWaitForAModelThatASwapStarts(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]int{"stop": 0, "leave": 1} {
		t.Run(name, func(t *testing.T) {
			n := NewNode(t, "--on-exit", name)
			swapped := make(chan Answer, 1)
			go func() {
				answer, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", toNew("a", On(0), "--sim-load-time", "1h"))
				assert.NoError(t, err)
				swapped <- answer
			}()
			n.there("a")
			assert.Zero(t, n.Stop(), n.Log())
			assert.Equal(t, "unavailable", (<-swapped).Problem(t).Code)
			roots := 0
			for _, pid := range engines(n.SimFS) {
				if session, err := unix.Getsid(pid); err == nil && session == pid {
					roots++
				}
			}
			assert.Equal(t, left, roots, n.Log())
			n.args[len(n.args)-1] = "stop"
			n.Start()
		})
	}
}

// there waits until an instance that somebody is making is there.
func (n *Node) there(id string) {
	n.t.Helper()
	n.Eventually("instance "+id+" is there", func() bool { return n.Call("GET", instances+"/"+id, nil).Status == 200 })
}

// waiting begins a swap to a new instance that loads for ever on a GPU, and one
// with the key "waits" that waits for its turn there.
func (n *Node) waiting(id string) (first, second <-chan Answer) {
	n.t.Helper()
	first = n.beginSwap("loads", toNew(id, On(0), "--sim-load-time", "1h"))
	n.there(id)
	return first, n.waits("waits")
}

// waits begins a swap to a new instance that waits for its turn on a GPU.
func (n *Node) waits(key string) <-chan Answer {
	n.t.Helper()
	answer := n.beginSwap(key, toNew("second", On(0)))
	n.Eventually("the swap waits for its turn", func() bool {
		var list launcherapi.GPUList
		n.Call("GET", "/v2/gpus", nil).Into(n.t, &list)
		return list.QueuedSwaps == 1
	})
	return answer
}

// beginSwap begins a swap, whose answer comes when it is over.
func (n *Node) beginSwap(key string, body any) <-chan Answer {
	answer := make(chan Answer, 1)
	go func() {
		a, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", body, "Idempotency-Key", key)
		assert.NoError(n.t, err)
		answer <- a
	}()
	return answer
}

func TestASwapThatWaitsForItsTurnIsCalledOffAndTheOneBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	first, second := n.waiting("slow")
	assert.Equal(t, 200, n.Call("DELETE", "/v2/vllm/swap", nil, "Idempotency-Key", "waits").Status)
	assert.Equal(t, 409, (<-second).Problem(t).Status)
	assert.Equal(t, 404, n.Call("GET", instances+"/second", nil).Status)
	assert.Equal(t, 409, n.Call("DELETE", "/v2/vllm/swap", nil, "Idempotency-Key", "loads").Problem(t).Status, "it has begun")
	assert.Equal(t, "starting", n.Get("slow").State)
	n.Delete("slow")
	assert.NotEqual(t, 200, (<-first).Status)
}

func TestAnyClientListsFollowsAndCancelsASwap(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	first, second := n.waiting("slow")
	swaps := n.swaps()
	require.Len(t, swaps, 2)
	assert.Equal(t, []string{"slow", "running", "second", "waiting"}, []string{swaps[0].InstanceID, swaps[0].State, swaps[1].InstanceID, swaps[1].State})
	assert.Equal(t, swaps[0].SwapID, n.Get("slow").SwapID)
	path := func(s launcherapi.Swap) string { return "/v2/swaps/" + s.SwapID }
	assert.Equal(t, 200, n.Call("DELETE", path(swaps[1]), nil).Status)
	assert.Equal(t, 409, (<-second).Problem(t).Status)
	assert.Contains(t, n.Call("DELETE", path(swaps[0]), nil).Problem(t).Detail, "it has begun")

	followed := make(chan Answer, 1)
	go func() {
		a, err := tryCall(context.Background(), "GET", n.URL+path(swaps[0])+"?follow=true", nil)
		assert.NoError(t, err)
		followed <- a
	}()
	n.Delete("slow")
	problem := (<-first).Problem(t)
	steps := progress(t, <-followed)
	assert.Equal(t, launcherapi.PhaseAdmit, steps[0].Phase, "from the beginning")
	require.NotNil(t, steps[len(steps)-1].Problem)
	assert.Equal(t, problem.Detail, steps[len(steps)-1].Problem.Detail)
	for range 2 { // and in the next life of the launcher
		swaps = n.swaps()
		require.Len(t, swaps, 2)
		assert.Equal(t, []string{"over", "over"}, []string{swaps[0].State, swaps[1].State})
		assert.Equal(t, []string{problem.Detail, launcherapi.OutcomeRefused}, []string{swaps[0].Problem.Detail, swaps[1].Problem.Outcome})
		n.Kill9()
		n.Start()
	}
}

// swaps lists the swaps that the launcher remembers.
func (n *Node) swaps() []launcherapi.Swap {
	n.t.Helper()
	var list launcherapi.SwapList
	n.Call("GET", "/v2/swaps", nil).Into(n.t, &list)
	return list.Swaps
}
