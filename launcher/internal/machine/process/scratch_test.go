package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// scratchHost is a Host with a folder for scratch folders, whose path is short
// as those of sockets must be.
func scratchHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := newHost(t, cgroup.None)
	require.NoError(t, h.Close())
	h.scratchDir = filepath.Join(dir, "run")
	require.NoError(t, h.open())
	return h
}

// settle starts one that makes a socket in its folder.
func (h *host) settle(t *testing.T) (c *child, socket string) {
	t.Helper()
	command := command("a", "settler")
	command.Scratch = "A_FOLDER"
	c = h.begin(t, command)
	socket = c.says("socket")
	c.says("ready")
	require.FileExists(t, socket)
	require.True(t, strings.HasPrefix(socket, h.scratchDir+"/"), socket)
	return c, socket
}

func TestATreeHasAFolderOfItsOwnThatGoesWithIt(t *testing.T) {
	h := scratchHost(t)
	c, first := h.settle(t)
	info, err := os.Stat(filepath.Dir(first))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, c.Kill(t.Context()))
	h.empty(t)

	_, again := h.settle(t)
	assert.Equal(t, first, again)
	require.NoError(t, h.Close())
	require.NoError(t, h.open())
	require.NoError(t, h.Clear(t.Context(), "a"), "by another launcher")
	h.empty(t)
}

func TestAFailedStartLeavesNoFolder(t *testing.T) {
	h := scratchHost(t)
	_, err := h.Start(process.Command{Name: "a", Path: "/no/such/program", Args: []string{"x"}, Scratch: "A_FOLDER"})
	require.Error(t, err)
	h.empty(t)
	_, err = h.Fork(process.Command{Name: "a", Scratch: "A_FOLDER"}, func(_ []*os.File, env []string) (process.ID, error) {
		assert.Contains(t, strings.Join(env, " "), "A_FOLDER="+h.scratchDir)
		return process.ID{}, os.ErrInvalid
	})
	require.ErrorIs(t, err, os.ErrInvalid)
	h.empty(t)
}

func TestNoFolderIsGivenWhereSocketsWouldNotFit(t *testing.T) {
	h := scratchHost(t)
	require.NoError(t, h.Close())
	h.scratchDir = filepath.Join(h.scratchDir, strings.Repeat("x", 60))
	require.NoError(t, h.open())
	_, err := h.Fork(process.Command{Name: "a", Scratch: "A_FOLDER"}, func(_ []*os.File, env []string) (process.ID, error) {
		assert.NotContains(t, strings.Join(env, " "), "A_FOLDER")
		return process.ID{}, os.ErrInvalid
	})
	require.ErrorIs(t, err, os.ErrInvalid)
}

// empty checks that no scratch folder is left.
func (h *host) empty(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(h.scratchDir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestATreeIsGoneThoughItsFolderCannotBeRemoved(t *testing.T) {
	h := scratchHost(t)
	c, socket := h.settle(t)
	// A mount point cannot be removed, not even by root.
	require.NoError(t, os.Remove(socket))
	if err := syscall.Mount("none", filepath.Dir(socket), "tmpfs", 0, ""); err != nil {
		t.Skipf("NOT TESTED: nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Dir(socket), syscall.MNT_DETACH) })
	require.NoError(t, c.Kill(patient(t)))
	require.False(t, alive(c.ID().PID))
}
