package e2e

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Rows of the section "Ranks and port leases" of spec/rows.md: a server whose ranks are instances of two
// launchers. The tests are the controller, which tells each launcher its part.

func leasePath(id string) string { return "/v2/port-leases/" + id }

// Lease leases ports for an instance that is yet to be created.
func (n *Node) Lease(id string, count int) launcherapi.PortLease {
	n.t.Helper()
	a := n.Call("PUT", leasePath(id), map[string]any{"count": count})
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var l launcherapi.PortLease
	a.Into(n.t, &l)
	require.Len(n.t, l.Ports, count)
	return l
}

// rankSpec is the body of one of two ranks, which share the model m.
func rankSpec(index, port int, args ...string) map[string]any {
	spec := Spec("m", On(0), append([]string{"-tp", "2"}, args...)...)
	spec["rank"] = map[string]any{"group": "m", "index": index, "size": 2, "entry": fmt.Sprintf("127.0.0.1:%d", port)}
	return spec
}

// requireVariables checks variables of the process of an instance.
func requireVariables(t *testing.T, i launcherapi.Instance, variables map[string]string) {
	t.Helper()
	for name, value := range variables {
		require.True(t, harness.Process{PID: i.PID}.Has(name, value), "%s=%s", name, value)
	}
}

// tellBoth tells sleep or wake to the launchers of the entry m-0 and of the worker m-1, at once.
func tellBoth(first, second *Node, verb string) {
	first.t.Helper()
	told := make(chan Answer, 1)
	go func() { // the worker waits until the entry has obeyed
		a, _ := send(second.t.Context(), second.checked(), "POST", second.URL+"/v2/vllm/instances/m-1/"+verb, nil)
		told <- a
	}()
	require.Equal(first.t, 200, first.Call("POST", "/v2/vllm/instances/m-0/"+verb, nil).Status)
	a := <-told
	require.Equal(first.t, 200, a.Status, "%s", a.Body)
}

func TestTwoLaunchersServeOneModelTogether(t *testing.T) {
	t.Parallel()
	first, second := NewNode(t), NewNode(t)
	lease := first.Lease("m-0", 2)
	entry := first.Create("m-0", rankSpec(0, lease.Ports[0], "--sim-dead-delay", "0s"))
	assert.Equal(t, lease.Ports, entry.Leased)
	requireVariables(t, entry, map[string]string{"GROUP_SIZE": "2", "WORKER_INDEX": "0", "ENTRY_ADDRESS": "127.0.0.1"})
	worker := second.Create("m-1", rankSpec(1, lease.Ports[0]))
	assert.Zero(t, worker.Port)
	requireVariables(t, worker, map[string]string{"GROUP_SIZE": "2", "WORKER_INDEX": "1", "ENTRY_ADDRESS": "127.0.0.1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})
	entry, worker = first.Await("m-0", "awake"), second.Await("m-1", "awake")
	assert.NotEmpty(t, first.Ask(entry, "x"))

	second.gpus() // its launcher sees that the worker has loaded
	tellBoth(first, second, "sleep")
	for _, i := range []launcherapi.Instance{first.Get("m-0"), second.Get("m-1")} {
		assert.Equal(t, "sleeping", i.State)
		assert.Less(t, i.GPUBytes[GPU(0)], uint64(4<<30), "it has given back its device memory")
	}
	tellBoth(first, second, "wake")
	assert.Equal(t, entry.PID, first.Get("m-0").PID)
	assert.Equal(t, worker.PID, second.Get("m-1").PID)
	assert.NotEmpty(t, first.Ask(entry, "x"))

	first.Kill9()
	second.Kill9()
	first.Start()
	second.Start()
	assert.Equal(t, lease.Ports, first.Await("m-0", "awake").Leased)
	assert.Equal(t, worker.PID, second.Await("m-1", "awake").PID)
	assert.NotEmpty(t, first.Ask(first.Get("m-0"), "x"))

	require.NoError(t, syscall.Kill(worker.PID, syscall.SIGKILL))
	second.Await("m-1", "failed")
	assert.Equal(t, "awake", first.Get("m-0").State, "the launcher of the entry does not know the others")
	first.Delete("m-0")
	assert.Equal(t, 404, first.Call("DELETE", leasePath("m-0"), nil).Status, "the lease has ended with its instance")
}

func TestLeasedPortsAreKeptForTheirInstance(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	lease := n.Lease("a", 2)
	for _, port := range lease.Ports {
		_, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		assert.ErrorContains(t, err, "address already in use", "no other process gets it")
		refused := n.Call("PUT", instances+"/b", Spec("b", On(1), "--port", strconv.Itoa(port))).Problem(t)
		assert.Equal(t, launcherapi.CodePortTaken, refused.Code)
	}
	n.Kill9()
	n.Start()
	assert.Equal(t, lease.Ports, n.Lease("a", 2).Ports)

	refused := n.Call("PUT", instances+"/b", Spec("b", On(1), "--seed", "$(PORT_0)")).Problem(t)
	assert.Equal(t, 422, refused.Status)
	assert.Contains(t, refused.Detail, "PUT /v2/port-leases/ID")

	spec := Spec("a", On(0), "--seed", "$(PORT_1)")
	spec["env_vars"] = map[string]string{"SIDE_CHANNEL": "$(PORT_0)"}
	made := n.Create("a", spec)
	assert.Equal(t, lease.Ports, made.Leased)
	requireVariables(t, made, map[string]string{"SIDE_CHANNEL": strconv.Itoa(lease.Ports[0])})
	argv := harness.ArgsOf(made.PID)
	assert.Equal(t, strconv.Itoa(lease.Ports[1]), argv[slices.Index(argv, "--seed")+1])
	assert.Contains(t, made.Args, "$(PORT_1)", "the text is the identity")
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lease.Ports[0])))
	require.NoError(t, err, "the engine may listen there by itself")
	require.NoError(t, l.Close())
	assert.Equal(t, 409, n.Call("DELETE", leasePath("a"), nil).Status)
	n.Await("a", "awake")
	n.Delete("a")
	assert.Equal(t, 404, n.Call("DELETE", leasePath("a"), nil).Status)
}

