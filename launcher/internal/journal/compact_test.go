package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

func TestALargeJournalIsCompactedToWhatIsLive(t *testing.T) {
	path := newPath(t)
	j, _ := open(t, path, journal.Options{
		MaxBytes: 10_000,
		Snapshot: func() ([]any, error) { return []any{note{Value: -1}}, nil },
	})
	old, err := os.Stat(path)
	require.NoError(t, err)
	exchanged := func() bool {
		now, err := os.Stat(path)
		return err == nil && !os.SameFile(old, now)
	}
	mustAppend(t, j, upTo(100)...)
	require.NoError(t, j.Sync())
	assert.False(t, exchanged(), "a small journal is left as it is")
	mustAppend(t, j, upTo(200)...)
	require.Eventually(t, exchanged, bound, time.Millisecond)
	mustAppend(t, j, 7)
	require.NoError(t, j.Close())
	got := replayed(t, path)
	assert.Equal(t, -1, got[0])
	assert.Equal(t, 7, got[len(got)-1])
	assert.Less(t, len(got), 300)
	assert.Equal(t, []string{"journal"}, names(t, filepath.Dir(path)))
}

func TestWhatIsAppendedWhileASnapshotIsTakenStandsBehindIt(t *testing.T) {
	path := newPath(t)
	var j *journal.Journal
	j, _, err := journal.Open(path, journal.Options{Snapshot: func() ([]any, error) {
		mustAppend(t, j, 2, 3)
		return []any{note{Value: 1}}, nil
	}})
	require.NoError(t, err)
	mustAppend(t, j, 0, 1)
	require.NoError(t, j.Compact())
	mustAppend(t, j, 4)
	require.NoError(t, j.Close())
	assert.Equal(t, []int{1, 2, 3, 4}, replayed(t, path))
}

func TestACompactedJournalHasOneHeaderThatOfThePresentBoot(t *testing.T) {
	path := newPath(t)
	first, _, err := journal.Open(path, journal.Options{BootID: "boot-1"})
	require.NoError(t, err)
	mustAppend(t, first, 0)
	require.NoError(t, first.Close())
	second, _, err := journal.Open(path, journal.Options{
		BootID:   "boot-2",
		Snapshot: func() ([]any, error) { return []any{note{Value: 1}}, nil },
	})
	require.NoError(t, err)
	require.NoError(t, second.Compact())
	mustAppend(t, second, 2)
	require.NoError(t, second.Close())
	assert.Equal(t, 1, strings.Count(string(read(t, path)), `"header"`))
	_, found := open(t, path, journal.Options{})
	assert.Equal(t, "boot-2", found.BootID)
	assert.Equal(t, []int{1, 2}, values(t, found.Records))
}

// counters is an owner of a journal: it appends and applies under one lock,
// which its snapshot takes too.
type counters struct {
	mu sync.Mutex
	j  *journal.Journal
	at map[string]int
}

func (c *counters) set(name string, v int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.j.Append(note{Counter: name, Value: v}); err != nil {
		return err
	}
	c.at[name] = v
	return nil
}

func (c *counters) snapshot() ([]any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []any
	for name, v := range c.at {
		out = append(out, note{Counter: name, Value: v})
	}
	return out, nil
}

func TestCompactionUnderLoadLosesNoRecord(t *testing.T) {
	path := newPath(t)
	c := &counters{at: map[string]int{}}
	var err error
	c.j, _, err = journal.Open(path, journal.Options{MaxBytes: 500, Snapshot: c.snapshot})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				assert.NoError(t, c.set(fmt.Sprint(g), i))
			}
		})
	}
	for range 20 {
		assert.NoError(t, c.j.Compact())
	}
	wg.Wait()
	require.NoError(t, c.j.Close())

	_, found := open(t, path, journal.Options{})
	require.Nil(t, found.Broken)
	again := map[string]int{}
	for _, r := range found.Records {
		var n note
		require.NoError(t, json.Unmarshal(r, &n))
		again[n.Counter] = n.Value
	}
	assert.Equal(t, c.at, again)
}

func TestACompactionThatFailsLeavesTheJournalInUse(t *testing.T) {
	for name, tt := range map[string]struct {
		before   func(t *testing.T, path string)
		snapshot func() ([]any, error)
		want     string
	}{
		"no snapshot function":       {want: "no snapshot function"},
		"the snapshot fails":         {snapshot: func() ([]any, error) { return nil, errors.New("no state") }, want: "no state"},
		"a record cannot be encoded": {snapshot: func() ([]any, error) { return []any{func() {}}, nil }, want: "unsupported type"},
		"the new file cannot be made": {
			before: func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, os.Mkdir(path+".new", 0o700))
			},
			snapshot: func() ([]any, error) { return nil, nil },
			want:     "is a directory",
		},
		"the new file cannot be put in place": {
			before: func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.MkdirAll(filepath.Join(path, "inside"), 0o700))
			},
			snapshot: func() ([]any, error) { return nil, nil },
			want:     "rename",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			j, _ := open(t, path, journal.Options{Snapshot: tt.snapshot})
			mustAppend(t, j, 0)
			kept := filepath.Join(t.TempDir(), "kept")
			require.NoError(t, os.Link(path, kept))
			if tt.before != nil {
				tt.before(t, path)
			}
			before := names(t, filepath.Dir(path))
			require.ErrorContains(t, j.Compact(), tt.want)
			assert.Equal(t, before, names(t, filepath.Dir(path)))
			mustAppend(t, j, 1)
			assert.Equal(t, []int{0, 1}, replayed(t, kept))
		})
	}
}

// logged gathers what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func TestABackgroundCompactionThatFailsIsLogged(t *testing.T) {
	var log logged
	j, _ := open(t, newPath(t), journal.Options{
		MaxBytes: 1000,
		Snapshot: func() ([]any, error) { return nil, errors.New("no state") },
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	mustAppend(t, j, upTo(20)...)
	require.Eventually(t, func() bool { return log.count("no state") > 0 }, bound, time.Millisecond)
}
