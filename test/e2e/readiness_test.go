package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAnInstanceWhoseSwapMayStillBeUndoneIsNotSaidToServe(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0), "--sim-token-time", "1h"))
	n.SwapDone(to("a"))
	b := n.Get("b")
	n.later("POST", "/v2/vllm/swap", with(to("b"), "canary", true, "timeout", "3s"))
	n.Await("b", "awake")
	for n.Get("b").State == "awake" {
		if status, asleep := isSleeping(t, b); status == 200 && n.Get("b").State == "awake" {
			assert.True(t, asleep, "its gate is shut until its canary has answered")
			break
		}
	}
	n.Await("a", "awake") // undone
	assert.Equal(t, "sleeping", n.Get("b").State)
}
