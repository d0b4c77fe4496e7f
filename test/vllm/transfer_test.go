//go:build vllm

package vllm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// TestOneInstanceDecodesWhatAnotherHasPrefilled transfers KV caches through files, by vLLM's
// ExampleConnector. It needs neither GPUs nor libraries beyond those of vLLM.
func TestOneInstanceDecodesWhatAnotherHasPrefilled(t *testing.T) {
	t.Parallel()
	n := newNode(t, by(launcherapi.StartFork))
	caches := caches{t, t.TempDir()}
	n.preloaded("")
	n.create("prefill", gpu(0), arguments(modelA, "tiny-a", caches.flags("kv_producer")...))
	n.create("decode", gpu(1), arguments(modelA, "tiny-a", caches.flags("kv_consumer")...))
	prefill, decode := n.await("prefill", "awake"), n.await("decode", "awake")
	loads := func(id string) int { return strings.Count(n.logOf(t, id), "Inject KV cache of ") }

	// The prefill server makes one token, and the decode server answers with what that has computed.
	before := len(caches.files()) // of what the launchers have asked
	tell(t, prefill, "One", 1)
	require.Len(t, caches.files(), before+2, "one of each layer")
	assert.Zero(t, loads("decode"))
	words := tell(t, decode, "One", 24)
	assert.Equal(t, 1, loads("decode"))
	assert.Zero(t, loads("prefill"))
	assert.Equal(t, tell(t, prefill, "One", 24), words, "the prefill server itself goes on like this")

	// The decode server computes nothing of that itself: if the files have other values, it says something else.
	tell(t, prefill, "Two", 1)
	caches.spoil()
	words = tell(t, decode, "Two", 24)
	assert.Equal(t, 2, loads("decode"))
	assert.NotEqual(t, tell(t, prefill, "Two", 24), words)

	// Both go on when they have slept, also with a new launcher.
	for _, id := range []string{"prefill", "decode"} {
		_, err := n.Sleep(t.Context(), id, launcherapi.SleepRequest{Level: 1})
		require.NoError(t, err)
	}
	n.kill()
	n.start()
	for _, id := range []string{"prefill", "decode"} {
		_, err := n.Wake(t.Context(), id, launcherapi.WakeRequest{})
		require.NoError(t, err)
	}
	tell(t, prefill, "Three", 1)
	words = tell(t, decode, "Three", 24)
	assert.Equal(t, 3, loads("decode"))
	assert.Equal(t, tell(t, prefill, "Three", 24), words)
	n.remove("prefill")
	n.remove("decode")
}

// tell sends a model a text of more than a block of its KV cache, which begins with a word. It returns
// what the model says to that in so many tokens.
func tell(t *testing.T, i launcherapi.Instance, word string, tokens int) string {
	t.Helper()
	request, err := json.Marshal(map[string]any{
		"model": i.ServedModelNames[0], "temperature": 0, "ignore_eos": true, "max_tokens": tokens,
		"messages": []map[string]string{{"role": "user", "content": word + strings.Repeat(" quick brown fox jumps over the lazy dog.", 4)}},
	})
	require.NoError(t, err)
	words, err := tryWith(t.Context(), i, string(request))
	require.NoError(t, err)
	return words
}

// caches is the folder through which instances transfer KV caches. Each text has a folder there, with a file
// of each layer.
type caches struct {
	t   *testing.T
	dir string
}

// flags are those of an instance that has a part in it. By default a CPU has blocks of 128 tokens, half of
// the longest text that the model takes.
func (c caches) flags(role string) []string {
	return []string{"--block-size", "32", "--kv-transfer-config", fmt.Sprintf(`{"kv_connector":"ExampleConnector","kv_role":%q,"kv_connector_extra_config":{"shared_storage_path":%q}}`, role, c.dir)}
}

func (c caches) files() []string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "*", "*.safetensors"))
	require.NoError(c.t, err)
	return files
}

// spoil replaces all values by zeros. A file has the length of its header in 8 bytes, the header, and the
// values (https://huggingface.co/docs/safetensors).
func (c caches) spoil() {
	c.t.Helper()
	for _, path := range c.files() {
		data, err := os.ReadFile(path)
		require.NoError(c.t, err)
		clear(data[8+binary.LittleEndian.Uint64(data):])
		require.NoError(c.t, os.WriteFile(path, data, 0o600))
	}
}
