package outlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// lineBytes is the length of each line of numbered: the offset in a log tells the number.
const lineBytes = 16

// numbered is so many lines from the number first on.
func numbered(first, lines int) string {
	var text strings.Builder
	for n := range lines {
		fmt.Fprintf(&text, "%0*d\n", lineBytes-1, first+n)
	}
	return text.String()
}

// assertNumbered fails unless the text is what numbered has at the offset.
func assertNumbered(t *testing.T, at int64, text string) {
	t.Helper()
	first := int(at / lineBytes)
	want := numbered(first, len(text)/lineBytes+2)[at%lineBytes:]
	assert.True(t, strings.HasPrefix(want, text), "%d bytes at %d: %.40q, not %.40q", len(text), at, text, want)
}

// onDisk is how many bytes the blocks of a file hold, and its size.
func onDisk(t *testing.T, path string) (held, size int64) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512, info.Size()
}

// used says that all logs are in use.
func used(names ...string) func() map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return func() map[string]bool { return all }
}

const blockBytes = 4096 // at most; what a filesystem frees is whole blocks

func TestLogInUseLosesItsBeginningAndKeepsItsOffsets(t *testing.T) {
	const limit = 100 << 10
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxTotalBytes: limit})
	name, f := create(t, store, "a", numbered(0, 20_000))
	require.NoError(t, store.Prune(used(name)))

	held, size := onDisk(t, filepath.Join(dir, name))
	assert.LessOrEqual(t, held, int64(limit))
	assert.EqualValues(t, 20_000*lineBytes, size)
	part, err := store.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	begin := part.First
	assert.Zero(t, begin%lineBytes, "a line begins there")
	assert.InDelta(t, limit*3/4, size-begin, lineBytes)
	assert.Equal(t, size, part.Total)
	assertNumbered(t, begin, readPart(t, part))

	write(t, f, numbered(20_000, 10))
	part, err = store.Read(name, launcher.LogRange{First: size})
	require.NoError(t, err)
	assert.Equal(t, numbered(20_000, 10), readPart(t, part), "the engine writes on at the same offset")
	tail, err := store.Tail(name, 2, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprintf("%015d", 20_008), fmt.Sprintf("%015d", 20_009)}, tail)
	all, err := store.Tail(name, 20_000, 1<<30)
	require.NoError(t, err)
	assert.Len(t, all, int(size+10*lineBytes-begin)/lineBytes-1, "as many as are left, without the first")

	later := open(t, outlog.Options{Dir: dir}) // the next launcher
	part, err = later.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	assert.Equal(t, begin, part.First)
	require.NoError(t, part.Close())
}

func TestRangeOfALogWithoutItsBeginning(t *testing.T) {
	store := open(t, outlog.Options{MaxTotalBytes: 160})
	name, _ := create(t, store, "a", numbered(0, 20))
	require.NoError(t, store.Prune(used(name)))
	const begin, size = 200 / lineBytes * lineBytes, 20 * lineBytes // 120 bytes at most are left
	for title, tt := range map[string]struct {
		r           launcher.LogRange
		first, last int64 // last is negative: the log has no byte of it
	}{
		"all":                             {launcher.LogRange{}, begin + lineBytes, size - 1},
		"an open end from the start":      {launcher.LogRange{First: 3}, begin + lineBytes, size - 1},
		"an open end from what is there":  {launcher.LogRange{First: begin + 20}, begin + 20, size - 1},
		"an end that is there":            {launcher.LogRange{First: 3, Last: begin + 20, Bounded: true}, begin + lineBytes, begin + 20},
		"the first byte that is there":    {launcher.LogRange{Last: begin + lineBytes, Bounded: true}, begin + lineBytes, begin + lineBytes},
		"the last byte that is not there": {launcher.LogRange{Last: begin + lineBytes - 1, Bounded: true}, 0, -1},
		"the first byte":                  {launcher.LogRange{Bounded: true}, 0, -1},
	} {
		t.Run(title, func(t *testing.T) {
			part, err := store.Read(name, tt.r)
			if tt.last < 0 {
				none, ok := errors.AsType[*launcher.LogRangeError](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, launcher.LogRangeError{First: tt.r.First, Begin: begin + lineBytes, Total: size}, *none)
				assert.ErrorContains(t, err, fmt.Sprintf("begins at byte %d", begin+lineBytes))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.first, part.First)
			assert.Equal(t, tt.last-tt.first+1, part.Length)
			assert.EqualValues(t, size, part.Total)
			assertNumbered(t, part.First, readPart(t, part))
		})
	}
}

