package pagecache

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/pagecachetest"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// childEnv makes the test binary a user without rights who asks for a file.
const childEnv = "PAGECACHE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		_, err := Resident([]string{path})
		if _, untold := errors.AsType[*UntoldError](err); untold {
			os.Exit(7)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// cold makes files of the given sizes of which main memory holds nothing.
func cold(t *testing.T, sizes ...int64) []string {
	t.Helper()
	dir := pagecachetest.Dir(t)
	var paths []string
	for i, size := range sizes {
		path := filepath.Join(dir, string(rune('a'+i)))
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		pagecachetest.Evict(t, path)
		paths = append(paths, path)
	}
	n, err := Resident(paths)
	require.NoError(t, err)
	require.Zero(t, n)
	return paths
}

func unbounded(int64) (int64, error) { return math.MaxInt64, nil }

// kept calls try until it says that main memory holds what was read. The kernel may give
// up pages of a file at any time; one that reclaims ahead of need (DAMON) does so within
// seconds of the last access.
func kept(t *testing.T, try func() bool) {
	t.Helper()
	for end := time.Now().Add(patience.Wait()); !try(); {
		require.True(t, time.Now().Before(end), "main memory never held what was read")
	}
}

func held(t *testing.T, paths ...string) int64 {
	t.Helper()
	n, err := Resident(paths)
	require.NoError(t, err)
	return n
}

func TestWhatIsReadAheadIsInMainMemory(t *testing.T) {
	kept(t, func() bool {
		paths := cold(t, 40<<20+5, 0, 3, 17<<20)
		all := int64(57<<20 + 8)
		fresh, err := Warm(t.Context(), Options{Paths: paths, Room: unbounded})
		require.NoError(t, err)
		require.Equal(t, all, fresh)
		if held(t, paths...) != all {
			return false
		}
		// What main memory holds already takes no room.
		fresh, err = Warm(t.Context(), Options{Paths: paths, Room: func(int64) (int64, error) { return 0, nil }})
		return err == nil && fresh == 0
	})
}

func TestNoMoreIsReadThanThereIsRoomFor(t *testing.T) {
	kept(t, func() bool {
		paths := cold(t, 30<<20, 10<<20, 10<<20) // the kernel reads ahead within a file by itself
		free := int64(35 << 20)
		fresh, err := Warm(t.Context(), Options{Paths: paths, Room: func(fresh int64) (int64, error) { return free - fresh, nil }})
		var full *FullError
		require.ErrorAs(t, err, &full)
		require.Equal(t, int64(30<<20), fresh, "two windows fit, a third does not")
		require.Equal(t, &FullError{Read: 30 << 20, Left: 20 << 20}, full)
		require.Zero(t, held(t, paths[1:]...))
		return held(t, paths[0]) == 30<<20
	})
}

func TestWhatMainMemoryHoldsOfTheFilesMakesNoRoomForTheRest(t *testing.T) {
	paths := cold(t, 30<<20, 30<<20)
	room := func(held int64) (int64, error) { return 35<<20 - held, nil }
	kept(t, func() bool {
		for range 2 { // the second time as the first, which the kernel could give up
			_, err := Warm(t.Context(), Options{Paths: paths, Room: room})
			var full *FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, int64(30<<20), full.Left)
		}
		require.Zero(t, held(t, paths[1]))
		return held(t, paths[0]) == 30<<20
	})
}

func TestMemoryThatOthersTakeMeanwhileIsNotRead(t *testing.T) {
	paths := cold(t, 64<<20)
	asked := 0
	fresh, err := Warm(t.Context(), Options{Paths: paths, Room: func(int64) (int64, error) {
		if asked++; asked > 1 {
			return 0, nil // somebody has taken the rest
		}
		return 1 << 30, nil
	}})
	var full *FullError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, int64(16<<20), fresh)
}

