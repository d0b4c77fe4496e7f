package statedir

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// childLock takes the lock, says so, and holds it until its standard input
// ends.
func childLock(dir string) {
	lock, err := lockFolder(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = lock.close()
}

// childHold only lives until its standard input ends.
func childHold(string) {
	fmt.Println("here")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// start starts the child and waits for its first line.
func start(t *testing.T, cmd *exec.Cmd) (line string, stdin io.Closer) {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return line, in
}

func TestTwoProcessesNeverShareAFolderAndTheSecondIsToldThePidOfTheFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "hotseat")
	holder := child(t, "lock", dir)
	line, stdin := start(t, holder)
	require.Equal(t, "locked\n", line)

	_, err := lockFolder(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, &LockedError{Dir: dir, PID: holder.Process.Pid}, locked)
	assert.Contains(t, err.Error(), dir)
	assert.Contains(t, err.Error(), fmt.Sprintf("pid %d", holder.Process.Pid))

	require.NoError(t, stdin.Close())
	require.NoError(t, holder.Wait())
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.close()) }()
	_, err = lockFolder(dir)
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, os.Getpid(), locked.PID)
}

func TestTheLockOfAKilledProcessIsFree(t *testing.T) {
	dir := t.TempDir()
	holder := child(t, "lock", dir)
	line, _ := start(t, holder)
	require.Equal(t, "locked\n", line)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, lock.close())
}

func TestAChildDoesNotHoldTheLockOfItsParent(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	heir := child(t, "hold", dir)
	line, stdin := start(t, heir)
	require.Equal(t, "here\n", line)
	require.NoError(t, lock.close())
	lock, err = lockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, lock.close())
	require.NoError(t, stdin.Close())
	require.NoError(t, heir.Wait())
}

func TestALockFileThatHoldsNoPidStillLocks(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.close()) }()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), []byte("?"), 0o600))
	_, err = lockFolder(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Zero(t, locked.PID)
	assert.Contains(t, err.Error(), "another process")
}

func TestAFolderThatCannotBeLockedIsAnErrorThatNamesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := lockFolder(filepath.Join(file, "state"))
	assert.ErrorContains(t, err, file)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lock"), 0o700))
	_, err = lockFolder(dir)
	assert.ErrorContains(t, err, filepath.Join(dir, "lock"))
}

// cleaner locks the folder as systemd-tmpfiles does, which goes on without those that are
// locked.
func cleaner(t *testing.T, dir string) (*os.File, error) {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func TestACleanerOfTemporaryFilesLeavesTheFolderAlone(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	_, err = cleaner(t, dir)
	require.ErrorIs(t, err, unix.EWOULDBLOCK)
	require.NoError(t, lock.close())
	_, err = cleaner(t, dir)
	require.NoError(t, err)
}

func TestALauncherWaitsForACleaner(t *testing.T) {
	dir := t.TempDir()
	busy, err := cleaner(t, dir)
	require.NoError(t, err)
	locked := make(chan error, 1)
	go func() {
		lock, err := lockFolder(dir)
		if err == nil {
			err = lock.close()
		}
		locked <- err
	}()
	require.Eventually(t, func() bool {
		_, err := os.Lstat(filepath.Join(dir, lockFile))
		return err == nil
	}, patience.Wait(), time.Millisecond)
	require.NoError(t, busy.Close())
	require.NoError(t, <-locked)
}

func TestALockedFolderHasOneLauncherThoughItsLockFileWasRemoved(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, lockFile)))
	_, err = lockFolder(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, &LockedError{Dir: dir}, locked)
	require.NoError(t, lock.close())
	lock, err = lockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, lock.close())
}
