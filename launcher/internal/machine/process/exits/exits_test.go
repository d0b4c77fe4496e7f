package exits

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const boot = "boot-1"

func recorder(t *testing.T) *Recorder {
	t.Helper()
	r, err := NewRecorder(filepath.Join(t.TempDir(), "run", "exits"), boot)
	require.NoError(t, err)
	return r
}

// status of an exit with a code, as wait(2) gives it.
func status(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

func TestAnExitIsFoundByIdStartTimeAndBoot(t *testing.T) {
	r := recorder(t)
	require.NoError(t, r.Record(10, 500, status(7)))
	require.NoError(t, r.Record(10, 600, syscall.WaitStatus(syscall.SIGKILL)))

	entry, ok := Find(r.dir, boot, 10, 500)
	require.True(t, ok)
	require.Equal(t, 7, entry.Code)
	require.WithinDuration(t, time.Now(), entry.At, time.Minute)
	entry, ok = Find(r.dir, boot, 10, 600)
	require.True(t, ok)
	require.Equal(t, -9, entry.Code)

	for name, find := range map[string]func() (Entry, bool){
		"another process":    func() (Entry, bool) { return Find(r.dir, boot, 11, 500) },
		"another start time": func() (Entry, bool) { return Find(r.dir, boot, 10, 501) },
		"another boot":       func() (Entry, bool) { return Find(r.dir, "boot-2", 10, 500) },
		"no folder":          func() (Entry, bool) { return Find("", boot, 10, 500) },
	} {
		entry, ok := find()
		require.False(t, ok, name)
		require.Zero(t, entry, name)
	}
}

func TestABrokenEntryIsNone(t *testing.T) {
	r := recorder(t)
	require.NoError(t, os.WriteFile(file(r.dir, 1, 2), []byte(`{"code":`), 0o600))
	_, ok := Find(r.dir, boot, 1, 2)
	require.False(t, ok)
}

func TestAwaitReturnsWhenTheEntryAppears(t *testing.T) {
	r := recorder(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	defer cancel()
	found := make(chan int)
	go func() {
		entry, _ := Await(ctx, r.dir, boot, 10, 500)
		found <- entry.Code
	}()
	require.NoError(t, r.Record(10, 499, status(1))) // another's
	require.NoError(t, r.Record(10, 500, status(7)))
	require.Equal(t, 7, <-found)
}

func TestAwaitGivesUpWithItsContext(t *testing.T) {
	r := recorder(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, ok := Await(ctx, r.dir, boot, 10, 500)
	require.False(t, ok)
	_, ok = Await(t.Context(), filepath.Join(r.dir, "no", "folder"), boot, 10, 500)
	require.False(t, ok, "a folder that cannot be made is not waited for")
}

func TestAnExitIsRecordedAndAwaitedThoughTheFolderWasRemoved(t *testing.T) {
	r := recorder(t)
	require.NoError(t, os.Remove(r.dir))
	require.NoError(t, r.Record(10, 499, status(1)))
	_, ok := Find(r.dir, boot, 10, 499)
	require.True(t, ok)

	require.NoError(t, os.RemoveAll(r.dir))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	defer cancel()
	found := make(chan bool)
	go func() {
		_, ok := Await(ctx, r.dir, boot, 10, 500)
		found <- ok
	}()
	require.Eventually(t, func() bool {
		_, err := os.Stat(r.dir)
		return err == nil
	}, patience.Wait(), time.Millisecond)
	require.NoError(t, r.Record(10, 500, status(7)))
	require.True(t, <-found)
}

func TestTheFolderIsPrunedOfTheOldest(t *testing.T) {
	r := recorder(t)
	require.NoError(t, r.Record(1, 1, status(1)))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file(r.dir, 1, 1), old, old))
	for pid := range 2 * keep {
		require.NoError(t, r.Record(pid, 2, status(0)))
	}
	entries, err := os.ReadDir(r.dir)
	require.NoError(t, err)
	require.LessOrEqual(t, len(entries), keep+keep/4)
	_, ok := Find(r.dir, boot, 1, 1)
	require.False(t, ok, "the oldest")
	_, ok = Find(r.dir, boot, 2*keep-1, 2)
	require.True(t, ok, "the newest")

	others := []string{"notes.txt", "1-2.bak", "x1-2", "12"}
	for _, name := range others {
		path := filepath.Join(r.dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, old, old))
	}
	draft := filepath.Join(r.dir, ".1-2")
	require.NoError(t, os.WriteFile(draft, nil, 0o600))
	require.NoError(t, os.Chtimes(draft, old, old))
	_, err = NewRecorder(r.dir, boot)
	require.NoError(t, err)
	entries, err = os.ReadDir(r.dir)
	require.NoError(t, err)
	require.Len(t, entries, keep+len(others))
	require.NoFileExists(t, draft)
	for _, name := range others {
		require.FileExists(t, filepath.Join(r.dir, name), "it is no entry")
	}
}

func TestAFolderThatCannotBeMadeIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := NewRecorder(filepath.Join(path, "exits"), boot)
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
