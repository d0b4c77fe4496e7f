package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What becomes of a swap that fails or runs out of time: it answers in time,
// and says truly what it left.

// with adds members to the body of a request.
func with(body map[string]any, members ...any) map[string]any {
	for i := 0; i+1 < len(members); i += 2 {
		body[members[i].(string)] = members[i+1]
	}
	return body
}

func TestAnUndoneSwapHasWokenWhoWasAwakeThoughMemoryIsFreedLate(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-wake-time", "3s", "--sim-free-late-after-sleep", "3s"))
	n.SwapDone(to("a"))
	undone(t, n, a, n.Swap(with(to("b"), "timeout", "1s")), 504, "wake")
	assert.Equal(t, "sleeping", n.Get("b").State)
}

func TestAnUndoThatCannotWakeWhoWasAwakeSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags []string // of a
		hold  bool     // a stranger takes the memory meanwhile
		state string
		says  string
	}{
		"because it dies":                  {[]string{"--sim-crash-at-wake", "signal:KILL"}, false, "failed", "a is failed"},
		"because it refuses":               {[]string{"--sim-fail-wake", "always"}, false, "sleeping", "simulated failure"},
		"because its memory is taken":      {nil, true, "sleeping", "other processes hold"},
		"because it failed to fall asleep": {[]string{"--sim-crash-at-sleep", "signal:KILL"}, false, "failed", "a is failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--memory-timeout", "2s")
			n.Awake("a", On(0), c.flags...)
			answers := make(chan Answer, 1)
			go func() {
				answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", with(toNew("b", On(0), "--sim-hang-at-load", "always"), "timeout", "4s"))
				answers <- answer
			}()
			if c.hold {
				n.Eventually("b starts", func() bool { return n.Call("GET", "/v2/vllm/instances/b", nil).Status == 200 })
				defer hold(t, n, 0, 79<<30)()
			}
			p := (<-answers).Problem(t)
			assert.Contains(t, []int{502, 504}, p.Status)
			assert.Equal(t, "undo_failed", p.Outcome)
			assert.NotEmpty(t, p.FailedPhase)
			assert.NotEmpty(t, p.SwapID)
			assert.Contains(t, p.Detail, c.says)
			require.Len(t, p.Out, 1)
			assert.Equal(t, c.state, p.Out[0].State)
			assert.Equal(t, c.state, n.Get("a").State)
			assert.Contains(t, string(n.Call("GET", "/metrics", nil).Body), `hotseat_swaps_total{outcome="undo_failed"} 1`)
		})
	}
}

func TestASwapDoesNotOutlastItsTimeWhateverHangs(t *testing.T) {
	t.Parallel()
	token := []string{"--sim-token-time", "1h"}
	for name, c := range map[string]struct {
		a, b    []string // flags of who is awake, and of who comes in
		asleep  bool     // b sleeps already; else it is new
		body    []any
		phase   string
		outcome string
	}{
		"while it drains":         {token, nil, false, []any{"drain_timeout", "10m"}, "drain", "undone"},
		"while one falls asleep":  {[]string{"--sim-hang-at-sleep", "always"}, nil, false, nil, "sleep", "undone"},
		"while one wakes":         {nil, []string{"--sim-hang-at-wake", "always"}, true, nil, "wake", "undone"},
		"while one starts":        {nil, []string{"--sim-hang-at-load", "always"}, false, nil, "healthy", "undone"},
		"while one makes a token": {nil, token, true, []any{"canary", true}, "canary", "undone"},
		"while it is undone, in waking the old one": {
			[]string{"--sim-hang-at-wake", "always"}, []string{"--sim-hang-at-load", "always"}, false, nil, "healthy", "undo_failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--sleep-timeout", "10m", "--wake-timeout", "10m")
			a := n.Awake("a", On(0), c.a...)
			body := toNew("b", On(0), c.b...)
			if c.asleep {
				n.SwapDone(body)
				n.SwapDone(to("a"))
				body = to("b")
			}
			if c.phase == "drain" {
				go func() {
					_, _ = tryCall(t.Context(), "POST", publicURL(a, "/v1/completions"), map[string]any{"model": "a", "prompt": "x", "max_tokens": 9})
				}()
				n.Eventually("an answer is in flight", func() bool { return n.Get("a").InFlight == 1 })
			}
			began := time.Now()
			p := n.Swap(with(with(body, "timeout", "3s"), c.body...)).Problem(t)
			assert.Less(t, time.Since(began), patience, "its time was 3 s, and the engines' 10 min")
			assert.Equal(t, 504, p.Status, p.Detail)
			assert.Equal(t, c.phase, p.FailedPhase, p.Detail)
			assert.Equal(t, c.outcome, p.Outcome, p.Detail)
			if c.outcome == "undone" {
				assert.Equal(t, "awake", n.Get("a").State)
				assert.Equal(t, a.PID, n.Get("a").PID)
			} else {
				require.Len(t, p.Out, 1)
				assert.Equal(t, "waking", p.Out[0].State, "who is left how")
			}
		})
	}
}

