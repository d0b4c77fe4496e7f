package outlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// follower follows a log in a goroutine and gathers what it gets.
type follower struct {
	ended chan error

	mu  sync.Mutex
	got bytes.Buffer
	new chan struct{}
}

func follow(ctx context.Context, store *outlog.Store, name string, from int64, over <-chan struct{}) *follower {
	f := &follower{ended: make(chan error, 1), new: make(chan struct{}, 1)}
	go func() {
		f.ended <- store.Follow(ctx, name, from, over, func(p []byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.got.Write(p)
			select {
			case f.new <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	return f
}

func (f *follower) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got.String()
}

// awaits the text, which must arrive without anybody asking again.
func (f *follower) awaits(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience.Wait())
	for f.text() != text {
		select {
		case <-f.new:
		case <-timeout:
			require.Equal(t, text, f.text(), "the follower did not get the text")
		}
	}
}

func (f *follower) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.ended:
		return err
	case <-time.After(patience.Wait()):
		require.Fail(t, "the follower did not end")
		return nil
	}
}

func TestAFollowerGetsWhatIsThereAndThenWhatIsWritten(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "old ")
	over := make(chan struct{})
	follower := follow(t.Context(), store, name, 0, over)
	follower.awaits(t, "old ")
	write(t, f, "new \xff")
	follower.awaits(t, "old new \xff")
	write(t, f, "newer")
	follower.awaits(t, "old new \xffnewer")
	close(over)
	assert.NoError(t, follower.end(t))
}

func TestAFollowerBeginsAtItsOffset(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "0123")
	over := make(chan struct{})
	inside := follow(t.Context(), store, name, 2, over)
	beyond := follow(t.Context(), store, name, 6, over)
	inside.awaits(t, "23")
	write(t, f, "45")
	inside.awaits(t, "2345")
	write(t, f, "67")
	inside.awaits(t, "234567")
	beyond.awaits(t, "67")
	close(over)
	assert.NoError(t, inside.end(t))
	assert.NoError(t, beyond.end(t))
	assert.Error(t, store.Follow(t.Context(), name, -1, over, nil))
}

func TestAFollowerOfAnEndedInstanceGetsAllOfItAndEnds(t *testing.T) {
	store := open(t, outlog.Options{})
	text := strings.Repeat("0123456789", 20_000)
	name, _ := create(t, store, "a", text)
	over := make(chan struct{})
	close(over)
	follower := follow(t.Context(), store, name, 0, over)
	assert.NoError(t, follower.end(t))
	assert.Equal(t, text, follower.text())
}

