package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

// The rows of the section "Swap" of spec/rows.md. That no two instances
// are ever awake on one GPU is checked at the end of every test, from the
// engines' own record.

// to is a swap request that brings an existing instance in.
func to(id string) map[string]any {
	return map[string]any{"in": map[string]any{"instance_id": id}}
}

// toNew is a swap request that brings a new instance in.
func toNew(id string, gpus []string, args ...string) map[string]any {
	return map[string]any{"gpu_uuids": gpus, "in": map[string]any{
		"id": id, "args": append([]string{id, "--served-model-name", id}, args...),
	}}
}

func phases(all []launcherapi.PhaseTime) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.Name)
	}
	return out
}

func TestSwapToANewInstance(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	first := n.Ask(a, "who are you?")
	r := n.SwapDone(toNew("b", On(0)))
	assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
	assert.Equal(t, "b", r.In.InstanceID)
	assert.Equal(t, "awake", r.In.State)
	require.Len(t, r.Out, 1)
	assert.Equal(t, "a", r.Out[0].InstanceID)
	assert.Equal(t, "sleeping", r.Out[0].State)
	assert.Equal(t, a.PID, r.Out[0].PID)
	assert.Equal(t, []string{"admit", "drain", "sleep", "start", "healthy", "open"}, phases(r.Phases))
	assert.Positive(t, r.TotalMS)
	assert.NotEqual(t, first, n.Ask(*r.In, "who are you?"))
}

// Each model holds some memory while it sleeps, so that those which slept longest have to go.
func TestSwapsToNewModelsInARowMakeRoomForEach(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	evicted := false
	for i := range 9 {
		r := n.SwapDone(toNew(fmt.Sprint("m", i), On(0)))
		assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
		evicted = evicted || len(r.Evicted) > 0
	}
	assert.True(t, evicted, "the GPU has no room for nine")
}

func TestSwapBackAndForthAtBothLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []int{1, 2} {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			says := n.Ask(a, "who are you?")
			body := toNew("b", On(0))
			body["out"] = map[string]any{"level": level}
			n.SwapDone(body)
			assert.Equal(t, level, n.Get("a").SleepLevel)
			back := to("a")
			back["out"] = map[string]any{"level": level}
			r := n.SwapDone(back)
			assert.Equal(t, []string{"admit", "drain", "sleep", "wake", "canary", "open"}, phases(r.Phases))
			assert.Equal(t, says, n.Ask(n.Get("a"), "who are you?"), "the same model answers the same after it slept")
			assert.Equal(t, a.PID, n.Get("a").PID)
			assert.Equal(t, "sleeping", n.Get("b").State)
			assert.Equal(t, level, n.Get("b").SleepLevel)
		})
	}
}

func TestSwapToOneOnAnOverlappingSetOfGPUs(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.Awake("b", On(1))
	r := n.SwapDone(toNew("both", On(0, 1), "-tp", "2"))
	assert.Len(t, r.Out, 2)
	assert.Equal(t, "sleeping", n.Get("a").State)
	assert.Equal(t, "sleeping", n.Get("b").State)
	assert.Equal(t, "awake", n.Get("both").State)
	// On GPU 0 alone the one on both has to leave whole.
	r = n.SwapDone(to("a"))
	require.Len(t, r.Out, 1)
	assert.Equal(t, "both", r.Out[0].InstanceID)
	n.SwapDone(to("b"))
	assert.Equal(t, "awake", n.Get("a").State)
	assert.Equal(t, "awake", n.Get("b").State)
}

func TestSwapToOneThatLivesOnOtherGPUsIsRefused(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.Awake("b", On(1))
	body := to("b")
	body["gpu_uuids"] = On(0)
	p := n.Swap(body).Problem(t)
	assert.Equal(t, 409, p.Status)
	assert.Contains(t, p.Detail, GPU(1))
	assert.Equal(t, "awake", n.Get("a").State)
}

