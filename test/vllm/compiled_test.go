//go:build vllm

package vllm

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// machineCode lists what the compiler has made in the cache of a node's engines, with
// the times.
func (n *node) machineCode() map[string]time.Time {
	n.t.Helper()
	all := map[string]time.Time{}
	err := filepath.WalkDir(filepath.Join(n.state, "compiled"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".so") {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all[path] = info.ModTime()
		}
		return err
	})
	require.NoError(n.t, err)
	return all
}

// On a CPU, too, vLLM compiles unless it is told to be eager: two forked from one
// preloader, which has the cache's folder from its own start.
func TestTwoColdEnginesCompileOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, auto, func(n *node) {
		n.ownCache, n.flags = true, []string{"--compile-cache", "always"}
	})
	for g, id := range []string{"a", "b"} {
		args := []string{modelA, "--served-model-name", id, "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4"}
		_, err := n.Create(t.Context(), id, launcherapi.InstanceSpec{Args: args, GPUUUIDs: gpu(g)})
		require.NoError(t, err)
	}
	first, second := "a", "b"
	n.eventually("one waits for what the other compiles", func() bool {
		if strings.Contains(n.get("a").Reason, "waiting for what instance b compiles") {
			first, second = "b", "a"
			return true
		}
		return strings.Contains(n.get("b").Reason, "waiting for what instance a compiles")
	})
	n.await(first, "awake")
	compiled := n.machineCode()
	assert.NotEmpty(t, compiled)
	i := n.await(second, "awake")
	assert.Equal(t, compiled, n.machineCode(), "the second found all that the first had compiled")
	assert.Equal(t, launcherapi.StartFork, i.StartedBy)
	t.Logf("%s: %v; %s: %v", first, n.get(first).Timings, second, i.Timings)
	assert.Equal(t, ask(t, n.get(first)), ask(t, i))
	n.remove("a")
	n.remove("b")
}
