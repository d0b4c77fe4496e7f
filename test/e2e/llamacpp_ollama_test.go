//go:build llamacpp

package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// ollamaRegistry serves a GGUF file as a model of Ollama's registry, library/tiny:q4.
func ollamaRegistry(t *testing.T, file string) (address string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	mux := http.NewServeMux()
	layer := func(kind string, content []byte) string {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		mux.HandleFunc("GET /v2/library/tiny/blobs/"+digest, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
		return fmt.Sprintf(`{"mediaType": "application/vnd.ollama.image.%s", "digest": "%s", "size": %d}`, kind, digest, len(content))
	}
	manifest := fmt.Sprintf(`{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": [%s, %s]}`,
		layer("model", data), layer("template", []byte("{{ .Prompt }}")))
	mux.HandleFunc("GET /v2/library/tiny/manifests/q4", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		_, _ = w.Write([]byte(manifest))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return "ollama://" + strings.TrimPrefix(server.URL, "http://") + "/library/tiny:q4"
}

// A model of Ollama's registry is pulled, and llama-server serves it.
func TestLlamaServesAModelOfOllamasRegistry(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	address := ollamaRegistry(t, real.ModelA)
	f := models(t, hubserver.New(t))
	pulled := f.pull(address)
	n, url := offer(t, fmt.Sprintf(`models:
- {name: tiny, engine: llamacpp, args: ["%s", -c, "512"]}
- {name: direct, engine: llamacpp, args: ["%s", -c, "512"]}
`, address, real.ModelA), "--llama-server", real.Program, "--model-store", f.dir)
	said := map[string]string{}
	for _, model := range []string{"tiny", "direct"} {
		got := call(t, "POST", url+"/v1/completions", map[string]any{"model": model, "prompt": story, "max_tokens": 8, "temperature": 0})
		require.Equal(t, 200, got.Status, "%s: %s", model, got.Body)
		var v struct{ Choices []struct{ Text string } }
		got.Into(t, &v)
		said[model] = v.Choices[0].Text
	}
	assert.Equal(t, said["direct"], said["tiny"])
	assert.Equal(t, pulled.ID, n.instances()["m-tiny"].ModelID)
}

// As the Pod of a Model's entry does, whose engine is OLlama.
func TestLlamasModelOfOllamasRegistryIsLinked(t *testing.T) {
	t.Parallel()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	address, dir := ollamaRegistry(t, real.ModelA), t.TempDir()
	want, err := os.ReadFile(real.ModelA)
	require.NoError(t, err)
	for range 2 { // the second is that of a container that is started again
		out, err := exec.Command(filepath.Join(filepath.Dir(bin.launcher), "modelfetch"), "pull", "--store="+filepath.Join(dir, "store"), "--link="+filepath.Join(dir, "fetched"), address).CombinedOutput()
		require.NoError(t, err, "%s", out)
		got, err := os.ReadFile(filepath.Join(dir, "fetched", "model.gguf"))
		require.NoError(t, err)
		assert.True(t, string(want) == string(got))
	}
}
