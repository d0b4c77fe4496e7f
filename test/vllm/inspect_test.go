//go:build vllm

package vllm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// listStarts has each Python that is started by exec write its command line.
const listStarts = `
import os, sys

with open(os.path.join(os.path.dirname(__file__), "started"), "a") as file:
    file.write(" ".join(sys.orig_argv) + "\n")
`

// inspectAlone has vLLM inspect the class of the model, as it does when it is started by
// exec.
const inspectAlone = `
from vllm.model_executor.models.registry import ModelRegistry

ModelRegistry.models["LlamaForCausalLM"].inspect_model_cls()
`

// vLLM inspects the class of a model in another process, unless its cache has the
// result. A forked instance forks that process; vLLM alone starts a new Python.
func TestForkedStartInspectsItsModelByFork(t *testing.T) {
	t.Parallel()
	starts, cache := pythonPath(t, "sitecustomize.py", listStarts), t.TempDir()
	env := []string{"PYTHONPATH=" + starts, "VLLM_CACHE_ROOT=" + cache, "TORCHINDUCTOR_CACHE_DIR=" + compiled}
	n := newNode(t, auto, func(n *node) { n.ownCache, n.env = true, env })
	n.preloaded("")
	n.createBy(launcherapi.StartFork, "a", gpu(0))
	ask(t, n.await("a", "awake"))
	assert.Empty(t, inspections(t, starts), "no new Python is started to inspect the model")
	assert.NotContains(t, n.logOf(t, "a"), "hotseat:")
	forked := takeInfos(t, cache)
	require.NotEmpty(t, forked)
	n.remove("a")

	script, err := os.ReadFile(vllmPath)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(script), "\n")
	cmd := exec.CommandContext(t.Context(), strings.TrimPrefix(first, "#!"), "-c", inspectAlone)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Len(t, inspections(t, starts), 1, "else this test would see nothing")
	assert.Equal(t, takeInfos(t, cache), forked)
}

// inspections are the command lines of Pythons that were started to inspect a model.
func inspections(t *testing.T, starts string) (found []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(starts, "started"))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " -m vllm.model_executor.models.registry") {
			found = append(found, line)
		}
	}
	return found
}

// takeInfos reads and removes what vLLM has kept about classes of models.
func takeInfos(t *testing.T, cache string) map[string]string {
	t.Helper()
	infos := map[string]string{}
	dir := filepath.Join(cache, "modelinfos")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		infos[f.Name()] = string(data)
	}
	require.NoError(t, os.RemoveAll(dir))
	return infos
}
