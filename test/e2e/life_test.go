package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Of the section "Life of an instance" of spec/rows.md: start, awake,
// sleep at both levels, wake after each, stop, delete; a sleep while starting;
// verbs asked for twice; two instances that want one public port.

// heldOn gives what processes hold of a simulated GPU, in bytes.
func heldOn(t *testing.T, n *Node, gpu int) (sum uint64) {
	t.Helper()
	dir, err := simgpu.Open(n.SimFS)
	require.NoError(t, err)
	holders, err := dir.Holders(GPU(gpu))
	require.NoError(t, err)
	for _, h := range holders {
		sum += h.Bytes
	}
	return sum
}

// nothingLeft checks that no process of an engine is left, and no device memory.
func (n *Node) nothingLeft() {
	n.t.Helper()
	for _, pid := range engines(n.SimFS) {
		assert.Fail(n.t, "a process is left", "%d: %s", pid, cmdline(pid))
	}
	for gpu := range 2 {
		assert.Zero(n.t, heldOn(n.t, n, gpu), "bytes of GPU %d", gpu)
	}
}

// refusesConnections checks that nobody listens on a port of loopback.
func refusesConnections(t *testing.T, port int) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		_ = conn.Close()
	}
	assert.Error(t, err, "port %d is given back", port)
}

// happened reads events up to one of a type, and says what came: type, and for
// UPDATED and STOPPED the state.
func happened(t *testing.T, events <-chan launcherapi.RawEvent, last launcherapi.EventType) (seen []string) {
	t.Helper()
	for {
		e := next(t, events)
		var i launcherapi.Instance
		require.NoError(t, json.Unmarshal(e.Object, &i))
		word := string(e.Type)
		if e.Type == launcherapi.EventUpdated || e.Type == launcherapi.EventStopped {
			word += " " + i.State
		}
		seen = append(seen, word)
		if e.Type == last {
			return seen
		}
	}
}

func TestAnInstanceLivesThroughAllItsStatesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, level := range []int{1, 2} {
		t.Run(fmt.Sprintf("sleep level %d", level), func(t *testing.T) {
			n := NewNode(t)
			events, leave := n.Watch("")
			defer leave()
			created := n.Create("a", Spec("a", On(0)))
			assert.Equal(t, "starting", created.State)
			assert.Equal(t, launcherapi.StatusRunning, created.Status)
			awake := n.Await("a", "awake")
			assert.Equal(t, created.PID, awake.PID)
			assert.Equal(t, created.Port, awake.Port)
			says := n.Ask(awake, "who are you?")
			full := heldOn(t, n, 0)
			assert.Equal(t, map[string]uint64{GPU(0): full}, n.Get("a").GPUBytes)

			asleep := n.Sleep("a", level)
			assert.Equal(t, "sleeping", asleep.State)
			assert.Equal(t, level, asleep.SleepLevel)
			residue := heldOn(t, n, 0)
			assert.Less(t, residue, full/2, "the memory is back when the answer comes")
			assert.Equal(t, map[string]uint64{GPU(0): residue}, n.Get("a").GPUBytes)

			woken := n.Wake("a")
			assert.Equal(t, "awake", woken.State)
			assert.Equal(t, awake.PID, woken.PID)
			assert.Zero(t, woken.SleepLevel)
			assert.Equal(t, full, heldOn(t, n, 0))
			assert.Equal(t, says, n.Ask(woken, "who are you?"), "the same model answers the same")
			for _, phase := range []string{"starting", "sleep", "wake"} {
				assert.Contains(t, phases(woken.Timings), phase)
			}

			last := n.Delete("a")
			assert.Equal(t, "stopped", last.State)
			assert.Equal(t, launcherapi.StatusStopped, last.Status)
			n.nothingLeft()
			refusesConnections(t, awake.Port)
			assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/a", nil).Status)
			assert.Equal(t, 404, n.Call("DELETE", "/v2/vllm/instances/a", nil).Problem(t).Status)
			assert.Equal(t, []string{
				"CREATED", "UPDATED awake", "UPDATED falling_asleep", "UPDATED sleeping", "UPDATED waking", "UPDATED awake",
				"UPDATED stopping", "STOPPED stopped", "DELETED",
			}, happened(t, events, launcherapi.EventDeleted))

			again := n.Awake("a", On(0))
			assert.NotEqual(t, awake.PID, again.PID, "the id is free again")
			assert.Equal(t, says, n.Ask(again, "who are you?"))
		})
	}
}