func TestSwapToOneThatCannotFitIsRefusedWithTheNumbersAndDisturbsNobody(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-sleepers-per-gpu", "1")
	pinned := Spec("pinned", On(0))
	pinned["annotations"] = map[string]string{launcherapi.AnnotationPinned: "true"}
	n.Create("pinned", pinned)
	n.Await("pinned", "awake")
	n.SwapDone(toNew("a", On(0)))
	before := n.Get("a")
	a := n.Swap(toNew("b", On(0)))
	p := a.Problem(t)
	assert.Equal(t, 409, p.Status)
	require.NotNil(t, p.Fit, "%s", a.Body)
	assert.Equal(t, "max_sleepers_per_gpu", p.Fit.Bound)
	assert.Equal(t, before, n.Get("a"), "nothing of it has changed")

	// A sleeper whose residue is too large to be pushed aside is in the way too.
	greedy := n.Swap(toNew("greedy", On(0), "--gpu-memory-utilization", "1"))
	p = greedy.Problem(t)
	assert.Equal(t, 409, p.Status)
	require.NotNil(t, p.Fit)
	assert.Equal(t, GPU(0), p.Fit.GPUUUID)
	assert.Contains(t, p.Detail, "pinned")
	assert.Equal(t, before, n.Get("a"))
}

// undone checks that a failed swap left A awake, the same process, and serving.
func undone(t *testing.T, n *Node, a launcherapi.Instance, answer Answer, status int, phase string) launcherapi.Problem {
	t.Helper()
	p := answer.Problem(t)
	assert.Equal(t, status, p.Status, "%s", answer.Body)
	assert.Equal(t, launcherapi.OutcomeUndone, p.Outcome)
	assert.Equal(t, phase, p.FailedPhase)
	assert.Contains(t, phases(p.Phases), "undo")
	now := n.Get("a")
	assert.Equal(t, "awake", now.State)
	assert.Equal(t, a.PID, now.PID, "the same process as before")
	n.Ask(now, "still there?")
	return p
}

func TestASwapThatFailsIsUndone(t *testing.T) {
	t.Parallel()
	t.Run("the new one dies while it starts", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0))
		p := undone(t, n, a, n.Swap(toNew("b", On(0), "--sim-crash-at-load", "exit:3")), 502, "healthy")
		require.NotNil(t, p.ExitCode)
		assert.Equal(t, 3, *p.ExitCode)
		assert.NotEmpty(t, p.LastLogLines)
		assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status, "nothing half made is left")
	})
	t.Run("the new one is never ready", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0))
		body := toNew("b", On(0), "--sim-hang-at-load", "always")
		body["timeout"] = "2s"
		undone(t, n, a, n.Swap(body), 504, "healthy")
	})
	t.Run("the sleeper refuses to wake", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0))
		n.SwapDone(toNew("b", On(0), "--sim-fail-wake", "1"))
		n.SwapDone(to("a"))
		undone(t, n, a, n.Swap(to("b")), 502, "wake")
		assert.Equal(t, "sleeping", n.Get("b").State)
		n.SwapDone(to("b")) // it fails only once
		n.Ask(n.Get("b"), "hello")
	})
	t.Run("the sleeper hangs while it wakes", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t, "--wake-timeout", "2s")
		a := n.Awake("a", On(0))
		n.SwapDone(toNew("b", On(0), "--sim-hang-at-wake", "always"))
		n.SwapDone(to("a"))
		undone(t, n, a, n.Swap(to("b")), 504, "wake")
	})
	t.Run("the sleeper dies while it wakes", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0))
		n.SwapDone(toNew("b", On(0), "--sim-crash-at-wake", "signal:KILL"))
		n.SwapDone(to("a"))
		undone(t, n, a, n.Swap(to("b")), 502, "wake")
		assert.Equal(t, "failed", n.Get("b").State)
	})
	t.Run("the one that is awake does not fall asleep", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0), "--sim-fail-sleep", "1")
		undone(t, n, a, n.Swap(toNew("b", On(0))), 502, "sleep")
		n.SwapDone(toNew("b", On(0)))
	})
}

// stream asks for a slow streamed answer and returns once it has begun.
func stream(t *testing.T, i launcherapi.Instance, tokens int) (wait func() (text string, whole bool)) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":"tell me","max_tokens":%d,"stream":true}`, i.ServedModelNames[0], tokens)
	req, err := http.NewRequestWithContext(t.Context(), "POST", publicURL(i, "/v1/completions"), strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	lines := bufio.NewScanner(resp.Body)
	require.True(t, lines.Scan(), "the first token")
	return func() (string, bool) {
		defer resp.Body.Close()
		var text strings.Builder
		whole, finish := false, ""
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if data == "[DONE]" {
				whole = true
			}
			var chunk struct {
				Choices []struct {
					Text   string
					Finish *string `json:"finish_reason"`
				}
			}
			if !ok || json.Unmarshal([]byte(data), &chunk) != nil || len(chunk.Choices) == 0 {
				continue
			}
			text.WriteString(chunk.Choices[0].Text)
			if f := chunk.Choices[0].Finish; f != nil {
				finish = *f
			}
		}
		assert.NotEqual(t, "abort", finish)
		return text.String(), whole && lines.Err() == nil
	}
}

