package fswatch

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUntilLooksBeforeAndAfterEachChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	looks := 0
	require.NoError(t, Until(t.Context(), dir, func() bool {
		looks++
		_, err := os.Stat(file)
		if looks == 1 {
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NoError(t, os.WriteFile(file, nil, 0o600)) // which the watch, that is there by now, sees
		}
		return looks > 1 && err == nil
	}))
	require.Greater(t, looks, 1)
}

func TestUntilEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := Until(ctx, t.TempDir(), func() bool { cancel(); return false })
	require.ErrorIs(t, err, context.Canceled)
}

func TestUntilSaysThatThereIsNoSuchPath(t *testing.T) {
	err := Until(t.Context(), filepath.Join(t.TempDir(), "gone"), func() bool { t.Error("nothing is watched"); return true })
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "cannot watch")
}

// instances counts the inotify instances of this process.
func instances(t *testing.T) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}

func TestWaitsShareOneInotifyInstance(t *testing.T) {
	parent := t.TempDir()
	ready := func(n int) string { return filepath.Join(parent, string(rune('a'+n%20)), string(rune('a'+n))) }
	var begun, ended sync.WaitGroup
	for n := range 40 { // two in each folder
		require.NoError(t, os.MkdirAll(filepath.Dir(ready(n)), 0o700))
		looked := sync.OnceFunc(begun.Done)
		begun.Add(1)
		ended.Go(func() {
			assert.NoError(t, Until(t.Context(), filepath.Dir(ready(n)), func() bool {
				looked()
				_, err := os.Stat(ready(n))
				return err == nil
			}))
		})
	}
	begun.Wait()
	assert.Equal(t, 1, instances(t))
	for n := range 40 { // the second wait in a folder goes on when the first has ended
		require.NoError(t, os.WriteFile(ready(n), nil, 0o600))
	}
	ended.Wait()
	assert.Zero(t, instances(t))
}

func TestFilesystemThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	dir := t.TempDir()
	silent, err := all.of(dir)
	require.NoError(t, err)
	other, err := all.of("/proc/self")
	require.NoError(t, err)
	require.NotSame(t, silent, other)
	ended := make(chan error, 1)
	silent.mu.Lock() // as a wait does that begins meanwhile
	go func() { ended <- Until(t.Context(), "/proc/self", func() bool { return true }) }()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(patience.Wait()):
		t.Error("a wait for /proc waits for another filesystem")
	}
	silent.mu.Unlock()
}

func TestUntilWatchesAFolderThatWasMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	ctx, stop := context.WithCancel(t.Context())
	var begun, ended sync.WaitGroup
	begun.Add(1)
	looked := sync.OnceFunc(begun.Done)
	ended.Go(func() { // keeps the instance, and the watch that ends
		assert.ErrorIs(t, Until(ctx, dir, func() bool { looked(); return false }), context.Canceled)
	})
	begun.Wait()
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Mkdir(dir, 0o700))
	looks := 0
	require.NoError(t, Until(t.Context(), dir, func() bool {
		looks++
		if looks == 1 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		}
		return looks > 1
	}))
	stop()
	ended.Wait()
}
