package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// spoiled are the ways in which an engine wakes with its health green and cannot be used.
var spoiled = map[string]struct {
	fault  string
	cause  string
	says   string
	status int
}{
	"it answers garbage": {"--sim-garbled-after-wake", "wrong_answers", "its answers are wrong", 502},
	"it answers nothing": {"--sim-mute-after-wake", "no_answers", "did not answer a short request within 1s", 504},
}

func TestSwapToAnEngineThatWakesUnusableIsUndone(t *testing.T) {
	t.Parallel()
	for name, c := range spoiled {
		for _, level := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := NewNode(t, "--fingerprint-timeout", "1s")
				a := n.Awake("a", On(0))
				n.SwapDone(toNew("b", On(0), c.fault, "1"))
				n.SwapDone(with(to("a"), "out", map[string]any{"level": level}))
				undone(t, n, a, n.Swap(to("b")), c.status, "canary")
				b := n.Get("b")
				assert.Equal(t, "failed", b.State)
				assert.Equal(t, c.cause, b.Cause)
				assert.Contains(t, b.Reason, c.says)
				n.SwapDone(to("b")) // it starts again
				n.Ask(n.Get("b"), "hello")
			})
		}
	}
}

func TestWakeOfAnEngineThatAnswersGarbageFails(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-garbled-after-wake", "1")
	n.Sleep("a", 1)
	p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
	assert.Equal(t, 502, p.Status)
	assert.Contains(t, p.Detail, "its answers are wrong")
	n.Eventually("its processes are gone", func() bool { return n.Get("a").Port == 0 })
	assert.Equal(t, "failed", n.Get("a").State)
	assert.Equal(t, a.PID, n.Get("a").PID)
}

func TestFingerprintIsComparedAfterTheLauncherWasKilled(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-garbled-after-wake", "1")
	n.Sleep("a", 1)
	n.Kill9()
	n.Start()
	assert.Contains(t, n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t).Detail, "its answers are wrong")
}

func TestSwapShowsTheComparisonOfAnEngineThatWakes(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	assert.NotContains(t, phases(n.SwapDone(toNew("b", On(0))).Phases), "canary")
	assert.Contains(t, phases(n.SwapDone(to("a")).Phases), "canary")
	assert.Contains(t, phases(n.Get("a").Timings), "canary")
}

func TestWakesAreBelievedWithoutFingerprints(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--fingerprint=false")
	n.Awake("a", On(0), "--sim-garbled-after-wake", "1")
	n.SwapDone(toNew("b", On(0)))
	assert.NotContains(t, phases(n.SwapDone(to("a")).Phases), "canary")
	assert.Equal(t, "awake", n.Get("a").State)
}

func TestEngineThatHangsWhileAwakeIsEnded(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--fingerprint=false", "--hang-timeout", "500ms")
	a := n.Awake("a", On(0), "--sim-mute-after", "1ms")
	go func() {
		_, _ = tryCall(context.Background(), "POST", publicURL(a, "/v1/completions"), map[string]any{"prompt": "hello"})
	}()
	a = n.Await("a", "failed")
	assert.Equal(t, "no_answers", a.Cause)
	assert.Contains(t, a.Reason, "answers /health and no request")
	n.SwapDone(to("a")) // it starts again
	assert.Equal(t, "awake", n.Get("a").State)
}

func TestModelsThatEmbedHaveACanaryAndAFingerprint(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	r := n.SwapDone(with(toNew("b", On(0), "--runner", "pooling", "--sim-garbled-after-wake", "1"), "canary", true))
	assert.Contains(t, phases(r.Phases), "canary")
	n.SwapDone(to("a"))
	undone(t, n, a, n.Swap(to("b")), 502, "canary")
	assert.Contains(t, n.Get("b").Reason, "its answers are wrong")
}

func TestEngineThatForbidsLogprobsHasAFingerprint(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--max-logprobs", "0", "--sim-garbled-after-wake", "1")
	n.Sleep("a", 1)
	p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
	require.Equal(t, launcherapi.CodeEngineFailed, p.Code)
	assert.Contains(t, p.Detail, "its answers are wrong")
}
