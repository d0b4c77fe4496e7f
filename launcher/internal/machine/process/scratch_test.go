package process_test

import (
	"errors"
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

// longHost is a Host whose path for scratch folders is too long for sockets.
func longHost(t *testing.T) *host {
	t.Helper()
	h := scratchHost(t)
	require.NoError(t, h.Close())
	temporary, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	t.Setenv("TMPDIR", temporary)
	h.scratchDir = filepath.Join(h.scratchDir, strings.Repeat("x", 60))
	require.NoError(t, h.open())
	return h
}

// elsewhere lists the folders in the temporary folder.
func elsewhere(t *testing.T) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "hotseat-") {
			all = append(all, filepath.Join(os.TempDir(), entry.Name()))
		}
	}
	return all
}

// settled starts a tree that makes the socket that it is told to.
func (h *host) settled(t *testing.T, name string) (c *child, socket string) {
	t.Helper()
	socket, err := h.Socket(name)
	require.NoError(t, err)
	command := command(name, "settler")
	command.Scratch, command.Socket = "A_FOLDER", socket
	c = h.begin(t, command)
	made := c.says("socket")
	c.says("ready")
	require.Equal(t, filepath.Dir(made), filepath.Dir(socket))
	require.NoError(t, os.Rename(made, socket), "as if it had been told its name")
	return c, socket
}

func TestSocketsThatDoNotFitAreInAFolderElsewhere(t *testing.T) {
	h := longHost(t)
	a, first := h.settled(t, "a")
	_, second := h.settled(t, "b")
	require.Len(t, elsewhere(t), 1)
	own := elsewhere(t)[0]
	assert.Equal(t, own, filepath.Dir(filepath.Dir(first)))
	assert.Equal(t, own, filepath.Dir(filepath.Dir(second)))
	for _, dir := range []string{own, filepath.Dir(first)} {
		info, err := os.Lstat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	require.NoError(t, a.Kill(t.Context()))
	assert.NoFileExists(t, first)
	assert.FileExists(t, second)

	require.NoError(t, h.Close())
	require.NoError(t, h.open())
	assert.Equal(t, second, h.SocketNow("b", filepath.Join("/gone", filepath.Base(second))), "a later launcher finds it")
	require.NoError(t, h.Clear(t.Context(), "b"))
	assert.Equal(t, []string{own}, elsewhere(t), "nobody can take its name")
	left, err := os.ReadDir(own)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A filesystem of POSIX message queues has no sockets, as exFAT has none.
func TestSocketsThatTheirFilesystemLacksAreInAFolderElsewhere(t *testing.T) {
	h := scratchHost(t)
	require.NoError(t, h.Close())
	t.Setenv("TMPDIR", filepath.Dir(h.scratchDir))
	state := filepath.Join(filepath.Dir(h.scratchDir), "state")
	require.NoError(t, os.Mkdir(state, 0o700))
	if err := syscall.Mount("mqueue", state, "mqueue", 0, ""); err != nil {
		t.Skipf("NOT TESTED: A FILESYSTEM WITHOUT SOCKETS CANNOT BE MOUNTED HERE: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	h.scratchDir = filepath.Join(state, "run")
	require.NoError(t, h.open())
	c, socket := h.settled(t, "a")
	require.Equal(t, elsewhere(t), []string{filepath.Dir(filepath.Dir(socket))})
	require.NoError(t, c.Kill(t.Context()))
}

func TestFolderElsewhereIsNeverAnothers(t *testing.T) {
	h := longHost(t)
	planned, err := h.Socket("a")
	require.NoError(t, err)
	assert.Empty(t, elsewhere(t), "a tree that may never start has no folder")
	theirs := filepath.Dir(filepath.Dir(planned))
	for what, squat := range map[string]func() error{
		"open to others": func() error { return errors.Join(os.Mkdir(theirs, 0o700), os.Chmod(theirs, 0o755)) },
		"a link":         func() error { return os.Symlink(t.TempDir(), theirs) },
		"a file":         func() error { return os.WriteFile(theirs, nil, 0o600) },
	} {
		require.NoError(t, squat())
		c, socket := h.settled(t, "a")
		assert.NotEqual(t, theirs, filepath.Dir(filepath.Dir(socket)), what)
		require.NoError(t, c.Kill(t.Context()))
		assert.ElementsMatch(t, []string{theirs, filepath.Dir(filepath.Dir(socket))}, elsewhere(t), "what others put there stays: %s", what)
		require.NoError(t, os.Remove(theirs))
	}
}

func TestSocketOfARenamedFolderIsFound(t *testing.T) {
	h := scratchHost(t)
	_, told := h.settled(t, "a")
	require.NoError(t, h.Close())
	moved := h.scratchDir + "-moved"
	require.NoError(t, os.Rename(h.scratchDir, moved))
	h.scratchDir = moved
	require.NoError(t, h.open())
	now := h.SocketNow("a", told)
	assert.Equal(t, moved, filepath.Dir(filepath.Dir(now)))
	assert.FileExists(t, now)
	assert.Equal(t, told, h.SocketNow("b", told), "there is none: nothing better is known")
	require.NoError(t, h.Clear(t.Context(), "a"))
	h.empty(t)
}

func TestTreeWithoutAVariableHasAFolderForItsSocket(t *testing.T) {
	h := scratchHost(t)
	socket, err := h.Socket("a")
	require.NoError(t, err)
	_, err = h.Fork(process.Command{Name: "a", Socket: socket}, func(_ []*os.File, _ []string) (process.ID, error) {
		assert.DirExists(t, filepath.Dir(socket))
		return process.ID{}, os.ErrInvalid
	})
	require.ErrorIs(t, err, os.ErrInvalid)
	h.empty(t)
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