func TestNothingThatAnEngineWroteBeforeItEndedIsLostToAFollower(t *testing.T) {
	store := open(t, outlog.Options{})
	for range 20 {
		name, f := create(t, store, "a", "")
		over := make(chan struct{})
		follower := follow(t.Context(), store, name, 0, over)
		engine := child(t, "lines", "500")
		engine.Stdout = f
		require.NoError(t, engine.Run())
		close(over)
		require.NoError(t, follower.end(t))
		lines := strings.Split(strings.TrimSuffix(follower.text(), "\n"), "\n")
		require.Len(t, lines, 500)
		for i, line := range lines {
			require.Equal(t, fmt.Sprintf("line %d", i), line)
		}
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", "x")
	ctx, cancel := context.WithCancel(t.Context())
	follower := follow(ctx, store, name, 0, nil)
	follower.awaits(t, "x")
	cancel()
	assert.ErrorIs(t, follower.end(t), context.Canceled)
}

func TestAFollowerWhoseClientIsGoneEndsWithTheErrorOfTheClient(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", "x")
	gone := errors.New("gone")
	err := store.Follow(t.Context(), name, 0, nil, func([]byte) error { return gone })
	assert.Equal(t, gone, err)
}

func TestAContextThatEndsWhileTheLogIsLongStopsTheFollowerAtOnce(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", strings.Repeat("x", 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := store.Follow(ctx, name, 0, nil, func([]byte) error { calls++; cancel(); return nil })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, calls)
}

func TestClosingTheStoreEndsFollowersAndRefusesNewOnes(t *testing.T) {
	store, err := outlog.Open(outlog.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	name, _ := create(t, store, "a", "x")
	follower := follow(t.Context(), store, name, 0, nil)
	follower.awaits(t, "x")
	require.NoError(t, store.Close())
	assert.ErrorIs(t, follower.end(t), outlog.ErrClosed)
	_, _, err = store.Watch(name)
	assert.ErrorIs(t, err, outlog.ErrClosed)
	assert.NoError(t, store.Close(), "a second close does nothing")
}

func TestFollowersOfManyLogsGetOnlyTheirOwnAndLeaveNothingBehind(t *testing.T) {
	store := open(t, outlog.Options{})
	before := descriptors(t)
	var wg sync.WaitGroup
	for i := range 20 {
		f, name, err := store.Create(fmt.Sprintf("i%d", i))
		require.NoError(t, err)
		over := make(chan struct{})
		two := []*follower{follow(t.Context(), store, name, 0, over), follow(t.Context(), store, name, 0, over)}
		wg.Go(func() {
			for j := range 50 {
				_, err := fmt.Fprintf(f, "%d.%d\n", i, j)
				assert.NoError(t, err)
			}
			assert.NoError(t, f.Close())
			close(over)
		})
		wg.Go(func() {
			for _, follower := range two {
				assert.NoError(t, follower.end(t))
				lines := strings.Split(strings.TrimSuffix(follower.text(), "\n"), "\n")
				assert.Len(t, lines, 50)
				assert.Equal(t, fmt.Sprintf("%d.49", i), lines[len(lines)-1])
			}
		})
	}
	wg.Wait()
	assert.Equal(t, before, descriptors(t))
	assert.Zero(t, watches(t))
}

func TestFollowersOfOneLogShareAWatchAndTheLastOneTakesItAway(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "")
	first, stopFirst, err := store.Watch(name)
	require.NoError(t, err)
	second, stopSecond, err := store.Watch(name)
	require.NoError(t, err)
	assert.Equal(t, 1, watches(t), "of the folder")
	write(t, f, "x")
	awaitWake(t, first)
	awaitWake(t, second)
	stopFirst()
	assert.Equal(t, 1, watches(t), "of the folder")
	write(t, f, "x")
	awaitWake(t, second)
	assert.Empty(t, first)
	stopSecond()
	assert.Zero(t, watches(t))

	third, stopThird, err := store.Watch(name)
	require.NoError(t, err)
	defer stopThird()
	write(t, f, "x")
	awaitWake(t, third)
}

func awaitWake(t *testing.T, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(patience.Wait()):
		require.Fail(t, "the watch did not wake")
	}
}

func TestWakeUpsOfAWatchAreCoalesced(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "before")
	wake, stop, err := store.Watch(name)
	require.NoError(t, err)
	defer stop()
	assert.Empty(t, wake, "what was written before does not wake")
	for range 10_000 {
		write(t, f, "x")
	}
	// A write to another log comes after all of those in the one queue.
	other, g := create(t, store, "b", "")
	otherWake, stopOther, err := store.Watch(other)
	require.NoError(t, err)
	defer stopOther()
	write(t, g, "x")
	awaitWake(t, otherWake)
	assert.Len(t, wake, 1)
}

func TestAFollowerKeepsReadingALogThatWasPruned(t *testing.T) {
	clock := time.Now()
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxAge: time.Hour, Now: func() time.Time { return clock.Add(2 * time.Hour) }})
	name, f := create(t, store, "a", "one ")
	over := make(chan struct{})
	follower := follow(t.Context(), store, name, 0, over)
	follower.awaits(t, "one ")
	require.NoError(t, store.Prune(nil))
	require.NoFileExists(t, filepath.Join(dir, name))
	write(t, f, "two")
	follower.awaits(t, "one two")
	close(over)
	assert.NoError(t, follower.end(t))
	require.NoError(t, f.Close())
	assert.Zero(t, watches(t))
}

func TestLogsAreMadeAndFollowedThoughTheFolderWasRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	store, err := outlog.Open(outlog.Options{Dir: dir, MaxTotalBytes: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	file, name, err := store.Create("a")
	require.NoError(t, err)
	defer file.Close()
	before := follow(ctx, store, name, 0, nil)
	fmt.Fprint(file, "a line")
	before.awaits(t, "a line")

	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, store.Prune(nil))
	file, name, err = store.Create("b")
	require.NoError(t, err)
	defer file.Close()
	after := follow(ctx, store, name, 0, nil)
	fmt.Fprint(file, "one")
	after.awaits(t, "one")
	fmt.Fprint(file, ", two")
	after.awaits(t, "one, two")
	stop()
	require.ErrorIs(t, before.end(t), context.Canceled)
	require.ErrorIs(t, after.end(t), context.Canceled)
}