func TestLongestLogsLoseMost(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxTotalBytes: 4000})
	left := map[string]int64{"short.1.log": 10 * lineBytes, "middle.1.log": 50 * lineBytes, "long.1.log": 3000 - 60*lineBytes}
	for id, lines := range map[string]int{"short": 10, "middle": 50, "long": 1000} {
		create(t, store, id, numbered(0, lines))
	}
	require.NoError(t, store.Prune(used("short.1.log", "middle.1.log", "long.1.log")))
	for name, want := range left {
		part, err := store.Read(name, launcher.LogRange{})
		require.NoError(t, err)
		assert.InDelta(t, want, part.Length, lineBytes, name)
		assertNumbered(t, part.First, readPart(t, part))
	}
}

func TestLogOfOneLongLineIsCutWithinIt(t *testing.T) {
	store := open(t, outlog.Options{MaxTotalBytes: 1000})
	name, f := create(t, store, "a", strings.Repeat("x", 5000))
	require.NoError(t, store.Prune(used(name)))
	part, err := store.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("x", 750), readPart(t, part))
	write(t, f, "y\nend\n")
	tail, err := store.Tail(name, 5, 10_000)
	require.NoError(t, err)
	assert.Equal(t, []string{"end"}, tail, "a part of a line is not shown")
}

func TestPartThatIsDroppedWhileItIsReadFailsAndHasNoNULs(t *testing.T) {
	store := open(t, outlog.Options{MaxTotalBytes: 1 << 10})
	name, _ := create(t, store, "a", numbered(0, 10_000))
	part, err := store.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	buf := make([]byte, 10*lineBytes)
	_, err = io.ReadFull(part, buf)
	require.NoError(t, err)
	assertNumbered(t, 0, string(buf))
	require.NoError(t, store.Prune(used(name)))
	rest, err := io.ReadAll(part)
	assert.Empty(t, rest)
	_, ok := errors.AsType[*launcher.LogRangeError](err)
	assert.True(t, ok, "%v", err)
	require.NoError(t, part.Close())
}

func TestFollowerEndsWhereBytesWereDropped(t *testing.T) {
	store := open(t, outlog.Options{MaxTotalBytes: 1 << 10})
	name, _ := create(t, store, "a", numbered(0, 10_000))
	var got strings.Builder
	err := store.Follow(t.Context(), name, 0, nil, func(p []byte) error {
		got.Write(p)
		return store.Prune(used(name))
	})
	none, ok := errors.AsType[*launcher.LogRangeError](err)
	require.True(t, ok, "%v", err)
	assertNumbered(t, 0, got.String())
	assert.EqualValues(t, got.Len(), none.First)
	assert.Greater(t, none.Begin, none.First)
	over := make(chan struct{})
	close(over)
	got.Reset()
	require.NoError(t, store.Follow(t.Context(), name, none.Begin, over, func(p []byte) error { got.Write(p); return nil }))
	assert.EqualValues(t, 10_000*lineBytes-none.Begin, got.Len())
	assertNumbered(t, none.Begin, got.String())
}

// boundInBackground keeps the logs of a store within their limit until the test ends.
func boundInBackground(t *testing.T, store *outlog.Store, names ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var bounding sync.WaitGroup
	bounding.Go(func() { store.Bound(ctx, used(names...)) })
	t.Cleanup(func() { stop(); bounding.Wait() })
}

