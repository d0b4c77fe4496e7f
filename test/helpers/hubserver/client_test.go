//go:build vllm

package hubserver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// The hub's own client downloads from the server, unchanged; and without any network
// it finds what launcher models export has copied from a store.
func TestTheHubsOwnClientReadsTheServerAndAnExport(t *testing.T) {
	vllm, err := harness.FindVLLM()
	require.NoError(t, err)
	python := filepath.Join(vllm.Folder, "venv", "bin", "python")
	hub := hubserver.New(t)
	files := map[string][]byte{"config.json": []byte("{}"), "sub/model.safetensors": make([]byte, 1<<20)}
	hub.Put("org/tiny", hubserver.Model{Commit: commit, Files: files})
	snapshot := func(cache string, env ...string) string {
		cmd := exec.Command(python, "-c", "import huggingface_hub, sys; sys.stdout.write(huggingface_hub.snapshot_download('org/tiny'))")
		cmd.Env = append(append(os.Environ(), "HF_HUB_CACHE="+cache, "HF_HOME="+t.TempDir(), "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_OFFLINE=0"), env...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	check := func(dir string) {
		for name, want := range files {
			got, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	}
	check(snapshot(t.TempDir(), "HF_ENDPOINT="+hub.URL))

	bin, store, cache := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, harness.Build(t.Context(), "../../..", bin, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch"))
	pull := exec.Command(filepath.Join(bin, "launcher"), "pull", "--model-store", store, "hf://org/tiny")
	pull.Env, pull.Stderr = append(os.Environ(), "HF_ENDPOINT="+hub.URL), os.Stderr
	require.NoError(t, pull.Run())
	export := exec.Command(filepath.Join(bin, "launcher"), "models", "export", "--model-store", store, "hf://org/tiny", cache)
	export.Stderr = os.Stderr
	require.NoError(t, export.Run())
	check(snapshot(cache, "HF_HUB_OFFLINE=1"))
}
