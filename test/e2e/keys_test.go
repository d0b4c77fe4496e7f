package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What an idempotency key promises, over the death of the launcher.

// nameless is a swap request that brings a new instance in, whose id the
// launcher makes: each time that the request is done there is another one.
func nameless(args ...string) map[string]any {
	return map[string]any{"gpu_uuids": On(0), "in": map[string]any{
		"args":     append([]string{"m", "--served-model-name", "m"}, args...),
		"env_vars": map[string]any{"HF_TOKEN": "hf_verysecretword"},
	}}
}

func TestAKeyOutlivesTheLauncher(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	first := n.Swap(nameless(), "Idempotency-Key", "k")
	require.Equal(t, 200, first.Status, "%s", first.Body)
	failed := n.Swap(nameless("--sim-crash-at-load", "exit:3"), "Idempotency-Key", "f")
	require.Equal(t, 502, failed.Status, "%s", failed.Body)
	n.Kill9()
	written := filesText(t, filepath.Join(n.State, "swaps"))
	assert.Contains(t, written, launcherapi.OutcomeDone)
	assert.NotContains(t, written, "hf_verysecretword")
	n.Start()

	again := n.Swap(nameless(), "Idempotency-Key", "k")
	assert.Equal(t, 200, again.Status, "%s", again.Body)
	assert.JSONEq(t, string(first.Body), string(again.Body))
	again = n.Swap(nameless("--sim-crash-at-load", "exit:3"), "Idempotency-Key", "f")
	assert.Equal(t, 502, again.Status, "%s", again.Body)
	assert.JSONEq(t, string(failed.Body), string(again.Body))
	assert.Len(t, n.settled(), 2, "a and the new one")

	other := n.Swap(with(nameless(), "canary", true), "Idempotency-Key", "k").Problem(t)
	assert.Equal(t, launcherapi.CodeKeyReused, other.Code)
	steps := progress(t, n.Swap(nameless(), "Idempotency-Key", "k", "Accept", "application/x-ndjson"))
	assert.Equal(t, launcherapi.ProgressResult, steps[len(steps)-1].Type)
}

func TestARetryAfterAKillInTheMiddleOfASwapJoinsIt(t *testing.T) {
	t.Parallel()
	for point, c := range map[string]struct {
		flags  []string
		status int
		phase  string
	}{
		"swap.sleep.done":    {nil, 502, "sleep"},
		"swap.healthy.begun": {nil, 200, ""},
		"swap.open.done":     {nil, 200, ""},
		"swap.undo.begun":    {[]string{"--sim-crash-at-load", "exit:3"}, 502, "healthy"},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			n.crashAt(point)
			go func() {
				_, _ = tryCall(t.Context(), "POST", n.URL+"/v2/vllm/swap", nameless(c.flags...), "Idempotency-Key", "k")
			}()
			n.comeBack()
			answer := n.Swap(nameless(c.flags...), "Idempotency-Key", "k")
			require.Equal(t, c.status, answer.Status, "%s", answer.Body)
			all := n.settled()
			if c.status == 200 {
				var r launcherapi.SwapResult
				answer.Into(t, &r)
				assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
				assert.NotEmpty(t, r.SwapID)
				assert.Len(t, all, 2, "a and one new one")
				assert.Equal(t, "awake", all[r.In.InstanceID].State)
				return
			}
			p := answer.Problem(t)
			assert.Equal(t, launcherapi.OutcomeUndone, p.Outcome)
			assert.Equal(t, c.phase, p.FailedPhase)
			assert.Len(t, all, 1, "a alone")
			assert.Equal(t, "awake", all["a"].State)
			assert.Equal(t, a.PID, all["a"].PID)
		})
	}
}