func TestAStreamedAnswerEndsWholeBeforeItsModelSleeps(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "20ms")
	wait := stream(t, a, 40)
	done := make(chan Answer, 1)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", toNew("b", On(0)))
		done <- answer
	}()
	n.Eventually("a drains", func() bool { return n.Get("a").State == "falling_asleep" })
	_, whole := wait()
	assert.True(t, whole)
	answer := <-done
	assert.Equal(t, 200, answer.Status, "%s", answer.Body)
	var r launcherapi.SwapResult
	answer.Into(t, &r)
	assert.Zero(t, r.Cut)
}

func TestASwapThatRunsOutOfTimeWhileItDrainsCutsNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "30ms")
	wait := stream(t, a, 60)
	body := toNew("b", On(0))
	body["timeout"] = "300ms"
	p := n.Swap(body).Problem(t)
	assert.Equal(t, 504, p.Status)
	assert.Equal(t, "drain", p.FailedPhase)
	_, whole := wait()
	assert.True(t, whole)
	assert.Equal(t, a.PID, n.Get("a").PID)
	n.Ask(n.Get("a"), "still there?")
}

func TestAnAnswerThatOutlastsTheDrainIsCutAndCounted(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "100ms")
	wait := stream(t, a, 1000)
	body := toNew("b", On(0))
	body["drain_timeout"] = "300ms"
	r := n.SwapDone(body)
	assert.Equal(t, 1, r.Cut)
	_, whole := wait()
	assert.False(t, whole, "the client sees that it was cut")
	assert.Contains(t, string(n.Call("GET", "/metrics", nil).Body), "hotseat_requests_cut_total 1")
}

func TestRequestsThatArriveDuringTheSwapWaitAndAreServed(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-wake-time", "500ms"))
	n.SwapDone(to("a"))
	b := n.Get("b")
	var asked sync.WaitGroup
	for k := range 10 {
		asked.Go(func() {
			answer, err := tryCall(context.Background(), "POST", publicURL(b, "/v1/completions"), map[string]any{"model": "b", "prompt": fmt.Sprint(k), "max_tokens": 2})
			if assert.NoError(t, err) {
				assert.Equal(t, 200, answer.Status, "%s", answer.Body)
			}
		})
	}
	n.Eventually("the requests wait", func() bool { return n.Get("b").Held == 10 })
	n.SwapDone(to("b"))
	asked.Wait()
}

func TestTheQueueOfWaitingRequestsIsBounded(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--max-held-requests", "2", "--hold-timeout", "1s")
	a := n.Awake("a", On(0))
	n.Sleep("a", 1)
	ask := func() (Answer, error) {
		return tryCall(context.Background(), "POST", publicURL(a, "/v1/completions"), map[string]any{"model": "a", "prompt": "x", "max_tokens": 2})
	}
	held := make(chan Answer, 2)
	for range 2 {
		go func() { answer, _ := ask(); held <- answer }()
	}
	n.Eventually("two wait", func() bool { return n.Get("a").Held == 2 })
	answer, err := ask()
	require.NoError(t, err)
	assert.Equal(t, 429, answer.Status)
	assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	for range 2 {
		answer := <-held
		assert.Equal(t, 503, answer.Status, "their time is over")
		assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	}
}

func TestTwoSwapsForOneGPUGoInOrder(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-wake-time", "300ms"))
	n.SwapDone(toNew("c", On(0)))
	n.SwapDone(to("a"))
	type end struct {
		id     string
		answer Answer
	}
	ends := make(chan end, 2)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", to("b"))
		ends <- end{"b", answer}
	}()
	n.Eventually("the first has its turn", func() bool { return n.Get("b").SwapID != "" })
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", to("c"))
		ends <- end{"c", answer}
	}()
	first, second := <-ends, <-ends
	assert.Equal(t, "b", first.id)
	assert.Equal(t, 200, first.answer.Status, "%s", first.answer.Body)
	assert.Equal(t, 200, second.answer.Status, "%s", second.answer.Body)
	assert.Equal(t, "awake", n.Get("c").State)
	assert.Equal(t, "sleeping", n.Get("b").State)
}