func TestBoundKeepsALogWithinTheLimitWhileItIsWrittenAndRead(t *testing.T) {
	const limit, lines = 64 << 10, 200_000
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxTotalBytes: limit})
	name, f := create(t, store, "a", "")
	boundInBackground(t, store, name)
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { // a follower that goes on where the log begins, as a client does
		for at, ended := int64(0), false; !ended; {
			err := store.Follow(t.Context(), name, at, over, func(p []byte) error {
				assertNumbered(t, at, string(p))
				at += int64(len(p))
				return nil
			})
			if none, ok := errors.AsType[*launcher.LogRangeError](err); ok {
				at = none.Begin
				continue
			}
			ended = assert.NoError(t, err)
			assert.EqualValues(t, lines*lineBytes, at)
			if !ended {
				return
			}
		}
	})
	all.Go(func() {
		for ended := false; !ended; {
			select {
			case <-over:
				ended = true
			default:
			}
			part, err := store.Read(name, launcher.LogRange{})
			if _, none := errors.AsType[*launcher.LogRangeError](err); none {
				continue // it is empty yet
			}
			if !assert.NoError(t, err) {
				return
			}
			text, _ := io.ReadAll(part) // fails if it is dropped meanwhile
			assertNumbered(t, part.First, string(text))
			assert.NoError(t, part.Close())
		}
	})
	for n := 0; n < lines; n += 1000 {
		write(t, f, numbered(n, 1000))
	}
	close(over)
	all.Wait()
	path := filepath.Join(dir, name)
	require.Eventually(t, func() bool { held, _ := onDisk(t, path); return held <= limit+blockBytes }, patience.Wait(), time.Millisecond)
	_, size := onDisk(t, path)
	assert.EqualValues(t, lines*lineBytes, size)
}

func TestBoundSeesLogsInAFolderThatWasMadeAgain(t *testing.T) {
	const limit = 64 << 10
	dir := filepath.Join(t.TempDir(), "logs")
	store := open(t, outlog.Options{Dir: dir, MaxTotalBytes: limit})
	boundInBackground(t, store, "a.1.log")
	require.NoError(t, os.RemoveAll(dir))
	name, f := create(t, store, "a", "")
	write(t, f, numbered(0, 10_000))
	require.Eventually(t, func() bool {
		held, _ := onDisk(t, filepath.Join(dir, name))
		return held <= limit+blockBytes
	}, patience.Wait(), time.Millisecond)
}

func TestBoundEndsWithItsStore(t *testing.T) {
	store, err := outlog.Open(outlog.Options{Dir: t.TempDir(), MaxTotalBytes: 1})
	require.NoError(t, err)
	var bounding sync.WaitGroup
	bounding.Go(func() { store.Bound(context.Background(), nil) })
	require.NoError(t, store.Close())
	bounding.Wait()
}

func TestFilesystemWithoutHolesKeepsTheEndOfALog(t *testing.T) {
	out, err := inNamespaces(child(t, "no-holes", t.TempDir())).CombinedOutput()
	require.NoError(t, err, "namespaces could not be made: %s", out)
	assert.Equal(t, "sound\n", string(out))
}

// childNoHoles runs in a mount namespace of its own. ramfs has neither fallocate(2) nor
// SEEK_DATA. It also holds pages of a hole that were read.
func childNoHoles() {
	dir := os.Args[1]
	if err := syscall.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		fmt.Println("mount:", err)
		return
	}
	const limit = 200 << 10
	store, err := outlog.Open(outlog.Options{Dir: dir, MaxTotalBytes: limit})
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	f, name, err := store.Create("a")
	if err != nil {
		fmt.Println("create:", err)
		return
	}
	for n := range 4 {
		if _, err := f.WriteString(numbered(n*20_000, 20_000)); err != nil {
			fmt.Println("write:", err)
		}
		if err := store.Prune(used(name)); err != nil {
			fmt.Println("prune:", err)
		}
		part, err := store.Read(name, launcher.LogRange{})
		if err != nil {
			fmt.Println("read:", err)
			return
		}
		text, err := io.ReadAll(part)
		want := numbered(0, (n+1)*20_000)[part.First:]
		if err != nil || string(text) != want || part.Total != int64((n+1)*20_000*lineBytes) || len(text) < limit/2 || len(text) > limit {
			fmt.Printf("round %d: %d bytes at %d of %d, %v\n", n, len(text), part.First, part.Total, err)
		}
		_ = part.Close()
		info, err := os.Stat(filepath.Join(dir, name))
		if held := info.Sys().(*syscall.Stat_t).Blocks * 512; err != nil || held > limit+8*(64<<10) {
			fmt.Println("the file holds", held, err)
		}
	}
	_ = f.Close()
	_ = store.Close()
	fmt.Println("sound")
}