func TestAReadingEndsWithItsContext(t *testing.T) {
	paths := cold(t, 200<<20)
	ctx, cancel := context.WithCancel(t.Context())
	fresh, err := Warm(ctx, Options{Paths: paths, Room: func(fresh int64) (int64, error) {
		if fresh > 0 {
			cancel()
		}
		return math.MaxInt64, nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, fresh, int64(200<<20))
}

func TestWhatIsHeldIsTheSameByBothWaysOfAsking(t *testing.T) {
	paths := cold(t, 40<<20+5)
	f, size, err := open(paths[0])
	require.NoError(t, err)
	defer f.Close()
	for _, read := range []int64{0, size} {
		kept(t, func() bool {
			_, err := f.ReadAt(make([]byte, read), 0)
			require.NoError(t, err)
			byPage, err := residentByPage(f, size)
			require.NoError(t, err)
			n, known := cachestat(f, size)
			return byPage == read && (!known || n == read)
		})
	}
}

// BenchmarkResident looks at 15 GB of which main memory holds nothing, by each way of
// asking.
func BenchmarkResident(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "model"))
	require.NoError(b, err)
	defer f.Close()
	const size = 15_000_000_000
	require.NoError(b, f.Truncate(size))
	b.Run("cachestat", func(b *testing.B) {
		for b.Loop() {
			if _, known := cachestat(f, size); !known {
				b.Skip("this kernel does not know it")
			}
		}
	})
	b.Run("mincore", func(b *testing.B) {
		for b.Loop() {
			if _, err := residentByPage(f, size); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	paths := cold(t, 5)
	_, err := Warm(t.Context(), Options{Paths: append(paths, paths[0]+"-none"), Room: unbounded})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, paths[0]+"-none")
	_, err = Resident([]string{filepath.Dir(paths[0])})
	assert.ErrorContains(t, err, "is not a file")
	_, err = Warm(t.Context(), Options{Paths: cold(t, 5), Room: func(int64) (int64, error) { return 0, errors.New("no meminfo") }})
	assert.ErrorContains(t, err, "no meminfo")
}

func TestTheRoomIsWhatNobodyMisses(t *testing.T) {
	m := memory{total: 1600, free: 500, inactiveFile: 300, mappedFile: 100}
	assert.EqualValues(t, 500+200-100, m.room(0))
	m.free, m.inactiveFile = m.free-250, m.inactiveFile+250
	assert.EqualValues(t, 500+200-100-250, m.room(250), "what has been read ahead counts as used, though the kernel could give it up")
	m.mappedFile = 10_000
	assert.EqualValues(t, 250-100-250, m.room(250), "what is mapped is not free")

	here, err := Room(0)
	require.NoError(t, err)
	machine, err := readMachine()
	require.NoError(t, err)
	assert.Less(t, here, machine.total)
	later, err := Room(1 << 50)
	require.NoError(t, err)
	assert.Negative(t, later)
}

func TestWhoMayOnlyReadAFileIsNotToldWhatMainMemoryHolds(t *testing.T) {
	if os.Geteuid() != 0 {
		_, err := Resident([]string{"/proc/self/exe"})
		require.NoError(t, err, "one's own file")
		_, err = Resident([]string{"/bin/sh"})
		var untold *UntoldError
		require.ErrorAs(t, err, &untold)
		return
	}
	exe, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	dir := pagecachetest.Dir(t)
	child := filepath.Join(dir, "child")
	require.NoError(t, os.WriteFile(child, exe, 0o755)) //nolint:gosec // another user runs it
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755)) //nolint:gosec // another user goes through it
	}
	process, err := os.StartProcess(child, []string{child}, &os.ProcAttr{
		Dir: "/", Env: []string{childEnv + "=/proc/self/exe"}, Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
	})
	require.NoError(t, err)
	state, err := process.Wait()
	require.NoError(t, err)
	assert.Equal(t, 7, state.ExitCode())
}