func TestAnInstanceOnSeveralGPUsSleepsAndWakesOnAllOfThem(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(1, 0), "-tp", "2")
	full := heldOn(t, n, 0)
	assert.Equal(t, full, heldOn(t, n, 1))
	n.Sleep("a", 1)
	for gpu := range 2 {
		assert.Less(t, heldOn(t, n, gpu), full/2)
	}
	n.Wake("a")
	n.Ask(n.Get("a"), "hello")
	n.Delete("a")
	n.nothingLeft()
}

func TestASleepWhileStartingIsAConflictAndDisturbsNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	created := n.Create("a", Spec("a", On(0), "--sim-load-time", "1s"))
	p := n.Call("POST", "/v2/vllm/instances/a/sleep", nil).Problem(t)
	assert.Equal(t, 409, p.Status)
	assert.Equal(t, launcherapi.CodeConflict, p.Code)
	assert.Contains(t, p.Detail, "starting")
	woken := n.Wake("a") // a wake joins the start
	assert.Equal(t, "awake", woken.State)
	assert.Equal(t, created.PID, woken.PID)
	n.Ask(woken, "hello")
}

func TestADeleteWhileStartingCancelsTheStart(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"before the engine handles signals": {"--sim-import-time", "1h"},
		"while it loads":                    {"--sim-load-time", "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNode(t, "--starting-grace", "100ms")
			n.Create("a", Spec("a", On(0), args...))
			waked := make(chan Answer, 1)
			go func() {
				answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/instances/a/wake", nil)
				waked <- answer
			}()
			n.Delete("a")
			n.nothingLeft()
			p := (<-waked).Problem(t)
			assert.Contains(t, []int{404, 409}, p.Status, "whoever waits for it is told: %s", p.Detail)
		})
	}
}

func TestAVerbAskedForTwiceGivesTheSameAnswer(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-sleep-time", "300ms", "--sim-wake-time", "300ms")
	n.Wake("a") // it is awake already
	for name, verb := range map[string]string{"falling_asleep": "sleep", "waking": "wake"} {
		if name == "waking" {
			n.Sleep("a", 1)
		} else {
			n.Wake("a")
		}
		answers := make([]launcherapi.Instance, 5)
		var all sync.WaitGroup
		for k := range answers {
			all.Go(func() {
				a, err := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/instances/a/"+verb, nil)
				if assert.NoError(t, err) && assert.Equal(t, 200, a.Status, "%s", a.Body) {
					assert.NoError(t, json.Unmarshal(a.Body, &answers[k]))
				}
			})
		}
		all.Wait()
		for _, a := range answers[1:] {
			assert.Equal(t, answers[0].Revision, a.Revision, "one %s did for all", verb)
			assert.Equal(t, answers[0].State, a.State)
		}
		once := n.Call("POST", "/v2/vllm/instances/a/"+verb, nil).Instance(t)
		assert.Equal(t, answers[0].Revision, once.Revision, "nothing happens when it is so already")
	}
}

func TestASleeperAskedForAnotherLevelStaysAtItsOwn(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	first := n.Sleep("a", 1)
	second := n.Sleep("a", 2)
	assert.Equal(t, 1, second.SleepLevel)
	assert.Equal(t, first.Revision, second.Revision)
	n.Wake("a")
	n.Ask(n.Get("a"), "hello")
}

