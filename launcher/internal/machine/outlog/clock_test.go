package outlog_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

// clocks are the wall clock, which may be set, and that of the boot.
type clocks struct {
	boot  string
	since time.Duration
	wall  time.Time
}

func (c *clocks) pass(d time.Duration) {
	c.since += d
	c.wall = c.wall.Add(d)
}

func (c *clocks) open(t *testing.T, dir string) *outlog.Store {
	t.Helper()
	return open(t, outlog.Options{
		Dir: dir, MaxAge: 24 * time.Hour, ClockFile: dir + ".clock",
		Now:       func() time.Time { return c.wall },
		SinceBoot: func() (string, time.Duration, error) { return c.boot, c.since, nil },
	})
}

func TestLogsAgeByTheClockOfTheBoot(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for name, tt := range map[string]struct {
		set     time.Duration // of the wall clock
		restart bool          // of the launcher, meanwhile
		reboot  bool          // of the machine, meanwhile
		left    []time.Duration
		removed time.Duration // after which both are removed
	}{
		"the clock is set forward":                         {set: year, left: []time.Duration{0, 23 * time.Hour}, removed: day},
		"the clock is set forward, no launcher runs":       {set: year, restart: true, left: []time.Duration{0, 23 * time.Hour}, removed: day},
		"the clock is set back":                            {set: -year, left: []time.Duration{0, 23 * time.Hour}, removed: day},
		"the clock is set back, no launcher runs":          {set: -year, restart: true, left: []time.Duration{0, 23 * time.Hour}, removed: day},
		"the clock is set back while the machine restarts": {set: -year, restart: true, reboot: true, left: []time.Duration{0, 23 * time.Hour}, removed: day},
		"the clock is not set":                             {restart: true, left: []time.Duration{0, 22 * time.Hour}, removed: day},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := &clocks{boot: "first", since: time.Hour, wall: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
			store := c.open(t, dir)
			older := aged(t, store, dir, "a", 1, c.wall, time.Hour)
			newer := aged(t, store, dir, "b", 1, c.wall, 0)
			prune := func() (left []string) {
				require.NoError(t, store.Prune(nil))
				return logs(t, dir)
			}
			require.Equal(t, []string{older, newer}, prune())

			c.wall = c.wall.Add(tt.set)
			if tt.restart {
				store = c.open(t, dir)
			}
			if tt.reboot {
				c.boot, c.since = "second", time.Minute
			}
			var passed time.Duration
			for _, later := range tt.left {
				c.pass(later - passed)
				passed = later
				require.Equal(t, []string{older, newer}, prune(), "after %s", later)
				assert.True(t, changed(t, dir, older).Before(changed(t, dir, newer)), "they keep their order")
			}
			c.pass(tt.removed + time.Minute - passed)
			assert.Empty(t, prune())
		})
	}
}

// logs names the logs of a folder, in order.
func logs(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

func changed(t *testing.T, dir, name string) time.Time {
	t.Helper()
	info, err := os.Lstat(filepath.Join(dir, name))
	require.NoError(t, err)
	return info.ModTime()
}

func TestClockThatWasSetForwardRemovesNoLongLogTooEarly(t *testing.T) {
	dir := t.TempDir()
	c := &clocks{boot: "first", wall: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
	store := open(t, outlog.Options{
		Dir: dir, MaxTotalBytes: 10,
		Now:       func() time.Time { return c.wall },
		SinceBoot: func() (string, time.Duration, error) { return c.boot, c.since, nil },
	})
	require.NoError(t, store.Prune(nil))
	long := aged(t, store, dir, "a", 100, c.wall, time.Second)
	c.wall = c.wall.Add(time.Hour)
	require.NoError(t, store.Prune(nil))
	assert.Equal(t, []string{long}, logs(t, dir), "it was only just written")
}

func TestSettingOfTheClockIsKeptBeforeLogsAndBesideTheirFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	file := filepath.Join(t.TempDir(), "clock.json")
	store := open(t, outlog.Options{Dir: dir, ClockFile: file})
	kept, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, store.Prune(nil))
	again, err := os.Stat(file)
	require.NoError(t, err)
	assert.True(t, os.SameFile(kept, again), "the clock was not set, so that nothing is written")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestSettingOfTheClockIsWrittenOnceItCanBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(dir, "clock.json")
	var said bytes.Buffer
	store := open(t, outlog.Options{Dir: t.TempDir(), ClockFile: file, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	for range 3 {
		require.NoError(t, store.Prune(nil), "else Bound would pause for long")
	}
	assert.Equal(t, 1, strings.Count(said.String(), "cannot keep the setting of the clock"), "it is logged once: %s", &said)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, store.Prune(nil))
	assert.FileExists(t, file)

	require.NoError(t, os.Remove(file))
	require.NoError(t, store.Prune(nil), "the clock was not set, so that nothing is written")
	assert.NoFileExists(t, file)
}