func TestSwapsOnDisjointGPUsGoSideBySide(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-hang-at-wake", "1")) // holds GPU 0 until it is undone
	n.SwapDone(to("a"))
	held := make(chan Answer, 1)
	go func() {
		body := to("b")
		body["timeout"] = "5s"
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", body)
		held <- answer
	}()
	n.Eventually("b wakes", func() bool { return n.Get("b").State == "waking" })
	n.SwapDone(toNew("c", On(1)))
	assert.Empty(t, held, "the swap on GPU 0 is still under way")
	<-held
}

func TestManyOverlappingSwapsEndAndNeverDeadlock(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("left", On(0))
	n.Awake("right", On(1))
	n.SwapDone(toNew("both", On(0, 1), "-tp", "2"))
	var all sync.WaitGroup
	for k := range 30 {
		id := []string{"left", "right", "both"}[k%3]
		all.Go(func() {
			answer, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", to(id))
			if assert.NoError(t, err) {
				assert.Equal(t, 200, answer.Status, "%s", answer.Body)
			}
		})
	}
	all.Wait()
	events, err := recorder.Events(n.SimFS)
	require.NoError(t, err)
	assert.NotEmpty(t, events)
}

func TestASwapToWhatIsAwakeAlreadyDoesNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	r := n.SwapDone(to("a"))
	assert.Equal(t, launcherapi.OutcomeNoop, r.Outcome)
	assert.Equal(t, []string{"admit"}, phases(r.Phases))
	assert.Equal(t, a.Revision, n.Get("a").Revision)
	assert.Empty(t, n.Get("a").SwapID)
	n.Sleep("a", 1) // the swap has let go of it
}

func TestTheSameIdempotencyKeyTwiceIsOneSwap(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	body := toNew("b", On(0))
	first := n.Swap(body, "Idempotency-Key", "k1")
	again := n.Swap(body, "Idempotency-Key", "k1")
	require.Equal(t, 200, first.Status, "%s", first.Body)
	assert.JSONEq(t, string(first.Body), string(again.Body))
	other := n.Swap(to("a"), "Idempotency-Key", "k1")
	assert.Equal(t, 422, other.Problem(t).Status, "a key with another body")
	assert.Equal(t, "awake", n.Get("b").State)
}

func TestASwapEndsThoughItsClientWentAway(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := tryCall(ctx, "POST", n.URL+"/v2/vllm/swap", toNew("b", On(0), "--sim-load-time", "500ms"))
		gone <- err
	}()
	n.Eventually("b starts", func() bool { return n.Call("GET", "/v2/vllm/instances/b", nil).Status == 200 })
	leave()
	require.Error(t, <-gone)
	n.Await("b", "awake")
	n.Await("a", "sleeping")
	n.Eventually("the swap is over", func() bool { return n.Get("b").SwapID == "" })
	n.Ask(n.Get("b"), "hello")
}

func TestTheLeastRecentlyUsedSleeperIsEvictedAndPinnedOnesNever(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-sleepers-per-gpu", "2")
	pinned := Spec("pinned", On(0))
	pinned["annotations"] = map[string]string{launcherapi.AnnotationPinned: "true"}
	n.Create("pinned", pinned)
	n.Await("pinned", "awake")
	n.SwapDone(toNew("x", On(0)))
	n.SwapDone(toNew("y", On(0))) // sleepers: pinned, x
	n.SwapDone(to("x"))           // sleepers: pinned, y
	n.Ask(n.Get("x"), "used last")
	r := n.SwapDone(toNew("z", On(0))) // sleepers: pinned, y, x: one too many, and y was used before x
	assert.Equal(t, []string{"y"}, r.Evicted)
	assert.Contains(t, phases(r.Phases), "evict")
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/y", nil).Status)
	assert.Equal(t, "sleeping", n.Get("pinned").State)
	assert.Equal(t, "sleeping", n.Get("x").State)
}

func TestASwapWaitsUntilWhoIsAwakeHasBeenSoForLongEnough(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-min-residency", "1s")
	n.Awake("a", On(0))
	r := n.SwapDone(toNew("b", On(0)))
	assert.GreaterOrEqual(t, n.Get("b").CreatedAt.Sub(n.Get("a").CreatedAt), time.Second)
	assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
	body := to("a")
	body["timeout"] = "200ms"
	p := n.Swap(body).Problem(t)
	assert.Equal(t, 504, p.Status)
	assert.Equal(t, "awake", n.Get("b").State, "nothing was touched")
}

