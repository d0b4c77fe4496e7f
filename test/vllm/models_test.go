//go:build vllm

package vllm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// A model from the store is served without a question to the hub, although the
// engine may ask: a model from the hub, and one from a plain folder.
func TestAModelFromTheStoreIsServedWithoutTheHub(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	files := map[string][]byte{}
	entries, err := os.ReadDir(modelA)
	require.NoError(t, err)
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(modelA, e.Name()))
		require.NoError(t, err)
	}
	hub.Put("org/tiny-a", hubserver.Model{Commit: "0123456789abcdef0123456789abcdef01234567", Files: files})
	store := filepath.Join(t.TempDir(), "models")
	for _, uri := range []string{"hf://org/tiny-a", "file://" + modelA} {
		pull := exec.Command(launcherPath, "pull", "--model-store", store, uri)
		pull.Env = append(os.Environ(), "HF_ENDPOINT="+hub.URL)
		out, err := pull.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	n := newNode(t, func(n *node) {
		n.flags = []string{"--model-store", store}
		n.env = []string{"HF_ENDPOINT=" + hub.URL, "HF_HUB_OFFLINE=0", "HF_HOME=" + t.TempDir()}
	})
	require.NotEmpty(t, hub.Seen())
	for id, model := range map[string]string{"a": "org/tiny-a", "b": "file://" + modelA} {
		args := append([]string{model}, arguments(model, model)[3:]...)
		_, err := n.Create(t.Context(), id, launcherapi.InstanceSpec{Args: args, GPUUUIDs: gpu(0), ModelCache: launcherapi.ModelCacheRequire})
		require.NoError(t, err)
		i := n.await(id, "awake")
		assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom)
		assert.Equal(t, []string{model}, i.ServedModelNames)
		words, err := try(t.Context(), i)
		require.NoError(t, err)
		assert.NotEmpty(t, words)
		n.remove(id)
	}
	assert.Empty(t, hub.Seen(), "the hub was asked for something")
}
