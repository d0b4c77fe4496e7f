package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// door is a node with a front door, and its address.
func door(t *testing.T, flags ...string) (n *Node, url string) {
	t.Helper()
	address := freeAddress(t)
	return NewNode(t, append([]string{"--front-door", address}, flags...)...), "http://" + address
}

// question is the body of a request for one token of a model.
func question(model string) map[string]any {
	return map[string]any{"model": model, "prompt": "who are you?", "max_tokens": 4, "temperature": 0}
}

func TestFrontDoorWakesTheModelThatARequestNames(t *testing.T) {
	t.Parallel()
	n, url := door(t)
	a := n.Awake("a", On(0))
	first := n.Ask(a, "who are you?")
	b := n.SwapDone(toNew("b", On(0))).In
	for _, model := range []string{"a", "b", "a"} {
		got := call(t, "POST", url+"/v1/completions", question(model))
		require.Equal(t, 200, got.Status, "%s", got.Body)
		assert.Equal(t, "awake", n.Get(model).State)
	}
	assert.Equal(t, a.PID, n.Get("a").PID, "it was woken, not started")
	assert.Equal(t, first, n.Ask(n.Get("a"), "who are you?"))
	assert.Equal(t, b.PID, n.Get("b").PID)
	list := call(t, "GET", url+"/v1/models", nil)
	require.Equal(t, 200, list.Status)
	var models struct {
		Data []struct{ ID, State string }
	}
	list.Into(t, &models)
	require.Len(t, models.Data, 2)
	assert.Equal(t, "a", models.Data[0].ID)
	assert.Equal(t, "awake", models.Data[0].State)
	assert.Equal(t, "sleeping", models.Data[1].State)
}

func TestHundredRequestsForASleeperWakeItOnce(t *testing.T) {
	t.Parallel()
	n, url := door(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	before := len(n.swaps())
	var all sync.WaitGroup
	status := make([]int, 100)
	for k := range status {
		all.Go(func() {
			got, err := tryCall(t.Context(), "POST", url+"/v1/completions", question("a"))
			if assert.NoError(t, err) {
				status[k] = got.Status
			}
		})
	}
	all.Wait()
	for _, s := range status {
		assert.Equal(t, 200, s)
	}
	assert.Len(t, n.swaps(), before+1)
}

func TestClientThatLeavesTheFrontDoorFreesItsPlace(t *testing.T) {
	t.Parallel()
	n, url := door(t, "--max-held-requests", "1")
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	ctx, leave := context.WithCancel(t.Context())
	require.Equal(t, 200, call(t, "POST", url+"/v1/completions", question("b")).Status)
	held := make(chan error, 1)
	release := stall(t, n)
	go func() {
		for { // a look of the test may have the place
			got, err := tryCall(ctx, "POST", url+"/v1/completions", question("a"))
			if err != nil || got.Status != http.StatusTooManyRequests {
				held <- err
				return
			}
		}
	}()
	n.Eventually("the queue is full", func() bool {
		brief, end := context.WithTimeout(t.Context(), 100*time.Millisecond) // it may get a place itself
		defer end()
		got, err := tryCall(brief, "POST", url+"/v1/completions", question("a"))
		return err == nil && got.Status == http.StatusTooManyRequests && got.Header.Get("Retry-After") != ""
	})
	leave()
	require.ErrorIs(t, <-held, context.Canceled)
	release()
	n.Eventually("there is a place", func() bool {
		got, err := tryCall(t.Context(), "POST", url+"/v1/completions", question("a"))
		return err == nil && got.Status == http.StatusOK
	})
}

// stall lets no swap go on until release is called.
func stall(t *testing.T, n *Node) (release func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		body := map[string]any{"in": map[string]any{"instance_id": "b"}, "prepare": true, "hold": "5m"}
		_, _ = tryCall(ctx, "POST", n.URL+"/v2/vllm/swap", body) // ends with release
	}()
	var id string
	n.Eventually("the swap has its turn", func() bool {
		for _, s := range n.swaps() {
			if s.Phase == "go" {
				id = s.SwapID
			}
		}
		return id != ""
	})
	return func() {
		assert.Less(t, n.Call("DELETE", "/v2/swaps/"+id, nil).Status, 300)
		end()
		<-over
	}
}

func TestFrontDoorThatWasAskedForAtATakenAddressIsRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	n := NewStoppedNode(t)
	n.args = append(n.args, "--front-door", taken.Addr().String())
	out, errs, code := n.commands(n.args...)
	assert.Equal(t, 2, code, "%s", out)
	assert.Contains(t, errs, "cannot listen for the front door")
	assert.Contains(t, errs, "choose another address by --front-door")
	assert.NotContains(t, errs, "--listen", "the other address is well")
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "front_door: %q\n", "0.0.0.0:8000"), 0o600))
	out, errs, code = n.commands("serve", "--config", file)
	assert.Equal(t, 2, code, "%s", out)
	assert.Contains(t, errs, "front_door: 0.0.0.0:8000 can be reached from other machines, and there is no token")
}