func TestSwapOutAlone(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	r := n.SwapDone(map[string]any{"gpu_uuids": On(0)})
	assert.Nil(t, r.In)
	assert.Equal(t, "sleeping", n.Get("a").State)
	assert.Equal(t, launcherapi.OutcomeNoop, n.SwapDone(map[string]any{"gpu_uuids": On(0)}).Outcome)
}

func TestSwapOutByStopEndsTheOldOneOnlyWhenTheNewOneServes(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	failing := toNew("b", On(0), "--sim-crash-at-load", "exit:1")
	failing["out"] = map[string]any{"mode": "stop"}
	undone(t, n, a, n.Swap(failing), 502, "healthy")
	body := toNew("b", On(0))
	body["out"] = map[string]any{"mode": "stop"}
	r := n.SwapDone(body)
	require.Len(t, r.Out, 1)
	assert.Equal(t, "stopped", r.Out[0].State)
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/a", nil).Status)
}

func TestADryRunTouchesNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	before := n.Get("a")
	body := toNew("b", On(0))
	body["dry_run"] = true
	assert.Equal(t, launcherapi.OutcomeDryRun, n.SwapDone(body).Outcome)
	assert.Equal(t, before, n.Get("a"))
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
	tooLarge := toNew("b", On(0), "--gpu-memory-utilization", "1", "-tp", "1")
	tooLarge["dry_run"] = true
	tooLarge["gpu_uuids"] = []string{"GPU-unknown"}
	assert.Equal(t, 422, n.Swap(tooLarge).Problem(t).Status)
}

func TestACanaryIsAskedBeforeTheGateOpens(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	body := toNew("b", On(0))
	body["canary"] = true
	assert.Contains(t, phases(n.SwapDone(body).Phases), "canary")
}

func TestTheProgressOfASwapIsStreamed(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			n.Awake("a", On(0))
			steps := progress(t, n.Swap(toNew("b", On(0)), "Accept", accept))
			var seen []string
			for _, s := range steps {
				if s.Type == launcherapi.ProgressDone {
					seen = append(seen, s.Phase)
				}
			}
			assert.Equal(t, []string{"admit", "drain", "sleep", "start", "healthy", "open"}, seen)
			last := steps[len(steps)-1]
			require.Equal(t, launcherapi.ProgressResult, last.Type)
			assert.Equal(t, launcherapi.OutcomeDone, last.Result.Outcome)

			steps = progress(t, n.Swap(toNew("c", On(0), "--sim-crash-at-load", "exit:1"), "Accept", accept))
			last = steps[len(steps)-1]
			require.Equal(t, launcherapi.ProgressProblem, last.Type)
			assert.Equal(t, launcherapi.OutcomeUndone, last.Problem.Outcome)
		})
	}
}

func progress(t *testing.T, a Answer) []launcherapi.SwapProgress {
	t.Helper()
	require.Equal(t, 200, a.Status, "%s", a.Body)
	var out []launcherapi.SwapProgress
	for _, line := range strings.Split(string(a.Body), "\n") {
		line = strings.TrimPrefix(line, "data: ")
		var p launcherapi.SwapProgress
		if strings.HasPrefix(line, "{") {
			require.NoError(t, json.Unmarshal([]byte(line), &p), line)
			out = append(out, p)
		}
	}
	require.NotEmpty(t, out)
	return out
}

func TestMemoryThatComesBackLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-free-late-after-sleep", "700ms")
	began := time.Now()
	r := n.SwapDone(toNew("b", On(0)))
	assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
	assert.GreaterOrEqual(t, time.Since(began), 700*time.Millisecond)
}

func TestMemoryThatNeverComesBackFailsTheSwapAndIsUndone(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--memory-timeout", "1s")
	a := n.Awake("a", On(0), "--sim-free-late-after-sleep", "1h")
	p := undone(t, n, a, n.Swap(toNew("b", On(0))), 502, "start")
	assert.Contains(t, p.Detail, "free")
}

func TestASwapIsNotDisturbedByTheDeleteOfASleeper(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--stop-grace", "4s")
	n.Awake("c", On(0), "--sim-ignore-term", "true")
	n.SwapDone(toNew("a", On(0), "--sim-sleep-time", "1s"))
	done := make(chan Answer, 1)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", toNew("b", On(0)))
		done <- answer
	}()
	n.Eventually("a falls asleep", func() bool { return n.Get("a").State == "falling_asleep" })
	n.later("DELETE", "/v2/vllm/instances/c", nil) // it takes its whole grace, and holds its residue meanwhile
	answer := <-done
	assert.Equal(t, 200, answer.Status, "%s", answer.Body)
	assert.Equal(t, "awake", n.Get("b").State)
}

