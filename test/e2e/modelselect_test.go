package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// Of the section "Models of a launcher" of spec/rows.md: some of the files of a
// model.

// formats is a model that has its weights in two formats.
func formats() hubserver.Model {
	return hubserver.Model{Commit: commit, Files: map[string][]byte{
		"config.json": []byte("{}"), "model.safetensors": random(1 << 20), "pytorch_model.bin": random(1<<20 + 1),
		"original/params.json": []byte("[]"), "README.md": []byte("# tiny"),
	}}
}

func filesOf(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSomeFilesOfAModelArePulledAndSharedWithOtherSelections(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", formats())
	f := models(t, hub)
	safe := f.pull("--include", "*.json", "--include", "*.safetensors", "--exclude", "original/", "hf://org/tiny")
	assert.Equal(t, []string{"config.json", "model.safetensors"}, filesOf(t, safe.Path))
	assert.True(t, f.pull("--include", "*.safetensors", "--include", "*.json", "--exclude", "original/*", "hf://org/tiny").There, "the same selection said otherwise")
	for _, r := range hub.Seen() {
		assert.NotContains(t, r.Path, "pytorch_model.bin")
	}
	whole := f.pull("hf://org/tiny")
	assert.NotEqual(t, safe.ID, whole.ID)
	assert.Less(t, whole.NetworkBytes, int64(1<<20+100), "the weights that are there are not fetched again")
	out, errs, code := f.call("models")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "hf://org/tiny --include *.json --include *.safetensors --exclude original/*")
	_, errs, code = f.call("rm", whole.ID)
	require.Zero(t, code, errs)
	all := f.list("--verify")
	require.Len(t, all, 1)
	assert.Equal(t, "Ready", all[0].State)

	_, errs, code = f.call("pull", "--exclude", "*.gguf", "hf://org/tiny")
	require.Zero(t, code, errs)
	assert.Contains(t, errs, "no file of hf://org/tiny matches --exclude *.gguf")
	for says, args := range map[string][]string{
		"no file of hf://org/tiny matches --include *.gguf; it has ": {"--include", "*.json", "--include", "*.gguf"},
		"the selection --exclude * takes no file of hf://org/tiny":   {"--exclude", "*"},
	} {
		_, errs, code = f.call("pull", append(args, "hf://org/tiny")...)
		assert.Equal(t, 1, code)
		assert.Contains(t, errs, says)
	}
	_, errs, code = f.call("pull", "--include", "/config.json", "hf://org/tiny")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "relative to the model's folder")
}

func TestAnInstanceIsGivenASelectionByTheModelsNameWhereItHasAllThatAnEngineNeeds(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", formats())
	selected := func(key string, patterns ...string) launcherapi.Model {
		m := model(t, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny", key: patterns}))
		n.Eventually("it is there", func() bool {
			m = model(t, n.Call("GET", "/v2/models/"+m.ID, nil))
			return m.State == launcherapi.ModelReady
		})
		return m
	}
	configuration := selected("include", "*.json")
	assert.Equal(t, []string{"model.safetensors", "pytorch_model.bin"}, configuration.Lacks)
	refused := n.Call("PUT", "/v2/vllm/instances/a", of("org/tiny", 0, "model_cache", "require"))
	assert.Equal(t, 422, refused.Status)
	assert.Contains(t, refused.Problem(t).Detail, fmt.Sprintf("only in selections that lack files which an engine may need: %s leaves out model.safetensors and 1 more", configuration.ID))
	n.Create("b", of("org/tiny", 0))
	i := n.Await("b", "awake")
	assert.Equal(t, "source", i.ModelFrom)
	assert.Contains(t, i.ModelWhy, "only in selections that lack files")
	n.Delete("b")
	n.Create("c", of(configuration.ID, 0))
	assert.Equal(t, configuration.ID, n.Await("c", "awake").ModelID, "by its id it is meant as it is")
	n.Delete("c")

	enough := selected("exclude", "*.bin", "original/")
	assert.Empty(t, enough.Lacks)
	assert.Equal(t, []string{"*.bin", "original/*"}, enough.Exclude)
	n.Create("a", of("org/tiny", 0, "model_cache", "require"))
	i = n.Await("a", "awake")
	assert.Equal(t, enough.ID, i.ModelID)
	n.Ask(i, "hello")

	none := n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny", "include": []string{"*.gguf"}})
	assert.Equal(t, 422, none.Status)
	assert.Contains(t, none.Problem(t).Detail, "no file of hf://org/tiny matches --include *.gguf")
	assert.Equal(t, 422, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny", "include": []string{""}}).Status)
}
