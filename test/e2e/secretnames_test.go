package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecretsAreFoundByTheWordsOfTheirNamesAndHiddenEverywhere(t *testing.T) {
	t.Parallel()
	vault := t.TempDir()
	file, config := filepath.Join(vault, "file"), filepath.Join(vault, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("s3cret-file\n"), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("api-key: s3cret-config\nhf-overrides: {auth: {client_secret: s3cret-nested}}\n"), 0o600))
	n := NewNode(t, "--env-file-dirs", vault)
	env := map[string]any{
		"TOKENIZER_API_KEY": "s3cret-tokenizer", "DB_PASS": "s3cret-pass", "GITHUB_PAT": "s3cret-pat", "OPENAI_KEY": "s3cret-openai",
		"SETTINGS": `{"password": "s3cret-json"}`, "COPY": "of s3cret-file", "ODD": map[string]string{"from_file": file},
		"TOKENIZERS_PARALLELISM": "false", "KV_STORE": "redis-in-sight", "SHOWN": "in plain sight",
	}
	spec := func(args ...string) map[string]any {
		return map[string]any{
			"args":      append([]string{"m", "--served-model-name", "m", "--hf-tok", "s3cret-hf", "--hf-overrides", `{"a": {"api_key": "s3cret-\"override"}}`}, args...),
			"gpu_uuids": On(0), "env_vars": env, "annotations": map[string]string{"note": "s3cret-pass and s3cret-file", "plain": "noted"},
		}
	}
	var seen strings.Builder
	look := func(a Answer) Answer { seen.Write(a.Body); return a }
	made := look(n.Call("PUT", instances+"/a", spec("--sim-token-time", "17ms", "--config", config)))
	require.Equal(t, 201, made.Status, "%s", made.Body)
	a := n.Await("a", "awake")
	assert.Equal(t, 401, call(t, "GET", publicURL(a, "/v1/models"), nil).Status)
	assert.Equal(t, 200, call(t, "GET", publicURL(a, "/v1/models"), nil, "Authorization", "Bearer s3cret-config").Status, "the engine has its key")
	look(n.Call("GET", instances+"/a", nil))
	assert.Equal(t, 422, look(n.Call("PUT", instances+"/b", spec("--port", "s3cret-hf"))).Status)
	require.Equal(t, 201, look(n.Call("PUT", instances+"/c", map[string]any{
		"options": `m --hf-tok s3cret-hf --hf-overrides {"api_key":"s3cret-word"} --max-model-len s3cret-word`, "env_vars": env, "gpu_uuids": On(1),
	})).Status)
	n.Await("c", "failed") // the engine repeats what it was given
	look(n.Call("GET", instances+"/c", nil))

	places := map[string]string{"the API": seen.String(), "the launcher's log": n.Log(), "what is written": filesText(t, filepath.Join(n.State, "instances")) + filesText(t, filepath.Join(n.State, "swaps"))}
	for place, text := range places {
		assert.NotContains(t, text, "s3cret-", place)
	}
	for _, shown := range []string{"in plain sight", "redis-in-sight", "noted", "17ms", file} {
		assert.Contains(t, seen.String(), shown)
	}
}
