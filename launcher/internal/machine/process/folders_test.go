package process

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEndDoesNotWaitForFoldersOnAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		stalls := make(chan struct{})
		assert.False(t, inTime(diskTime, func() { <-stalls }))
		assert.Equal(t, diskTime, time.Since(began))
		close(stalls)
		assert.True(t, inTime(diskTime, func() {}))
	})
}

func TestLateRemovalLeavesTheFolderOfALaterTree(t *testing.T) {
	h := &Host{opts: Options{ScratchDir: filepath.Join("/tmp", "hs-"+filepath.Base(t.TempDir())), Logger: slog.New(slog.DiscardHandler)}, processes: map[string]*Process{"a": nil}}
	defer os.RemoveAll(h.opts.ScratchDir)
	dir := folderOf(h.opts.ScratchDir, "a")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, h.removeFoldersUnlessTaken("a", func() bool { return true }))
	assert.DirExists(t, dir, "a later tree of that name has it")
	require.NoError(t, h.removeFolders("a"), "in time, the tree of that name is the one that has ended")
	assert.NoDirExists(t, dir)
}
