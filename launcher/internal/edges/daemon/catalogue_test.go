package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesAreReadOnceTheyStayUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		changed, told, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var content atomic.Value
		content.Store("a")
		reads := make(chan string, 10)
		go func() {
			defer close(over)
			reloadWhenSettled(ctx, changed, told, func() string { return content.Load().(string) }, func() { reads <- content.Load().(string) })
		}()
		synctest.Wait()
		write := func(text string) {
			content.Store(text)
			changed <- struct{}{}
			synctest.Wait()
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		write("") // an editor empties the file, and then writes it
		pass(settles - 1)
		write("b")
		pass(settles - 1)
		assert.Empty(t, reads)
		pass(1)
		assert.Equal(t, "b", <-reads)
		write("b") // another file of the folder has changed
		pass(time.Hour)
		assert.Empty(t, reads)
		write("c")
		told <- struct{}{}
		pass(time.Hour)
		assert.Equal(t, "c", <-reads)
		assert.Empty(t, reads, "it was told to read, and does so once")
		end()
		<-over
	})
}

func TestFolderThatIsMadeLaterIsWatched(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "conf.d")
	ctx, end := context.WithCancel(t.Context())
	changed, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		d := &Daemon{log: slog.New(slog.DiscardHandler)}
		d.watchFolder(ctx, folder, changed)
	}()
	for range 2 {
		require.NoError(t, os.Mkdir(folder, 0o755))
		<-changed // the folder is watched
		require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), nil, 0o600))
		<-changed
		require.NoError(t, os.RemoveAll(folder))
		<-changed
	}
	end()
	<-over
}
