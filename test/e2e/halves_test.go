package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// inPhase waits until the latest swap has got to a phase, and returns its path.
func (n *Node) inPhase(phase string) string {
	n.t.Helper()
	var latest launcherapi.Swap
	n.Eventually("a swap waits in the phase "+phase, func() bool {
		all := n.swaps()
		if len(all) > 0 {
			latest = all[len(all)-1]
		}
		return latest.Phase == phase
	})
	return "/v2/swaps/" + latest.SwapID
}

// inHalves begins a swap that waits for go and for its commit. The channel is closed when it is
// answered, or the launcher has died.
func (n *Node) inHalves(body map[string]any) <-chan struct{} {
	body["prepare"], body["until"] = true, launcherapi.UntilHealthy
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", body)
	}()
	return answered
}

func TestAClientHoldsASwapBeforeItBeginsAndBeforeItEnds(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	killed := n.inHalves(toNew("b", On(0)))
	prepared := n.inPhase(launcherapi.PhaseGo)
	assert.NotEmpty(t, n.Ask(a, "it serves still"))
	n.Kill9()
	<-killed
	n.Start()
	assert.Empty(t, n.swaps(), "it had changed nothing")
	assert.Equal(t, 404, n.Call("POST", prepared+"/go", nil).Status)

	committed := n.inHalves(toNew("b", On(0)))
	assert.Equal(t, 200, n.Call("POST", n.inPhase(launcherapi.PhaseGo)+"/go", nil).Status)
	uncommitted := n.inPhase(launcherapi.PhaseCommit)
	asked := make(chan Answer, 1)
	go func() {
		answer, err := tryCall(context.Background(), "POST", publicURL(n.Get("b"), "/v1/completions"), map[string]any{"model": "b", "prompt": "x", "max_tokens": 2})
		assert.NoError(t, err)
		asked <- answer
	}()
	n.Eventually("the request waits", func() bool { return n.Get("b").Held == 1 })
	assert.Equal(t, []string{"sleeping", "awake"}, []string{n.Get("a").State, n.Get("b").State})
	assert.Equal(t, 200, n.Call("POST", uncommitted+"/commit", nil).Status)
	assert.Equal(t, 200, (<-asked).Status)
	assert.Equal(t, 200, n.Call("POST", uncommitted+"/commit", nil).Status, "the first answer may have been lost")
	assert.Contains(t, n.Call("POST", uncommitted+"/undo", nil).Problem(t).Detail, "it is committed")

	<-committed
	killed = n.inHalves(to("a"))
	assert.Equal(t, 200, n.Call("POST", n.inPhase(launcherapi.PhaseGo)+"/go", nil).Status)
	uncommitted = n.inPhase(launcherapi.PhaseCommit)
	n.Kill9()
	<-killed
	n.Start()
	assert.Equal(t, uncommitted, n.inPhase(launcherapi.PhaseCommit), "it waits in the next life of the launcher, too")
	assert.Equal(t, 200, n.Call("POST", uncommitted+"/undo", nil).Status)
	var over launcherapi.Swap
	n.Eventually("it is undone", func() bool {
		n.Call("GET", uncommitted, nil).Into(t, &over)
		return over.State == launcherapi.SwapOver
	})
	require.NotNil(t, over.Problem)
	assert.Equal(t, launcherapi.OutcomeUndone, over.Problem.Outcome)
	assert.Equal(t, []string{"sleeping", "awake"}, []string{n.Get("a").State, n.Get("b").State})
}

// The budget of sleepers is full: the swap evicts another one, and never the instance that leaves.
func TestBudgetEvictsNoInstanceThatAHeldSwapMayWakeAgain(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-sleepers-per-gpu", "1")
	n.Awake("x", On(0))
	n.SwapDone(toNew("a", On(0)))
	held := n.inHalves(toNew("b", On(0)))
	assert.Equal(t, 200, n.Call("POST", n.inPhase(launcherapi.PhaseGo)+"/go", nil).Status)
	uncommitted := n.inPhase(launcherapi.PhaseCommit)
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/x", nil).Status, "a takes its place")
	assert.Equal(t, []string{"sleeping", "awake"}, []string{n.Get("a").State, n.Get("b").State})
	assert.Equal(t, 200, n.Call("POST", uncommitted+"/undo", nil).Status)
	<-held
	n.Eventually("the old instance is awake again", func() bool { return n.Get("a").State == "awake" })
}
