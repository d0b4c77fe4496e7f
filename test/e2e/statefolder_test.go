package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folderMark makes a folder a state folder.
const folderMark = ".hotseat-state"

// A launcher takes only a folder that has nothing of others, and removes nothing that it has
// not written.

func TestStateFolderWithFilesOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "project")
	long := time.Now().Add(-40 * 24 * time.Hour)
	for _, name := range []string{"main.py", "logs/app.1.log", "logs/app.2.log", "preloaders/notes.txt", "instances/a.json", "swaps/a.json", "compiled/trash-2024/x", "exits/x", "mark", "revision", "lock"} {
		path := filepath.Join(state, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("mine"), 0o644))
		require.NoError(t, os.Chtimes(path, long, long))
	}
	before := tree(t, state)
	line := refused(t, nil, "--state-dir", state)
	assert.Contains(t, line, "it has files that no launcher has written (compiled, exits, instances, lock, logs, …)")
	assert.Contains(t, line, "--state-dir")
	assert.Equal(t, before, tree(t, state))

	said, err := exec.CommandContext(t.Context(), bin.launcher, "init", "--", "serve", "--state-dir", state, "--vllm", bin.enginesim, "--gpus", "simulated:1").CombinedOutput()
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, 2, ended.ExitCode())
	assert.Contains(t, string(said), "it has files that no launcher has written")
	assert.Equal(t, before, tree(t, state))
}

func TestStateFolderOfAnEarlierReleaseKeepsItsEngines(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.SwapDone(map[string]any{"gpu_uuids": On(0), "in": map[string]any{"id": "b", "args": []string{"b", "--served-model-name", "b"}}})
	b := n.Await("b", "awake")
	n.Kill9()
	require.NoError(t, os.Remove(filepath.Join(n.State, folderMark)), "earlier releases had none")
	for _, name := range []string{"launcher.yaml", "hf/hub/x", "models/Qwen/config.json"} { // of an administrator
		path := filepath.Join(n.State, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("mine"), 0o644))
	}

	n.Start()
	assert.FileExists(t, filepath.Join(n.State, folderMark))
	n.Await("a", "sleeping")
	assert.Equal(t, a.PID, n.Get("a").PID)
	assert.Equal(t, b.PID, n.Get("b").PID)
	assert.FileExists(t, filepath.Join(n.State, "models/Qwen/config.json"))
}

// A shell makes the file of `launcher serve --state-dir D >D/launcher.log` before the launcher
// starts.
func TestStateFolderMayHaveTheLogOfItsLauncher(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]*Node{"serve": NewStoppedNode(t), "init": underInit(t)} {
		require.NoError(t, os.Mkdir(n.State, 0o700))
		n.output = filepath.Join(n.State, "launcher.log")
		n.Start()
		assert.FileExists(t, filepath.Join(n.State, folderMark), name)
		n.Awake("a", On(0))
	}
}
