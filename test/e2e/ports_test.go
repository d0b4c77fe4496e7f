package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// withholdBody begins a request at an instance's port, announces a body and
// never sends one.
func withholdBody(t *testing.T, i launcherapi.Instance, path string) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
}

// withholdBodies does so in every way that a port takes requests, and waits
// until the instance counts the one for its model.
func (n *Node) withholdBodies(i launcherapi.Instance) {
	n.t.Helper()
	for _, path := range []string{"/v1/completions", "/ping", "/collective_rpc", "/sleep"} {
		withholdBody(n.t, i, path)
	}
	n.Eventually("the request is counted", func() bool { now := n.Get(i.InstanceID); return now.InFlight+now.Held > 0 })
}

// patientWithClients are the settings of a launcher that waits for clients for longer than a
// test does.
var patientWithClients = []string{"--hold-timeout", "1h", "--drain-timeout", "1h"}

// within fails when something takes so long that the launcher seems to wait for its clients.
func within(t *testing.T, what string, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	do(ctx)
	assert.Less(t, time.Since(began), patience, what)
}

// chargedOn says whether anybody holds memory of a simulated GPU.
func (n *Node) chargedOn(gpu int) bool {
	n.t.Helper()
	var list launcherapi.GPUList
	n.Call("GET", "/v2/gpus", nil).Into(n.t, &list)
	return list.GPUs[gpu].MemoryUsedBytes > 0 || len(list.GPUs[gpu].Awake) > 0
}

func TestAClientThatSendsNoBodyDoesNotHoldUpADelete(t *testing.T) {
	t.Parallel()
	n := NewNode(t, patientWithClients...)
	awake := n.Awake("awake", On(0))
	asleep := n.Awake("asleep", On(1))
	n.Sleep("asleep", 1)
	starting := n.Create("starting", Spec("starting", On(1), "--sim-load-time", "1h"))
	for _, i := range []launcherapi.Instance{awake, asleep, starting} {
		n.withholdBodies(i)
		within(t, "the delete of the one that was "+i.InstanceID, func(ctx context.Context) {
			a, err := send(ctx, n.checked(), "DELETE", n.URL+instances+"/"+i.InstanceID, nil)
			if assert.NoError(t, err) {
				assert.Equal(t, 200, a.Status, "%s", a.Body)
			}
		})
		again := n.Create("again-"+i.InstanceID, Spec("m", nil, "--port", fmt.Sprint(i.Port)))
		assert.Equal(t, i.Port, again.Port, "the port can be had again at once")
	}
}

func TestAClientThatSendsNoBodyDoesNotKeepACrashedInstance(t *testing.T) {
	t.Parallel()
	n := NewNode(t, patientWithClients...)
	a := n.Awake("a", On(0))
	n.withholdBodies(a)
	require.NoError(t, syscall.Kill(a.PID, syscall.SIGKILL))
	within(t, "the GPU of a crashed engine", func(context.Context) {
		n.Eventually("the instance failed", func() bool { return n.Get("a").State == "failed" })
		n.Eventually("the GPU is free", func() bool { return !n.chargedOn(0) })
		n.Eventually("its port is free", func() bool {
			return n.Call("PUT", instances+"/b", Spec("b", On(0), "--port", fmt.Sprint(a.Port))).Status == 201
		})
	})
}

func TestAClientThatSendsNoBodyDoesNotHoldUpASwapThatStopsTheOldOne(t *testing.T) {
	t.Parallel()
	n := NewNode(t, patientWithClients...)
	a := n.Awake("a", On(0))
	n.withholdBodies(a)
	within(t, "the swap", func(ctx context.Context) {
		a, err := send(ctx, n.checked(), "POST", n.URL+"/v2/vllm/swap", map[string]any{
			"gpu_uuids": On(0), "in": map[string]any{"id": "b", "args": []string{"b"}}, "out": map[string]any{"mode": "stop"}, "drain_timeout": "100ms",
		})
		if assert.NoError(t, err) {
			assert.Equal(t, 200, a.Status, "%s", a.Body)
		}
	})
}

func TestAClientThatSendsNoBodyDoesNotHoldUpTheLaunchersEnd(t *testing.T) {
	t.Parallel()
	for _, onExit := range []string{"stop", "leave"} {
		t.Run(onExit, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--hold-timeout", "1h", "--drain-timeout", "100ms", "--on-exit", onExit)
			t.Cleanup(n.endEngines)
			awake := n.Awake("awake", On(0))
			asleep := n.Awake("asleep", On(1))
			n.Sleep("asleep", 1)
			n.withholdBodies(awake)
			n.withholdBodies(asleep)
			within(t, "the launcher's end", func(context.Context) { n.Stop() })
		})
	}
}

// endEngines has a launcher that leaves its engines stop them at the test's end.
func (n *Node) endEngines() {
	if n.Running() {
		n.Stop()
	}
	n.args[len(n.args)-1] = "stop"
	n.Start()
}

func TestALauncherThatLeavesItsEnginesEndsThoughClientsAskWhetherTheySleep(t *testing.T) {
	t.Parallel()
	n := NewNode(t, append(slices.Clone(patientWithClients), "--llm-d-compat", "--on-exit", "leave")...)
	t.Cleanup(n.endEngines)
	ctx, enough := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for k := range 6 {
		url := publicURL(n.Awake(fmt.Sprint("a", k), nil, "--gpu-memory-utilization", "0.1"), "/is_sleeping")
		for range 4 {
			asking.Go(func() {
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for ctx.Err() == nil {
					if _, err := send(ctx, client, "GET", url, nil); err != nil {
						return // the port is closed
					}
				}
			})
		}
	}
	within(t, "the launcher's end", func(context.Context) { n.Stop() })
	enough()
	asking.Wait()
}

func TestClientsThatHangUpGiveTheirPlacesAtTheGateBack(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--max-held-requests", "8")
	a := n.Awake("a", On(0))
	n.Sleep("a", 1)
	body := fmt.Sprintf(`{"model":"a","max_tokens":1,"prompt":%q}`, strings.Repeat("word ", 160_000))
	ctx, hangUp := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { _, _ = tryCall(ctx, "POST", publicURL(a, "/v1/completions"), body) })
	}
	n.Eventually("all places are taken", func() bool { return n.Get("a").Held == 8 })
	refused := call(t, "POST", publicURL(a, "/v1/completions"), map[string]any{"model": "a", "prompt": "hello"})
	assert.Equal(t, 429, refused.Status)
	assert.Contains(t, string(refused.Body), "sleeping", "the answer says how the instance is now")
	assert.NotContains(t, string(refused.Body), "falling_asleep")
	hangUp()
	asking.Wait()
	n.Eventually("all places are free", func() bool { return n.Get("a").Held == 0 })
}