func TestSwapBringsInARank(t *testing.T) {
	t.Parallel()
	first, second := NewNode(t), NewNode(t)
	first.Awake("old", On(0))
	second.Awake("old", On(0))
	lease := first.Lease("m-0", 1)
	swap := func(id string, index int) map[string]any {
		in := rankSpec(index, lease.Ports[0])
		in["id"] = id
		return map[string]any{"in": in, "canary": true}
	}
	second.SwapDone(swap("m-1", 1))
	result := first.SwapDone(swap("m-0", 0))
	assert.NotEmpty(t, first.Ask(*result.In, "x"))
	assert.Equal(t, "sleeping", second.Get("old").State)
	require.NoError(t, syscall.Kill(result.In.PID, syscall.SIGKILL))
	first.Await("m-0", "failed")
	assert.Equal(t, "awake", second.Get("m-1").State, "it stays without a word, and does not end by SIGTERM")
	second.Delete("m-1")
	refused := first.Swap(map[string]any{"in": rankSpec(0, 1)}).Problem(t)
	assert.Equal(t, 422, refused.Status)
	assert.Equal(t, "body.rank.entry", refused.Errors[0].Location)
}

func TestWorkerOnCPUSleepsOnceItsSwapIsCommitted(t *testing.T) {
	t.Parallel()
	onCPU := []string{"--vllm", "env -u HOTSEAT_SIMGPU_DIR " + bin.enginesim, "--starting-grace", "1s"}
	first, second := NewNode(t, onCPU...), NewNode(t, onCPU...)
	lease := first.Lease("m-0", 1)
	second.Create("m-1", rankSpec(1, lease.Ports[0]))
	second.Await("m-1", "awake")
	refused := second.Call("POST", instances+"/m-1/sleep", nil).Problem(t)
	assert.Equal(t, 409, refused.Status)
	assert.Contains(t, refused.Detail, `bring it in by a swap with "until": "healthy", and commit that`)
	second.Delete("m-1")

	in := rankSpec(1, lease.Ports[0])
	in["id"] = "m-1"
	answered := second.inHalves(map[string]any{"in": in})
	swap := second.inPhase(launcherapi.PhaseGo)
	assert.Equal(t, 200, second.Call("POST", swap+"/go", nil).Status)
	first.Create("m-0", rankSpec(0, lease.Ports[0]))
	first.Await("m-0", "awake")
	assert.Equal(t, swap, second.inPhase(launcherapi.PhaseCommit))
	assert.Equal(t, 200, second.Call("POST", swap+"/commit", nil).Status)
	<-answered
	tellBoth(first, second, "sleep")
	second.Kill9()
	second.Start()
	tellBoth(first, second, "wake")
	assert.NotEmpty(t, first.Ask(first.Get("m-0"), "x"))
	tellBoth(first, second, "sleep")
	assert.Equal(t, []string{"sleeping", "sleeping"}, []string{first.Get("m-0").State, second.Get("m-1").State})
}

// The test is a controller that swaps on two launchers by swaps in two halves.
func TestTwoLaunchersSwapTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	nodes := []*Node{NewNode(t), NewNode(t)}
	for _, n := range nodes {
		n.Awake("old", On(0))
	}
	begin := func(attempt string, entryArgs ...string) (swaps []string, answered []<-chan struct{}) {
		ids := []string{"entry-" + attempt, "worker-" + attempt}
		port := nodes[0].Lease(ids[0], 1).Ports[0]
		for index, n := range nodes {
			in := rankSpec(index, port)
			if index == 0 {
				in = rankSpec(index, port, entryArgs...)
			}
			in["id"] = ids[index]
			answered = append(answered, n.inHalves(map[string]any{"in": in}))
			swaps = append(swaps, n.inPhase(launcherapi.PhaseGo))
			assert.Equal(t, "awake", n.Get("old").State)
		}
		for index, n := range nodes {
			assert.Equal(t, 200, n.Call("POST", swaps[index]+"/go", nil).Status)
		}
		return swaps, answered
	}

	swaps, answered := begin("fails", "--sim-crash-at-load", "exit:3")
	<-answered[0]
	assert.Equal(t, swaps[1], nodes[1].inPhase(launcherapi.PhaseCommit), "the worker waits for what becomes of the entry")
	assert.Equal(t, 200, nodes[1].Call("POST", swaps[1]+"/undo", nil).Status)
	<-answered[1]
	for _, n := range nodes {
		assert.Equal(t, "awake", n.Get("old").State)
	}
	assert.Equal(t, 404, nodes[1].Call("GET", instances+"/worker-fails", nil).Status)

	swaps, answered = begin("serves")
	for index, n := range nodes {
		assert.Equal(t, swaps[index], n.inPhase(launcherapi.PhaseCommit))
	}
	for index, n := range nodes {
		assert.Equal(t, 200, n.Call("POST", swaps[index]+"/commit", nil).Status)
		<-answered[index]
		assert.Equal(t, "sleeping", n.Get("old").State)
	}
	assert.NotEmpty(t, nodes[0].Ask(nodes[0].Get("entry-serves"), "x"))
}
