package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What belongs to a swap from its admission to its end: the id, the port and
// the place of a new instance, and the sleepers that it is going to evict.

// slowly makes an engine whose answers take for ever.
const slowly = "100ms"

// draining begins a swap while an answer of an instance is in flight, and
// returns once that instance drains. end ends the answer, and with it the
// drain; result gives the answer to the swap.
func draining(t *testing.T, n *Node, leaving launcherapi.Instance, body map[string]any) (end func(), result <-chan Answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	asked := fmt.Sprintf(`{"model":%q,"prompt":"tell me","max_tokens":1000,"ignore_eos":true,"stream":true}`, leaving.ServedModelNames[0])
	req, err := http.NewRequestWithContext(ctx, "POST", publicURL(leaving, "/v1/completions"), strings.NewReader(asked))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.True(t, bufio.NewScanner(resp.Body).Scan(), "the first token")
	end = func() { cancel(); _ = resp.Body.Close() }
	t.Cleanup(end)
	body["drain_timeout"] = "60s"
	result = n.swapping(body)
	n.Eventually(leaving.InstanceID+" drains", func() bool { return n.Get(leaving.InstanceID).State == "falling_asleep" })
	return end, result
}

// swapping asks for a swap and does not wait for its end.
func (n *Node) swapping(body map[string]any) <-chan Answer {
	result := make(chan Answer, 1)
	go func() {
		answer, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", body)
		if err != nil {
			answer.Body = []byte(err.Error())
		}
		result <- answer
	}()
	return result
}

// done checks that a swap succeeded.
func done(t *testing.T, result <-chan Answer) (r launcherapi.SwapResult) {
	t.Helper()
	answer := <-result
	require.Equal(t, 200, answer.Status, "%s", answer.Body)
	answer.Into(t, &r)
	require.Equal(t, launcherapi.OutcomeDone, r.Outcome)
	return r
}

// conflict checks that an answer is a 409 that has a code and names somebody.
func conflict(t *testing.T, answer Answer, code, named string) {
	t.Helper()
	p := answer.Problem(t)
	assert.Equal(t, 409, p.Status, "%s", answer.Body)
	assert.Equal(t, code, p.Code)
	assert.Contains(t, p.Detail, named)
}

func TestTheIdOfANewInstanceIsItsSwapsFromTheAdmissionOn(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	end, result := draining(t, n, a, toNew("x", On(0)))
	swap := n.Get("a").SwapID
	require.NotEmpty(t, swap)
	conflict(t, n.Call("PUT", "/v2/vllm/instances/x", Spec("x", On(1))), launcherapi.CodeExists, swap)
	conflict(t, n.Swap(toNew("x", On(1))), launcherapi.CodeExists, swap)
	end()
	x := done(t, result).In
	require.NotNil(t, x)
	assert.Equal(t, On(0), n.Get("x").GPUUUIDs)
	n.Ask(n.Get("x"), "who are you?")
	n.Delete("x")
	n.Awake("x", On(1)) // the id is free again
}

func TestAVictimIsNeitherWokenNorSwappedInNorEvictedAwake(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "2")
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	n.Awake("v", On(1))
	n.Sleep("v", 1)
	end, result := draining(t, n, a, toNew("b", On(0)))
	swap := n.Get("a").SwapID
	conflict(t, n.Call("POST", "/v2/vllm/instances/v/wake", nil), launcherapi.CodeConflict, swap)
	conflict(t, n.Swap(to("v")), launcherapi.CodeConflict, swap)
	assert.Equal(t, "sleeping", n.Get("v").State)
	end()
	assert.Equal(t, []string{"v"}, done(t, result).Evicted)
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/v", nil).Status)
}

func TestAVictimMayBeDeletedBeforeItIsEvicted(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "2")
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	n.Awake("v", On(1))
	n.Sleep("v", 1)
	end, result := draining(t, n, a, toNew("b", On(0)))
	n.Delete("v")
	end()
	assert.Empty(t, done(t, result).Evicted, "a user ended it")
}

func TestAVictimThatIsNotEvictedIsFreeAgain(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "2")
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	n.Awake("v", On(1))
	n.Sleep("v", 1)
	body := toNew("b", On(0))
	body["timeout"] = "1s"
	_, result := draining(t, n, a, body)
	answer := <-result
	require.Equal(t, 504, answer.Status, "%s", answer.Body)
	assert.Empty(t, n.Get("v").SwapID)
	n.Wake("v")
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}

func TestASwapToATakenPortTouchesNobody(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--engine-socket", "never")
	n.Awake("a", On(0))
	other := n.Awake("other", On(1))
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer stranger.Close()
	before := n.Get("a")
	for whose, port := range map[string]string{
		"another instance's": strconv.Itoa(other.Port),
		"an engine's":        enginePort(t, other),
		"a stranger's":       portOf(t, stranger.Addr().String()),
		"the launcher's own": portOf(t, strings.TrimPrefix(n.URL, "http://")),
	} {
		for _, dryRun := range []bool{true, false} {
			body := toNew("b", On(0), "--port", port)
			body["dry_run"] = dryRun
			answer := n.Swap(body)
			conflict(t, answer, launcherapi.CodePortTaken, port)
			now := n.Get("a")
			assert.Equal(t, before, now, "%s, dry_run %v", whose, dryRun)
			assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
		}
	}
}