// The engine says that it sleeps, and would keep the weights that it has loaded.
func TestCutReloadIsUndoneAndFreesTheWeights(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]string{"the reload hangs": "--sim-hang-at-reload", "the reload fails": "--sim-fail-reload"} {
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mode stop %t", name, stop), func(t *testing.T) {
				t.Parallel()
				n := NewNode(t)
				a := n.Awake("a", On(0))
				n.SwapDone(toNew("b", On(0), flag, "2"))
				n.Sleep("b", 2)
				n.SwapDone(to("a"))
				body := with(to("b"), "timeout", "3s")
				if stop {
					body["out"] = map[string]any{"mode": "stop"}
				}
				for range 2 {
					p := n.Swap(body).Problem(t)
					assert.Equal(t, "undone", p.Outcome, p.Detail)
					assert.Equal(t, "wake", p.FailedPhase)
					assert.Equal(t, a.PID, n.Get("a").PID)
					assert.Equal(t, "awake", n.Get("a").State)
					assert.Equal(t, "sleeping", n.Get("b").State, n.Get("b").Reason)
				}
				n.SwapDone(to("b"))
				n.Ask(n.Get("b"), "hello")
			})
		}
	}
}

func TestWakeThatFailsOnOneGPUEndsTheEngine(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0, 1), "--tensor-parallel-size", "2")
	n.SwapDone(toNew("b", On(0, 1), "--tensor-parallel-size", "2", "--sim-fail-wake-in-part", "2"))
	n.SwapDone(to("a"))
	p := n.Swap(to("b")).Problem(t)
	assert.Equal(t, "undone", p.Outcome, p.Detail)
	assert.Equal(t, a.PID, n.Get("a").PID)
	assert.Equal(t, "awake", n.Get("a").State)
	b := n.Get("b")
	assert.Equal(t, "failed", b.State)
	assert.Contains(t, b.Reason, "it reports that it sleeps, but holds")
}

func TestAnEngineThatStandsStillDoesNotKeepWhoWasAwakeFromComingBack(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--sleep-timeout", "10m", "--wake-timeout", "10m")
	a := n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-hang-at-wake", "always"))
	n.SwapDone(to("a"))
	answers := make(chan Answer, 1)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", with(to("b"), "timeout", "3s"))
		answers <- answer
	}()
	b := n.Await("b", "waking")
	n.halt(b.PID)
	p := (<-answers).Problem(t)
	assert.Equal(t, 504, p.Status)
	assert.Equal(t, "wake", p.FailedPhase)
	require.Len(t, p.Out, 1)
	if p.Outcome == "undone" {
		assert.Equal(t, "awake", p.Out[0].State)
	} else {
		assert.Equal(t, "undo_failed", p.Outcome)
		assert.Contains(t, p.Detail, "a is sleeping")
	}
	n.Await("a", "awake") // the undoing goes on after the answer
	n.Eventually("the swap has let go of a", func() bool { return n.Get("a").SwapID == "" })
	assert.Equal(t, a.PID, n.Get("a").PID)
	assert.Equal(t, "failed", n.Get("b").State)
	n.Ask(n.Get("a"), "hello")
}

