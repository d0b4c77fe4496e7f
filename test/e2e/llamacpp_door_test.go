//go:build llamacpp

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// swapFile is a configuration of llama-swap. The two files of models are put in.
const swapFile = `
macros:
  server: /opt/llama.cpp/llama-server-b123 --port ${PORT} --host 127.0.0.1
healthCheckTimeout: 60
models:
  story:
    cmd: |
      ${server} -c 1024
      -m %s --alias other-name
    aliases: [tale]
    ttl: 300
    filters: {stripParams: "top_k", setParams: {max_tokens: 3}}
  second:
    cmd: llama-server --port ${PORT} -c 1024 -m %s
  wrapped:
    cmd: vllm-wrapper serve --vllm-url http://127.0.0.1:8000 --listen :${PORT} -- vllm serve org/wrapped --port 8000 --enable-sleep-mode
    cmdStop: vllm-wrapper sleep --vllm-url http://127.0.0.1:8000 --sleep-level 1
groups:
  turns: {swap: true, members: [story, second, wrapped]}
selectors:
  any: {strategy: warm, targets: [second, story]}
profiles:
  work: {pins: {gpt-4: second}}
`

// Row 33: what the import makes of a file of llama-swap serves its models by their names.
func TestLlamaSwapsFileIsImportedAndServes(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	dir, address := t.TempDir(), freeAddress(t)
	theirs, ours := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "launcher.yaml")
	require.NoError(t, os.WriteFile(theirs, fmt.Appendf(nil, swapFile, real.ModelA, real.ModelB), 0o600))
	n := NewStoppedNode(t, "--config", ours, "--front-door", address, "--llama-server", real.Program)
	made, notes, code := n.commands("import", "llama-swap", theirs)
	require.Zero(t, code, notes)
	assert.Contains(t, notes, "healthCheckTimeout: left out: the launcher has --start-timeout")
	require.NoError(t, os.WriteFile(ours, []byte(made), 0o600))
	n.Start()

	url := "http://" + address
	ask := func(model string) (tokens int, text string) {
		got := call(t, "POST", url+"/v1/completions", map[string]any{"model": model, "prompt": story, "max_tokens": 8, "temperature": 0, "top_k": -7})
		require.Equal(t, 200, got.Status, "%s: %s", model, got.Body)
		var v struct {
			Choices []struct{ Text string }
			Usage   struct {
				Tokens int `json:"completion_tokens"`
			}
		}
		got.Into(t, &v)
		return v.Usage.Tokens, v.Choices[0].Text
	}
	tokens, text := ask("story")
	assert.Equal(t, 3, tokens, "setParams holds")
	tokens, _ = ask("tale")
	assert.Equal(t, 3, tokens, "an alias")
	assert.Equal(t, "awake", n.instances()["m-story"].State)
	tokens, _ = ask("any")
	assert.Equal(t, 3, tokens, "story is the one that is awake")
	tokens, _ = ask("wrapped")
	assert.Equal(t, 8, tokens)
	tokens, second := ask("second")
	assert.Equal(t, 8, tokens)
	assert.NotEqual(t, text, second[:min(len(second), len(text))])
	require.Equal(t, 200, n.Call("PUT", "/v2/front-door/profile", map[string]any{"profile": "work"}).Status)
	tokens, _ = ask("gpt-4")
	assert.Equal(t, 8, tokens, "the profile's pin is second")
	assert.Len(t, n.instances(), 3)
}