func TestThePortOfANewInstanceIsItsSwapsAndGivenBackWhenThatFails(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	port := freePort(t)
	dry := toNew("b", On(0), "--port", port)
	dry["dry_run"] = true
	assert.Equal(t, launcherapi.OutcomeDryRun, n.SwapDone(dry).Outcome)

	body := toNew("b", On(0), "--port", port)
	body["timeout"] = "2s"
	_, result := draining(t, n, a, body)
	_, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.Error(t, err, "it is the swap's")
	conflict(t, n.Call("PUT", "/v2/vllm/instances/c", Spec("c", On(1), "--port", port)), launcherapi.CodePortTaken, port)
	answer := <-result
	require.Equal(t, 504, answer.Status, "%s", answer.Body)
	n.Awake("c", On(1), "--port", port) // it is given back
}

func TestAPlaceUnderMaxInstancesIsReservedForASwap(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "2")
	a := n.Awake("a", On(0), "--sim-token-time", slowly)
	end, result := draining(t, n, a, toNew("b", On(0)))
	refused := n.Call("PUT", "/v2/vllm/instances/c", Spec("c", On(1)))
	conflict(t, refused, launcherapi.CodeDoesNotFit, "max_instances")
	require.NotNil(t, refused.Problem(t).Fit)
	assert.Equal(t, "max_instances", refused.Problem(t).Fit.Bound)
	end()
	done(t, result)
	n.Delete("a")
	n.Awake("c", On(1)) // nothing stays reserved
}

func TestASwapThatEndsTheOldOneNeedsNoPlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-instances", "1")
	n.Awake("a", On(0))
	body := toNew("b", On(0))
	body["out"] = map[string]any{"mode": "stop"}
	n.SwapDone(body)
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/a", nil).Status)
	assert.Equal(t, 409, n.Call("PUT", "/v2/vllm/instances/c", Spec("c", On(1))).Status)
}

func TestTheBudgetOfAnotherGPUDoesNotRefuseASwap(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--budgets-max-sleepers-per-gpu", "1")
	for _, id := range []string{"p", "q"} {
		pinned := Spec(id, On(1))
		pinned["annotations"] = map[string]string{launcherapi.AnnotationPinned: "true"}
		n.Create(id, pinned)
		n.Await(id, "awake")
		n.Sleep(id, 1)
	}
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	assert.Equal(t, "sleeping", n.Get("a").State)
	n.SwapDone(toNew("r", On(1))) // it leaves as many sleepers there as before
}

func TestASwapThatWaitsForAnOccupantsTimeGoesOnWhenTheOccupantGoes(t *testing.T) {
	t.Parallel()
	for how, leave := range map[string]func(n *Node){
		"it is deleted":      func(n *Node) { n.Delete("a") },
		"it is put to sleep": func(n *Node) { n.Sleep("a", 1) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--budgets-min-residency", "1h")
			n.Awake("a", On(0))
			body := toNew("b", On(0))
			body["timeout"] = "30s"
			result := n.swapping(body)
			n.Eventually("the swap waits", func() bool {
				var list launcherapi.GPUList
				n.Call("GET", "/v2/gpus", nil).Into(t, &list)
				return list.QueuedSwaps+list.ActiveSwaps == 1
			})
			assert.Equal(t, launcherapi.OutcomeNoop, n.SwapDone(to("a")).Outcome, "one that sends nobody away need not wait")
			leave(n)
			done(t, result)
		})
	}
}

func TestASwapGoesOnWhenWhoLeavesIsDeleted(t *testing.T) {
	t.Parallel()
	t.Run("and brings the new one in", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0), "--sim-token-time", slowly)
		_, result := draining(t, n, a, toNew("b", On(0)))
		n.Delete("a")
		r := done(t, result)
		assert.Equal(t, []string{"a"}, r.Deleted)
		assert.Empty(t, r.Out)
		n.Ask(n.Get("b"), "who are you?")
	})
	t.Run("and does not bring the deleted one back", func(t *testing.T) {
		t.Parallel()
		n := NewNode(t)
		a := n.Awake("a", On(0), "--sim-token-time", slowly)
		_, result := draining(t, n, a, toNew("b", On(0), "--sim-crash-at-load", "exit:3"))
		n.Delete("a")
		answer := <-result
		p := answer.Problem(t)
		assert.Equal(t, 502, p.Status, "%s", answer.Body)
		assert.Equal(t, "healthy", p.FailedPhase)
		assert.Equal(t, launcherapi.OutcomeUndoFailed, p.Outcome, "a is not awake again")
		assert.Contains(t, string(answer.Body), `"deleted":["a"]`)
		var members struct{ Deleted []string }
		require.NoError(t, json.Unmarshal(answer.Body, &members))
		assert.Equal(t, []string{"a"}, members.Deleted)
	})
}
