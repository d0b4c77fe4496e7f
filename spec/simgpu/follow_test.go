package simgpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// followed is a folder of one GPU that is followed.
func followed(t *testing.T) (dir *Dir, folder string) {
	t.Helper()
	path := t.TempDir()
	dir, err := Create(path, []GPU{{UUID: "GPU-a", Product: "simulated", MemoryTotalBytes: 1 << 40}})
	require.NoError(t, err)
	require.NoError(t, dir.Follow())
	t.Cleanup(func() { require.NoError(t, dir.Close()) })
	return dir, filepath.Join(path, "GPU-a")
}

// holds looks twice: the second look need not read the folder.
func holds(t *testing.T, dir *Dir, want ...Holder) {
	t.Helper()
	for range 2 {
		holders, err := dir.Holders("GPU-a")
		require.NoError(t, err)
		require.Equal(t, want, holders)
	}
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	return child
}

func TestAFollowedFolderThatIsTheSameIsNotReadAgain(t *testing.T) {
	dir, folder := followed(t)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 5))
	require.False(t, dir.seen.follower.unchanged("GPU-a", folder))
	require.True(t, dir.seen.follower.unchanged("GPU-a", folder))
	require.NoError(t, os.WriteFile(filepath.Join(folder, ".awake"), []byte("1"), 0o600))
	require.True(t, dir.seen.follower.unchanged("GPU-a", folder), "names that begin with a dot hold nothing")
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 6))
	require.False(t, dir.seen.follower.unchanged("GPU-a", folder))
}

func TestALookSeesEveryChangeOfAFollowedFolder(t *testing.T) {
	dir, folder := followed(t)
	self, other := os.Getpid(), sleeper(t)
	mine, its := filepath.Join(folder, strconv.Itoa(self)), filepath.Join(folder, strconv.Itoa(other.Process.Pid))
	holds(t, dir)
	require.NoError(t, dir.Set("GPU-a", self, 5))
	holds(t, dir, Holder{self, 5})
	require.NoError(t, os.WriteFile(mine, []byte("7"), 0o600)) // in place
	holds(t, dir, Holder{self, 7})
	require.NoError(t, os.Rename(mine, its))
	holds(t, dir, Holder{other.Process.Pid, 7})
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	holds(t, dir)
	require.NoError(t, os.WriteFile(mine, []byte("no number"), 0o600))
	for range 2 {
		_, err := dir.Holders("GPU-a")
		require.ErrorContains(t, err, "cannot read the number of bytes")
	}
	require.NoError(t, os.WriteFile(mine, []byte("8"), 0o600))
	holds(t, dir, Holder{self, 8})
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(mine, long, long)) // of an earlier process with that number
	holds(t, dir)
	require.NoError(t, os.RemoveAll(folder))
	holds(t, dir)
	require.NoError(t, dir.Set("GPU-a", self, 9))
	holds(t, dir, Holder{self, 9})
	require.NoError(t, os.Remove(mine))
	holds(t, dir)
}

func TestALookSeesMoreChangesThanTheKernelKeeps(t *testing.T) {
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	events, err := strconv.Atoi(string(limit[:len(limit)-1]))
	require.NoError(t, err)
	dir, folder := followed(t)
	holds(t, dir)
	var files [2]*os.File // in turn: events of one kind after the other are told once
	for n := range files {
		files[n], err = os.Create(filepath.Join(folder, "not-"+strconv.Itoa(n)))
		require.NoError(t, err)
		defer func() { _ = files[n].Close() }()
	}
	for n := range events + 10 {
		_, err = files[n%2].WriteAt([]byte("x"), 0)
		require.NoError(t, err)
	}
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 5)) // of which no event is kept
	holds(t, dir, Holder{os.Getpid(), 5})
}

func TestAFolderIsUsedAsBeforeWhenItIsFollowedNoMore(t *testing.T) {
	dir, _ := followed(t)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 5))
	holds(t, dir, Holder{os.Getpid(), 5})
	require.NoError(t, dir.Close())
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 6))
	holds(t, dir, Holder{os.Getpid(), 6})
}

func TestALookAtAFollowedFolderSeesALockThatIsGivenUp(t *testing.T) {
	dir, folder := followed(t)
	name := strconv.Itoa(os.Getpid()) + "." + strconv.FormatUint(dir.home+1, 10) // of another PID namespace
	file, err := replace(folder, name, []byte("5"))
	require.NoError(t, err)
	holds(t, dir, Holder{0, 5})
	require.NoError(t, file.Close())
	holds(t, dir)
}
