//go:build vllm

package vllm

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// existing names an instance that is to come in.
func existing(id string) launcherapi.SwapIn { return launcherapi.SwapIn{InstanceID: id} }

// Two engines serve all of these rows, one after the other, since each takes
// most of a minute to start.
func TestTwoModelsTakeTurnsOnAGPU(t *testing.T) {
	t.Parallel()
	door, err := harness.FreeAddress()
	require.NoError(t, err)
	n := newNode(t, by(launcherapi.StartFork), func(n *node) { n.flags = append(n.flags, "--front-door", door) })
	n.preloaded("")
	n.create("a", gpu(0), arguments(modelA, "tiny-a"))
	a := n.await("a", "awake")
	var b launcherapi.Instance
	var aSays, bSays string

	// Swap: A→B where B is new.
	require.True(t, n.show("a model swaps in beside one that is awake, which then sleeps", func(t *testing.T) {
		aSays = ask(t, a)
		assert.Equal(t, aSays, ask(t, a), "at temperature 0 a model says the same again")
		r := n.swapTo(launcherapi.SwapIn{ID: "b", Args: arguments(modelB, "tiny-b")}, 1)
		b = *r.In
		bSays = ask(t, b)
		assert.NotEqual(t, aSays, bSays, "the answers tell the models apart")
		assert.Equal(t, a.PID, n.get("a").PID)
	}))

	// Swap: A→B where B is asleep at level 1, and at level 2.
	for _, level := range []int{1, 2} {
		n.show(fmt.Sprintf("models swap back and forth at level %d and answer as before", level), func(t *testing.T) {
			n.swapTo(existing("a"), level)
			assert.Equal(t, aSays, ask(t, a))
			n.swapTo(existing("b"), level)
			assert.Equal(t, bSays, ask(t, b))
			n.swapTo(existing("a"), level)
			assert.Equal(t, aSays, ask(t, a))
			n.swapTo(existing("b"), level)
			assert.Equal(t, bSays, ask(t, b))
			assert.Equal(t, []int{a.PID, b.PID}, []int{n.get("a").PID, n.get("b").PID}, "the same processes all along")
		})
	}

	// Swap: a streaming answer in flight ends whole before A sleeps.
	n.show("an answer that is being streamed ends whole before its model sleeps", func(t *testing.T) {
		s := stream(t, b)
		r := n.swapTo(existing("a"), 1)
		s.whole(t)
		assert.Zero(t, r.Cut)
		assert.Equal(t, aSays, ask(t, a))
	})

	n.show("at the front door a request wakes the model that it names", func(t *testing.T) {
		at := launcherapi.Instance{ServedModelNames: []string{"tiny-b"}, Port: portOf(t, door)}
		assert.Equal(t, "sleeping", n.get("b").State)
		assert.Equal(t, bSays, ask(t, at))
		assert.Equal(t, b.PID, n.get("b").PID)
		at.ServedModelNames = []string{"tiny-a"}
		assert.Equal(t, aSays, ask(t, at))
		assert.Equal(t, "sleeping", n.get("b").State)
	})

	// Swap: requests for B that arrive during the swap wait and are served.
	n.show("requests for a model that sleeps are held and answered after the swap", func(t *testing.T) {
		type held struct {
			words string
			err   error
		}
		answers := make(chan held, 3)
		for range cap(answers) {
			go func() {
				words, err := try(t.Context(), b)
				answers <- held{words, err}
			}()
		}
		n.eventually("the requests are held", func() bool { return n.get("b").Held == cap(answers) })
		n.swapTo(existing("b"), 1)
		for range cap(answers) {
			h := <-answers
			require.NoError(t, h.err)
			assert.Equal(t, bSays, h.words)
		}
	})

	// Front door: paths outside the inference list at instance ports: 404,
	// whatever the case, encoding, doubled slashes or dot segments.
	n.show("nobody reaches the engine's developer endpoints at the public port", func(t *testing.T) {
		for _, path := range []string{"/sleep", "/SLEEP", "/%73leep", "//sleep", "/v1/../sleep", "/collective_rpc", "/wake_up", "/reset_prefix_cache"} {
			resp, err := post(t.Context(), b, path, `{"method":"reload_weights"}`)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, http.StatusNotFound, resp.StatusCode, path)
		}
		assert.Equal(t, bSays, ask(t, b), "it is still awake")
	})

	// Surviving: kill −9 of serve; every live child is adopted, none doubled.
	n.show("a new launcher adopts the model that is awake and the one that sleeps", func(t *testing.T) {
		n.kill()
		n.start()
		adopted := [2]launcherapi.Instance{n.get("a"), n.get("b")}
		assert.Equal(t, "sleeping", adopted[0].State)
		assert.Equal(t, "awake", adopted[1].State)
		assert.Equal(t, a.PID, adopted[0].PID)
		assert.Equal(t, b.PID, adopted[1].PID)
		assert.Equal(t, bSays, ask(t, adopted[1]))
		r := n.swapTo(existing("a"), 2)
		assert.Equal(t, aSays, ask(t, *r.In))
		assert.Len(t, harness.Processes(func(p harness.Process) bool {
			return strings.Contains(p.CommandLine(), " serve ") && n.owns(p) && p.PID != n.program.PID()
		}), 2, "none is doubled")
	})
}

// portOf returns the port of an address.
func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	return port
}