// Row 5: llama-server tells what its models can do, also while they sleep without a process. A
// script of a web page reads an answer by the engine's header alone.
func TestLlamaTellsWhatItsModelsCan(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	n, url := offer(t, fmt.Sprintf("models:\n- {name: a, engine: llamacpp, gpus: 1, args: [%s, -c, \"1024\"]}\n", real.ModelA)+modelText("b", "", "--gpu-memory-utilization", "0.999"), "--llama-server", real.Program, "--gpus", "simulated:1")
	got := ask(t, url, "a", "Origin", "https://page.example")
	require.Equal(t, 200, got.Status, "%s", got.Body)
	assert.Equal(t, []string{"https://page.example"}, got.Header.Values("Access-Control-Allow-Origin"))
	type card struct {
		State        string
		Capabilities []string
		Meta         struct {
			Context int `json:"n_ctx"`
		}
	}
	told := func() (c card) {
		call(t, "GET", url+"/v1/models/a", nil).Into(t, &c)
		return c
	}
	n.Eventually("the engine has told its card", func() bool { return told().Capabilities != nil })
	assert.Equal(t, []string{"completion"}, told().Capabilities)
	assert.Equal(t, 512, told().Meta.Context, "the model can do no more")
	require.Equal(t, 200, ask(t, url, "b").Status)
	assert.Equal(t, "sleeping", told().State)
	assert.Equal(t, []string{"completion"}, told().Capabilities)
	var shown struct{ Capabilities []string }
	call(t, "POST", url+"/api/show", `{"model":"a:latest"}`).Into(t, &shown)
	assert.Equal(t, []string{"completion", "tools"}, shown.Capabilities)
}

// Row 30: models of the store by their address: one of several files that was pulled alone, one by
// its name, and one in parts in a folder.
func TestLlamaServesModelsOfTheStoreByTheirAddress(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	hub := hubserver.New(t)
	hub.Put("org/quants", hubserver.Model{Commit: commit, Files: map[string][]byte{
		"config.json": []byte("{}"), "m-Q4_K_M.gguf": read(real.ModelA), "m-Q8_0.gguf": read(real.ModelB), "mmproj-F16.gguf": []byte("x"),
	}})
	parts := map[string][]byte{"README.md": []byte("# parts"), "m-Q8_0.gguf": read(real.ModelB)}
	for k := range 2 {
		name := fmt.Sprintf("tiny-a-%05d-of-00002.gguf", k+1)
		parts["Q4_K_M/"+name] = read(filepath.Join(real.Split, name))
	}
	hub.Put("org/parts", hubserver.Model{Commit: commit, Files: parts})
	f := models(t, hub)
	quants := f.pull("--include", "*Q4_K_M.gguf", "hf://org/quants")
	n, url := offer(t, `models:
- {name: quants, engine: llamacpp, args: [hf://org/quants, -c, "512"]}
- {name: large, engine: llamacpp, args: [hf://org/quants, --hf-file, m-Q8_0.gguf, -c, "512"]}
- {name: parts, engine: llamacpp, args: [hf://org/parts, -c, "512"]}
`, "--llama-server", real.Program, "--model-store", f.dir)
	tell := func(model string) string {
		got := call(t, "POST", url+"/v1/completions", map[string]any{"model": model, "prompt": story, "max_tokens": 8, "temperature": 0})
		require.Equal(t, 200, got.Status, "%s: %s", model, got.Body)
		var v struct{ Choices []struct{ Text string } }
		got.Into(t, &v)
		return v.Choices[0].Text
	}
	small := tell("quants")
	i := n.instances()["m-quants"]
	assert.Equal(t, quants.ID, i.ModelID)
	assert.Contains(t, cmdline(i.PID), "m-Q4_K_M.gguf")
	lacking := ask(t, url, "large")
	assert.Equal(t, 502, lacking.Status, "%s", lacking.Body)
	assert.Contains(t, refusal(t, lacking).Message, "pull it")

	f.pull("--include", "*Q8_0.gguf", "hf://org/quants")
	f.pull("--include", "Q4_K_M/*", "hf://org/parts")
	assert.NotEqual(t, small, tell("large"))
	assert.Equal(t, small, tell("parts"), "it is the same model in two parts")
	for _, i := range n.instances() {
		assert.NotContains(t, cmdline(i.PID), "--hf-file")
		assert.Equal(t, "cache", i.ModelFrom)
	}
}
