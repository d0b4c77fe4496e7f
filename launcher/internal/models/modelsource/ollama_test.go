package modelsource

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// The manifest has the form of those at registry.ollama.ai.
func ollamaManifest(layers ...string) string {
	return `{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:` + strings.Repeat("c", 64) + `", "size": 485},
		"layers": [` + strings.Join(layers, ", ") + `]}`
}

func ollamaLayer(kind, content string) string {
	return fmt.Sprintf(`{"mediaType": "application/vnd.ollama.image.%s", "digest": "%s", "size": %d}`, kind, digest.FromString(content), len(content))
}

// ollamaServer serves one manifest, and blobs by their contents.
func ollamaServer(t *testing.T, path, manifest string, blobs ...string) (host string) {
	t.Helper()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/"+path {
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			_, _ = io.WriteString(w, manifest)
			return
		}
		for _, content := range blobs {
			if strings.HasSuffix(r.URL.Path, "/blobs/"+digest.FromString(content).String()) {
				properly(w, r, content)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	})
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	return strings.TrimPrefix(server.URL, "http://")
}

func TestModelOfOllamasRegistryIsItsGGUFFiles(t *testing.T) {
	const weights, picture = "GGUF weights", "GGUF picture"
	host := ollamaServer(t, "Org/Model/manifests/8B-Q4_K_M", ollamaManifest(
		ollamaLayer("model", weights), ollamaLayer("template", "{{ .Prompt }}"), ollamaLayer("license", "one"), ollamaLayer("license", "two"),
		ollamaLayer("projector", picture), ollamaLayer("params", "{}"),
	), weights, picture)
	uri := "ollama://" + host + "/Org/Model:8B-Q4_K_M"
	s := source(t, uri, options)
	m, err := s.Resolve(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Check())
	assert.Equal(t, uri, m.URI)
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Path)
	}
	assert.Equal(t, []string{"model.gguf", "LICENSE", "LICENSE-2", "mmproj-model.gguf"}, names)
	for n, content := range map[int]string{0: weights, 3: picture} {
		stream, err := s.Open(t.Context(), n, 5)
		require.NoError(t, err)
		text, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		assert.Equal(t, content[5:], string(text))
	}
	again, err := s.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, m, again, "files keep their names")
}

func TestNameOfOllamaIsCompleted(t *testing.T) {
	for uri, is := range map[string][2]string{
		"ollama://llama3.2":                        {"registry.ollama.ai/library/llama3.2:latest", "ollama://llama3.2:latest"},
		"ollama://llama3.2:1b":                     {"registry.ollama.ai/library/llama3.2:1b", "ollama://llama3.2:1b"},
		"ollama://us/ours:1b":                      {"registry.ollama.ai/us/ours:1b", "ollama://us/ours:1b"},
		"ollama://registry.example:5000/us/ours:1": {"registry.example:5000/us/ours:1", "ollama://registry.example:5000/us/ours:1"},
		"ollama://hf.co/Org/Model-GGUF:Q4_K_M":     {"hf.co/Org/Model-GGUF:Q4_K_M", "ollama://hf.co/Org/Model-GGUF:Q4_K_M"},
	} {
		t.Setenv("DOCKER_CONFIG", t.TempDir())
		s, ok := source(t, uri, options).(*artifact)
		require.True(t, ok, uri)
		assert.Equal(t, is, [2]string{s.repo.Reference.String(), s.uri}, uri)
		assert.False(t, s.repo.PlainHTTP, uri)
	}
	for _, uri := range []string{"ollama://", "ollama://a b", "ollama://a/b/c/d", "ollama://a:b:c", "ollama:///a", "ollama://a/", "ollama://../a", "ollama://us:secret@host/a/b", "ollama://a@main"} {
		_, err := New(uri, options)
		require.Error(t, err, uri)
		assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err), uri)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestModelOfOllamaThatLlamaServerCannotReadIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ layers, says string }{
		"adapter":  {ollamaLayer("model", "a") + ", " + ollamaLayer("adapter", "b"), "has an adapter"},
		"tensors":  {`{"mediaType": "application/vnd.ollama.image.tensor; name=a", "digest": "` + digest.FromString("a").String() + `", "size": 1}`, "tensors in layers of their own"},
		"no model": {ollamaLayer("template", "a"), "has no files of a model"},
	} {
		host := ollamaServer(t, "library/m/manifests/latest", ollamaManifest(c.layers))
		_, err := source(t, "ollama://"+host+"/library/m", options).Resolve(t.Context())
		require.ErrorContains(t, err, c.says, name)
		assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err), name)
	}
}