func TestAVerbNeedNotBeWaitedFor(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-sleep-time", "300ms")
	a := n.Call("POST", "/v2/vllm/instances/a/sleep", map[string]any{"wait": false})
	assert.Equal(t, 202, a.Status, "%s", a.Body)
	assert.Equal(t, "falling_asleep", a.Instance(t).State)
	p := n.Call("POST", "/v2/vllm/instances/a/wake", nil).Problem(t)
	assert.Equal(t, 409, p.Status, "not while it falls asleep")
	n.Await("a", "sleeping")
	a = n.Call("POST", "/v2/vllm/instances/a/wake", map[string]any{"wait": false})
	assert.Equal(t, 202, a.Status, "%s", a.Body)
	n.Await("a", "awake")
}

func TestAPublicPortIsGivenOnceAndNobodyIsHurt(t *testing.T) {
	t.Parallel()
	t.Run("one instance has it", func(t *testing.T) {
		n := NewNode(t)
		port := freePort(t)
		a := n.Awake("a", On(0), "--port", port)
		assert.Equal(t, port, fmt.Sprint(a.Port))
		p := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1), "--port", port)).Problem(t)
		assert.Equal(t, 409, p.Status)
		assert.Equal(t, launcherapi.CodePortTaken, p.Code)
		assert.Contains(t, p.Detail, "instance a", "it names the holder")
		n.onlyAIsLeft(a)
		n.Sleep("a", 1)
		asleep := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1), "--port", port)).Problem(t)
		assert.Equal(t, 409, asleep.Status, "a sleeper keeps its port")
		n.Delete("a")
		b := n.Awake("b", On(1), "--port", port)
		n.Ask(b, "hello")
	})
	t.Run("it is the port behind another instance", func(t *testing.T) {
		n := NewNode(t, "--engine-socket", "never")
		a := n.Awake("a", On(0))
		p := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1), "--port", enginePort(t, a))).Problem(t)
		assert.Equal(t, 409, p.Status)
		assert.Equal(t, launcherapi.CodePortTaken, p.Code)
		n.onlyAIsLeft(a)
	})
	t.Run("a stranger listens there", func(t *testing.T) {
		n := NewNode(t)
		a := n.Awake("a", On(0))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		p := n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1), "--port", port)).Problem(t)
		assert.Equal(t, 409, p.Status)
		assert.Equal(t, launcherapi.CodePortTaken, p.Code)
		assert.Contains(t, p.Detail, port)
		n.onlyAIsLeft(a)
	})
	t.Run("many ask at once", func(t *testing.T) {
		n := NewNode(t)
		port := freePort(t)
		statuses := make([]int, 8)
		var all sync.WaitGroup
		for k := range statuses {
			all.Go(func() {
				id := fmt.Sprintf("i%d", k)
				a, err := tryCall(context.Background(), "PUT", n.URL+"/v2/vllm/instances/"+id, Spec(id, nil, "--port", port))
				assert.NoError(t, err)
				statuses[k] = a.Status
			})
		}
		all.Wait()
		count := map[int]int{}
		for _, s := range statuses {
			count[s]++
		}
		assert.Equal(t, map[int]int{201: 1, 409: 7}, count)
		all2 := n.settled()
		require.Len(t, all2, 1)
		n.noneDoubled(all2)
	})
}

// onlyAIsLeft checks that a is awake and serves, and that of a refused b
// nothing is there.
func (n *Node) onlyAIsLeft(a launcherapi.Instance) {
	n.t.Helper()
	assert.Equal(n.t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
	now := n.Get("a")
	assert.Equal(n.t, a.PID, now.PID)
	assert.Equal(n.t, a.Revision, now.Revision)
	n.Ask(now, "hello")
	n.noneDoubled(map[string]launcherapi.Instance{"a": now})
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	return port
}

// engineAddress is where the engine itself listens: a Unix socket, or a port. A process that
// has just been started has no command line for a moment: the kernel tells whoever started
// it, by closing its files, before it has written the new arguments.
func engineAddress(t *testing.T, i launcherapi.Instance) (address string) {
	t.Helper()
	eventually(t, "the engine has its command line", func() bool {
		var err error
		address, err = harness.EngineAddress(i.PID)
		return err == nil
	})
	return address
}

// enginePort is the port that an engine without a socket listens on.
func enginePort(t *testing.T, i launcherapi.Instance) string {
	t.Helper()
	return portOf(t, engineAddress(t, i))
}
