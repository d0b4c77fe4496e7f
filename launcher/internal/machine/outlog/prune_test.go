package outlog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

// aged makes a log of the size whose last write was so long ago.
func aged(t *testing.T, store *outlog.Store, dir, id string, size int, now time.Time, age time.Duration) string {
	t.Helper()
	name, f := create(t, store, id, strings.Repeat("x", size))
	require.NoError(t, f.Close())
	require.NoError(t, os.Chtimes(filepath.Join(dir, name), now.Add(-age), now.Add(-age)))
	return name
}

func TestPrune(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	type log struct {
		id   string
		size int
		age  time.Duration
	}
	for name, tt := range map[string]struct {
		opts    outlog.Options
		logs    []log
		inUse   []string
		removed []string
	}{
		"nothing goes without limits": {
			logs: []log{{"a", 100, 9999 * time.Hour}},
		},
		"what is older than the limit goes": {
			opts:    outlog.Options{MaxAge: 24 * time.Hour},
			logs:    []log{{"a", 1, 25 * time.Hour}, {"b", 1, 23 * time.Hour}},
			removed: []string{"a.1.log"},
		},
		"the oldest go until the rest fits": {
			opts:    outlog.Options{MaxTotalBytes: 250},
			logs:    []log{{"a", 100, 2 * time.Hour}, {"b", 100, 4 * time.Hour}, {"c", 100, 3 * time.Hour}, {"d", 100, time.Hour}},
			removed: []string{"b.1.log", "c.1.log"},
		},
		"nothing goes that just fits": {
			opts: outlog.Options{MaxTotalBytes: 200},
			logs: []log{{"a", 100, 2 * time.Hour}, {"b", 100, time.Hour}},
		},
		"what is in use stays, however old and large": {
			opts:    outlog.Options{MaxTotalBytes: 100, MaxAge: time.Hour},
			logs:    []log{{"a", 500, 48 * time.Hour}, {"b", 1, 2 * time.Hour}},
			inUse:   []string{"a.1.log"},
			removed: []string{"b.1.log"},
		},
		"what is in use counts towards the total": {
			opts:    outlog.Options{MaxTotalBytes: 100},
			logs:    []log{{"a", 100, 2 * time.Hour}, {"b", 1, time.Hour}},
			inUse:   []string{"a.1.log"},
			removed: []string{"b.1.log"},
		},
		"an earlier log of an id in use may go": {
			opts:    outlog.Options{MaxTotalBytes: 100},
			logs:    []log{{"a", 100, 2 * time.Hour}, {"a", 100, time.Hour}},
			inUse:   []string{"a.2.log"},
			removed: []string{"a.1.log"},
		},
		"a log that was only just written to stays": {
			opts: outlog.Options{MaxTotalBytes: 10, MaxAge: time.Second},
			logs: []log{{"a", 100, 59 * time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.opts.Dir = t.TempDir()
			tt.opts.Now = func() time.Time { return now }
			store := open(t, tt.opts)
			all := map[string]bool{}
			for _, l := range tt.logs {
				all[aged(t, store, tt.opts.Dir, l.id, l.size, now, l.age)] = true
			}
			inUse := map[string]bool{}
			for _, name := range tt.inUse {
				inUse[name] = true
			}
			require.NoError(t, store.Prune(func() map[string]bool { return inUse }))
			for _, name := range tt.removed {
				require.True(t, all[name], name)
				delete(all, name)
			}
			left, err := filepath.Glob(filepath.Join(tt.opts.Dir, "*.log"))
			require.NoError(t, err)
			for _, path := range left {
				assert.True(t, all[filepath.Base(path)], path)
			}
			assert.Len(t, left, len(all))
		})
	}
}

func TestPruneTouchesNoFileThatIsNotALog(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	foreign := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(foreign, []byte("keep"), 0o600))
	require.NoError(t, os.Chtimes(foreign, now.Add(-time.Hour), now.Add(-time.Hour)))
	require.NoError(t, os.Symlink("notes.txt", filepath.Join(dir, "a.1.log")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "b.1.log"), 0o700))
	later := func() time.Time { return now.Add(time.Hour) }
	store := open(t, outlog.Options{Dir: dir, MaxAge: time.Minute, MaxTotalBytes: 1, Now: later})
	require.NoError(t, store.Prune(nil))
	assert.FileExists(t, foreign)
	assert.FileExists(t, filepath.Join(dir, "a.1.log"), "a link")
	assert.DirExists(t, filepath.Join(dir, "b.1.log"))
}

func TestALogThatCannotBeRemovedDoesNotKeepTheOthers(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	store := open(t, outlog.Options{Dir: dir, MaxAge: time.Hour, Now: func() time.Time { return now }})
	// A folder with something in it, in the place of the log, cannot be removed as a file
	// can, not even by root.
	stubborn := filepath.Join(dir, aged(t, store, dir, "a", 1, now, 48*time.Hour))
	good := aged(t, store, dir, "b", 1, now, 2*time.Hour)
	assert.ErrorContains(t, store.Prune(func() map[string]bool {
		assert.NoError(t, os.Remove(stubborn))
		assert.NoError(t, os.MkdirAll(filepath.Join(stubborn, "inside"), 0o700))
		return nil
	}), "a.1.log")
	assert.NoFileExists(t, filepath.Join(dir, good))
}

func TestAnIDWhoseLogsWereAllPrunedIsForgottenAndCanBeUsedAgain(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	store := open(t, outlog.Options{Dir: dir, MaxAge: time.Hour, Now: func() time.Time { return now }})
	aged(t, store, dir, "a", 1, now, 3*time.Hour)
	aged(t, store, dir, "a", 1, now, 2*time.Hour)
	aged(t, store, dir, "b", 1, now, 2*time.Hour)
	kept := aged(t, store, dir, "b", 1, now, 0)
	aged(t, store, dir, "b", 1, now, 2*time.Hour)
	require.NoError(t, store.Prune(nil))
	_, ok := store.Latest("a")
	assert.False(t, ok)
	latest, ok := store.Latest("b")
	assert.True(t, ok)
	assert.Equal(t, kept, latest)
	name, _ := create(t, store, "a", "")
	assert.Equal(t, "a.1.log", name)
}

func TestBlocksBeyondTheEndOfALogDoNotCount(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxTotalBytes: 100 << 10, Now: func() time.Time { return now }})
	other := aged(t, store, dir, "other", 50<<10, now, time.Hour)
	name, f := create(t, store, "long", numbered(0, 200<<10/lineBytes))
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 180<<10))
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 200<<10, 200<<10), "as XFS does by itself")
	blocks, size := onDisk(t, filepath.Join(dir, name))
	require.GreaterOrEqual(t, blocks, size)
	require.NoError(t, store.Prune(used(name)))
	assert.FileExists(t, filepath.Join(dir, other), "both have 70 KiB")
}
