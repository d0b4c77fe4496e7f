package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Of the section "Crashes and full disks" of spec/rows.md: a cleaner of temporary files.

func TestACleanerOfTheStateFolderStopsNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	for _, folder := range []string{"swaps", "instances", "logs", "exits", "preloaders", "shm"} {
		require.NoError(t, os.RemoveAll(filepath.Join(n.State, folder)))
	}
	for _, file := range []string{"lock", folderMark} {
		require.NoError(t, os.Remove(filepath.Join(n.State, file)))
	}
	require.NoError(t, os.Remove(filepath.Join(n.SimFS, GPU(1))), "nothing is on that GPU")

	n.Awake("c", On(1))
	n.SwapDone(map[string]any{"gpu_uuids": On(0), "in": map[string]any{"id": "b", "args": []string{"b", "--served-model-name", "b"}}})
	b := n.Await("b", "awake")
	assert.Contains(t, string(n.Call("GET", "/v2/vllm/instances/b/log", nil).Body), "b")
	refused(t, nil, "--state-dir", n.State) // by the lock of the folder: the file has gone

	n.Kill9()
	n.Start()
	n.Await("a", "sleeping")
	assert.Equal(t, b.PID, n.Get("b").PID)
	n.SwapDone(map[string]any{"gpu_uuids": On(0), "in": map[string]any{"instance_id": "a"}})
}
