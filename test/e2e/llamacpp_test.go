//go:build llamacpp

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// These tests run real llama-server, which make llama-cpp sets up, behind the launcher. It has no
// GPU: the launcher gives it a simulated one, of which the driver sees no memory.

// llamaNode is a node with llama-server.
func llamaNode(t *testing.T, flags ...string) (*Node, harness.LlamaCpp) {
	t.Helper()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	return NewNode(t, append([]string{"--llama-server", real.Program}, flags...)...), real
}

// llama describes an instance of llama-server.
func llama(id, file string, args ...string) map[string]any {
	return map[string]any{"engine": "llamacpp", "args": append([]string{file, "--alias", id, "-c", "1024", "-np", "1"}, args...), "gpu_uuids": On(0)}
}

// toLlama is a swap request that brings a new instance of llama-server in.
func toLlama(id, file string, args ...string) map[string]any {
	in := llama(id, file, args...)
	in["id"] = id
	return map[string]any{"gpu_uuids": On(0), "in": in}
}

// story is a prompt long enough that its computation shows in what llama-server counts.
const story = "Once upon a time there was a king who had a daughter, a golden ball and a deep well in the garden."

// told is what llama-server answers to a prompt.
type told struct {
	Choices []struct{ Text string }
	Timings struct {
		Computed int `json:"prompt_n"` // tokens of the prompt
		Cached   int `json:"cache_n"`
	}
}

func (a told) text() string { return a.Choices[0].Text }

// tell asks an instance to go on with a prompt.
func (n *Node) tell(i launcherapi.Instance, prompt string) (a told) {
	n.t.Helper()
	got := call(n.t, "POST", publicURL(i, "/v1/completions"), map[string]any{"model": i.InstanceID, "prompt": prompt, "max_tokens": 8, "temperature": 0})
	require.Equal(n.t, 200, got.Status, "%s", got.Body)
	got.Into(n.t, &a)
	require.Len(n.t, a.Choices, 1)
	return a
}

// told tells the story twice, and returns the second answer: with its cache llama-server computes
// in another order than without, and the tiny models answer otherwise then.
func (n *Node) told(i launcherapi.Instance) told {
	n.t.Helper()
	n.tell(i, story)
	return n.tell(i, story)
}

// Rows 27, 28 and 31 of the front door.
func TestLlamaTakesTurnsWithVLLMAndGoesOnWithItsConversation(t *testing.T) {
	t.Parallel()
	n, real := llamaNode(t)
	n.Create("a", llama("a", real.ModelA))
	a := n.Await("a", "awake")
	first := n.tell(a, story)
	require.Greater(t, first.Timings.Computed, 50)
	cached := n.tell(a, story)
	r := n.SwapDone(toLlama("b", real.ModelB))
	assert.NotEqual(t, first.text(), n.tell(*r.In, story).text(), "they are different models")
	asleep := n.Get("a")
	assert.Equal(t, "sleeping", asleep.State)
	assert.Zero(t, asleep.PID)
	assert.ErrorIs(t, syscall.Kill(a.PID, 0), syscall.ESRCH, "its process has ended")
	n.SwapDone(toNew("vllm", On(0)))
	for range 2 {
		back := n.SwapDone(to("a"))
		again := n.tell(*back.In, story)
		assert.Equal(t, cached.text(), again.text())
		assert.LessOrEqual(t, again.Timings.Computed, 2, "its conversation was kept: %+v", again.Timings)
		n.SwapDone(to("vllm"))
	}
	n.SwapDone(map[string]any{"in": map[string]any{"instance_id": "a"}})
	n.SwapDone(map[string]any{"in": map[string]any{"instance_id": "b"}, "out": map[string]any{"level": 2}})
	woken := n.SwapDone(to("a")).In
	forgot := n.tell(*woken, story)
	assert.Equal(t, first.text(), forgot.text())
	assert.Equal(t, first.Timings.Computed, forgot.Timings.Computed, "a sleep at level 2 keeps nothing")
	n.Delete("a")
	assert.NoDirExists(t, filepath.Join(n.State, "saved", "a"))
}

// Row 27: the launcher is killed, and the next one goes on.
func TestLlamaSurvivesTheLauncherAwakeAndAsleep(t *testing.T) {
	t.Parallel()
	n, real := llamaNode(t)
	n.Create("a", llama("a", real.ModelA))
	says := n.told(n.Await("a", "awake"))
	b := n.SwapDone(toLlama("b", real.ModelB)).In
	n.Kill9()
	n.Start()
	all := n.settled()
	require.Len(t, all, 2)
	assert.Equal(t, "sleeping", all["a"].State)
	assert.Equal(t, "awake", all["b"].State)
	assert.Equal(t, b.PID, all["b"].PID)
	back := n.SwapDone(to("a")).In
	again := n.tell(*back, story)
	assert.Equal(t, says.text(), again.text())
	assert.LessOrEqual(t, again.Timings.Computed, 2)
}