func TestAnUndoPutsASleeperBackAtTheLevelThatItHad(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-token-time", "1h"))
	n.SwapDone(with(to("a"), "out", map[string]any{"level": 2}))
	require.Equal(t, 2, n.Get("b").SleepLevel)
	undone(t, n, a, n.Swap(with(to("b"), "canary", true, "timeout", "3s")), 504, "canary")
	b := n.Get("b")
	assert.Equal(t, "sleeping", b.State)
	assert.Equal(t, 2, b.SleepLevel)
}

func TestEveryRefusalOfASwapNamesItAndSaysThatItIsOne(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "3")
	n.Awake("a", On(0))
	pinned := Spec("b", On(1)) // so that nobody makes room for a fourth one
	pinned["annotations"] = map[string]string{launcherapi.AnnotationPinned: "true"}
	n.Create("b", pinned)
	n.Await("b", "awake")
	n.SwapDone(toNew("c", On(1)))
	require.Equal(t, 200, n.Swap(to("c"), "Idempotency-Key", "k").Status)
	for name, c := range map[string]struct {
		body   map[string]any
		key    string
		status int
		phase  string
	}{
		"one that lives elsewhere": {with(to("b"), "gpu_uuids", On(0)), "", 409, "admit"},
		"one whose id is taken":    {toNew("a", On(0)), "", 409, "admit"},
		"one that cannot fit":      {toNew("d", On(1)), "", 409, "admit"},
		"one that nobody knows":    {to("nobody"), "", 404, ""},
		"GPUs that there are not":  {toNew("d", []string{"GPU-none"}), "", 422, ""},
		"no GPUs":                  {map[string]any{}, "", 422, ""},
		"another request's key":    {to("a"), "k", 422, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := n.Swap(c.body, "Idempotency-Key", c.key).Problem(t)
			assert.Equal(t, c.status, p.Status, p.Detail)
			assert.NotEmpty(t, p.SwapID)
			assert.Equal(t, "refused", p.Outcome)
			assert.Equal(t, c.phase, p.FailedPhase)
		})
	}
}

func TestASwapThatRunsOutOfTimeInTheQueueSaysSo(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-hang-at-wake", "1"))
	n.SwapDone(to("a"))
	n.later("POST", "/v2/vllm/swap", with(to("b"), "timeout", "10s"))
	n.Eventually("the first has its turn", func() bool { return n.Get("b").SwapID != "" })
	p := n.Swap(with(toNew("c", On(0)), "timeout", "300ms")).Problem(t)
	assert.Equal(t, 504, p.Status)
	assert.Equal(t, launcherapi.CodeEngineTimeout, p.Code)
	assert.NotEmpty(t, p.SwapID)
	assert.Equal(t, "refused", p.Outcome)
	assert.Equal(t, "admit", p.FailedPhase)
	assert.NotEmpty(t, p.Phases)
	n.Await("a", "awake")
}

func TestATimeOfZeroIsTheDefault(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "20ms")
	wait := stream(t, a, 40)
	r := n.SwapDone(with(toNew("b", On(0)), "timeout", 0, "drain_timeout", "0s"))
	assert.Zero(t, r.Cut)
	_, whole := wait()
	assert.True(t, whole, "the drain had its default")

	a = *n.SwapDone(to("a")).In
	wait = stream(t, a, 40)
	slept := n.Call("POST", "/v2/vllm/instances/a/sleep", map[string]any{"drain_timeout": 0, "timeout": 0})
	assert.Equal(t, 200, slept.Status, "%s", slept.Body)
	_, whole = wait()
	assert.True(t, whole, "the drain had its default")

	woken := n.Call("POST", "/v2/vllm/instances/a/wake", map[string]any{"timeout": 0})
	require.Equal(t, 200, woken.Status, "%s", woken.Body)
	wait = stream(t, n.Get("a"), 1000)
	slept = n.Call("POST", "/v2/vllm/instances/a/sleep", map[string]any{"drain_timeout": "1ms"})
	assert.Equal(t, 200, slept.Status, "%s", slept.Body)
	_, whole = wait()
	assert.False(t, whole, "a drain of a millisecond is none")
}