func TestASwapIsToldOfWrongGPUsWhereverTheyStand(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	for name, c := range map[string]struct {
		in, top []string
		status  int
	}{
		"its own":                    {On(0), nil, 200},
		"its own, twice":             {On(0), On(0), 200},
		"another's":                  {On(1), nil, 409},
		"another's beside its own":   {On(1), On(0), 422},
		"one that there is not":      {[]string{"GPU-none"}, nil, 422},
		"one that there is not, too": {[]string{"GPU-none"}, On(0), 422},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"in": map[string]any{"instance_id": "a", "gpu_uuids": c.in}}
			if c.top != nil {
				body["gpu_uuids"] = c.top
			}
			answer := n.Swap(body)
			assert.Equal(t, c.status, answer.Status, "%s", answer.Body)
		})
	}
}

func TestAnEngineThatTakesAGPUItWasNotGivenIsSeenAndSwappedRoundNobody(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--gpu-memory-utilization", "0.3")
	stray := Spec("stray", nil, "--gpu-memory-utilization", "0.5")
	delete(stray, "gpu_uuids")
	n.Create("stray", stray) // it picks the first device that it sees
	n.Await("stray", "awake")
	var list launcherapi.GPUList
	n.Call("GET", "/v2/gpus", nil).Into(t, &list)
	g := list.GPUs[0]
	require.Len(t, g.Awake, 2)
	assert.Equal(t, g.MemoryUsedBytes, g.Awake[0].Bytes+g.Awake[1].Bytes, "every byte is somebody's")
	assert.Equal(t, "stray", g.Awake[1].InstanceID, "it is charged by name")
	assert.InDelta(t, 40<<30, g.Awake[1].Bytes, 1<<30)
	assert.Zero(t, g.ForeignBytes)
	for _, answer := range []Answer{
		n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(0), "--gpu-memory-utilization", "0.6")),
		n.Swap(toNew("b", On(0), "--gpu-memory-utilization", "0.6")),
	} {
		p := answer.Problem(t)
		assert.Equal(t, 409, p.Status)
		require.NotNil(t, p.Fit, "%s", answer.Body)
		assert.Contains(t, p.Detail, "stray (awake) holds 40.0 GiB")
	}
	assert.Equal(t, a.StateSince, n.Get("a").StateSince, "a was not disturbed")
}

func TestSwapAndPutStartAFailedInstanceAgain(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", "1ms")
	require.NoError(t, syscall.Kill(a.PID, syscall.SIGKILL))
	n.Await("a", "failed")
	p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
	assert.Equal(t, 409, p.Status)
	assert.Contains(t, p.Detail, "swap to it, which starts it again")

	r := n.SwapDone(to("a"))
	require.NotNil(t, r.In)
	assert.Equal(t, []string{"a", "--served-model-name", "a", "--sim-token-time", "1ms"}, r.In.Args, "as it was described")
	assert.NotEqual(t, a.PID, r.In.PID)
	n.Ask(n.Get("a"), "hello")

	require.NoError(t, syscall.Kill(r.In.PID, syscall.SIGKILL))
	n.Eventually("it has failed", func() bool { i := n.Get("a"); return i.State == "failed" && i.Port == 0 })
	n.Create("a", map[string]any{"args": []string{"b", "--served-model-name", "a"}, "gpu_uuids": On(1)})
	assert.Equal(t, On(1), n.Await("a", "awake").GPUUUIDs)
}

func TestSwapWithStopReplacesAModelThatHangs(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"its sleep hangs":         {"--sim-hang-at-sleep", "always"},
		"its sleep fails":         {"--sim-fail-sleep", "always"},
		"its sleep and wake hang": {"--sim-hang-at-sleep", "always", "--sim-hang-at-wake", "always"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--sleep-timeout", "1s")
			n.Awake("a", On(0), flags...)
			r := n.SwapDone(with(toNew("b", On(0)), "out", map[string]any{"mode": "stop"}))
			require.Len(t, r.Out, 1)
			assert.Contains(t, []string{"stopped", "failed"}, r.Out[0].State)
			n.Ask(n.Get("b"), "hello")
			assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/a", nil).Status)
		})
	}
}