// Row 27: a kill at each point on the way to sleep and back.
func TestLlamaIsWholeAfterAKillAtEachPointOfItsSleepAndWake(t *testing.T) {
	t.Parallel()
	for point, then := range map[string]string{
		"sleep.drained": "sleep", "sleep.done": "sleep", "state.falling_asleep": "sleep", "state.sleeping": "sleep",
		"state.waking": "wake", "start.spawned": "wake", "wake.done": "wake", "state.awake": "wake",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n, real := llamaNode(t)
			n.Create("a", llama("a", real.ModelA))
			says := n.told(n.Await("a", "awake"))
			if then == "wake" {
				n.Sleep("a", 1)
			}
			n.crashAt(point)
			n.later("POST", "/v2/vllm/instances/a/"+then, map[string]any{})
			n.comeBack()
			all := n.settled()
			require.Len(t, all, 1)
			assert.Contains(t, []string{"awake", "sleeping"}, all["a"].State, all["a"].Reason)
			again := n.told(n.Wake("a"))
			assert.Equal(t, says.text(), again.text())
			n.Delete("a")
		})
	}
}

// Row 27: a swap to a model that cannot be loaded is undone.
func TestLlamaIsBackAfterASwapThatFails(t *testing.T) {
	t.Parallel()
	n, real := llamaNode(t)
	n.Create("a", llama("a", real.ModelA))
	says := n.told(n.Await("a", "awake"))
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	whole, err := os.ReadFile(real.ModelB)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(broken, whole[:len(whole)/2], 0o600))
	got := n.Call("POST", "/v2/vllm/swap", toLlama("b", broken))
	require.GreaterOrEqual(t, got.Status, 400)
	assert.Contains(t, string(got.Body), `"undone"`)
	a := n.Await("a", "awake")
	again := n.tell(a, story)
	assert.Equal(t, says.text(), again.text())
	assert.LessOrEqual(t, again.Timings.Computed, 2, "its conversation came back with it")
}

// Row 29.
func TestLlamaRefusesFlagsThatAreTheLaunchers(t *testing.T) {
	t.Parallel()
	n, real := llamaNode(t)
	for _, flag := range []string{"--sleep-idle-seconds 5", "--ssl-key-file x", "--models-max 2", "--api-prefix /x", "--slot-save-path /tmp", "--reuse-port"} {
		got := n.Call("PUT", "/v2/vllm/instances/a", llama("a", real.ModelA, strings.Fields(flag)...))
		assert.Equal(t, 422, got.Status, "%s: %s", flag, got.Body)
		assert.Contains(t, string(got.Body), strings.Fields(flag)[0])
	}
}

// Row 32: models of the catalogue, asked for by name at the front door; one in several parts.
func TestLlamaModelsOfTheCatalogueAreServedByName(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `models:
  - {name: a, engine: llamacpp, args: [%s, -c, "1024"]}
  - {name: b, engine: llamacpp, args: [%s, -c, "1024"]}
  - {name: split, engine: llamacpp, args: [%s, -c, "1024"]}
`, real.ModelA, real.ModelB, real.Split), 0o600))
	n, url := door(t, "--llama-server", real.Program, "--config", file)
	said := map[string]string{}
	for _, model := range []string{"a", "b", "split", "a"} {
		got := call(t, "POST", url+"/v1/completions", map[string]any{"model": model, "prompt": story, "max_tokens": 8, "temperature": 0})
		require.Equal(t, 200, got.Status, "%s", got.Body)
		var answer struct {
			Model   string
			Choices []struct{ Text string }
		}
		got.Into(t, &answer)
		assert.Equal(t, model, answer.Model)
		if _, asked := said[model]; !asked {
			said[model] = answer.Choices[0].Text
		}
	}
	assert.NotEqual(t, said["a"], said["b"])
	assert.Equal(t, said["a"], said["split"], "it is the same model in two parts")
	stream := call(t, "POST", url+"/v1/completions", map[string]any{"model": "b", "prompt": story, "max_tokens": 8, "temperature": 0, "stream": true})
	require.Equal(t, 200, stream.Status)
	assert.Contains(t, string(stream.Body), "data: [DONE]")
	assert.Len(t, n.settled(), 3)
}
