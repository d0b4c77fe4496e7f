package preload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

func TestPreloaderKilledDuringForkLeavesNoProcess(t *testing.T) {
	for name, c := range map[string]struct {
		moment pyengine.Moment
		groups cgroup.Mode
		births int
	}{
		"before there is a child":                        {pyengine.BeforeFork, cgroup.Auto, 0},
		"when the child is made and its answer not read": {pyengine.AfterFork, cgroup.Auto, 2},
		"when the child is made, without control groups": {pyengine.AfterFork, cgroup.None, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureIn(t, c.groups, func(f *fixture) { f.options.AnswerTime = patience.Wait() })
			f.ready()
			first := f.pool.List().Preloaders[0].PID
			require.NoError(t, pyengine.KillAt(f.dir, c.moment))
			command, log := f.instance("a", nil, nil)
			began := time.Now()
			_, err := f.pool.Fork(command)
			assert.Less(t, time.Since(began), patience.Wait()/2, "the closed socket tells, and not the clock")
			not, ok := errors.AsType[*NotForkedError](err)
			require.True(t, ok, "%v", err)
			assert.Contains(t, not.Reason, "the preloader did not fork")

			births, err := pyengine.Births(f.dir)
			require.NoError(t, err)
			require.Len(t, births, c.births)
			for _, b := range births {
				f.eventually("what was forked has ended", func() bool {
					_, err := procfs.Read(b.PID)
					return errors.Is(err, os.ErrNotExist)
				})
			}
			written, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Empty(t, written, "it never ran")

			tree, err := f.host.Start(command) // as the supervisor does
			require.NoError(t, err)
			f.killLater(tree)
			f.line(log, 0, &facts{})
			f.ready()
			assert.NotEqual(t, first, f.pool.List().Preloaders[0].PID)
			f.fork("b", nil, nil)
		})
	}
}

func TestKillsDuringManyForksStartEachInstanceOnce(t *testing.T) {
	const instances, callers, kills = 50, 10, 3
	f := newFixture(t)
	f.ready()
	var next, forked atomic.Int32
	var all sync.WaitGroup
	logs := make([]string, instances)
	for range callers {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < instances; n = int(next.Add(1)) - 1 {
				c, log := f.instance("i"+strconv.Itoa(n), nil, nil)
				assert.Eventually(t, func() bool { return f.pool.Check(c.Env) == nil }, patience.Wait(), 5*time.Millisecond)
				tree, err := f.pool.Fork(c)
				if err == nil {
					forked.Add(1)
				} else if _, ok := errors.AsType[*NotForkedError](err); assert.True(t, ok, "%v", err) {
					tree, err = f.host.Start(c)
				}
				if assert.NoError(t, err) {
					f.killLater(tree)
				}
				logs[n] = log
			}
		})
	}
	for k := range int32(kills) {
		f.eventually("some are forked", func() bool { return forked.Load() > 6*k })
		for _, l := range f.pool.List().Preloaders {
			if l.PID != 0 && l.State == string(Ready) {
				time.Sleep(rand.N(20 * time.Millisecond)) // any moment of a fork
				_ = syscall.Kill(l.PID, syscall.SIGKILL)  // it may have ended
			}
		}
	}
	all.Wait()
	assert.GreaterOrEqual(t, int(forked.Load()), instances-kills*callers, "each kill is felt by those that wait just then")
	for _, log := range logs {
		f.line(log, 0, &facts{})
	}
	left, err := f.host.Find()
	require.NoError(t, err)
	count := 0
	for _, tree := range left {
		if !strings.HasPrefix(tree.Name, namePrefix) {
			count++
			assert.Len(t, tree.PIDs, 1, tree.Name)
		}
	}
	assert.Equal(t, instances, count)
	for _, log := range logs {
		data, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(data), "\n"), "it ran once: %s", data)
	}
	f.ready()
}

func TestManyForksOfOnePreloaderReturnInTime(t *testing.T) {
	const many = 20
	for name, stopped := range map[string]bool{"it forks": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(f *fixture) { f.options.AnswerTime = 2 * time.Second })
			f.ready()
			if stopped {
				require.NoError(t, syscall.Kill(f.pool.List().Preloaders[0].PID, syscall.SIGSTOP))
			}
			began := time.Now()
			var all sync.WaitGroup
			for n := range many {
				c, _ := f.instance("i"+strconv.Itoa(n), nil, nil)
				all.Go(func() {
					tree, err := f.pool.Fork(c)
					if err == nil {
						f.killLater(tree)
					}
					assert.Equal(t, stopped, err != nil, "%v", err)
				})
			}
			all.Wait()
			if stopped {
				assert.Less(t, time.Since(began), many*f.options.AnswerTime, "they do not wait for each other's time")
			}
		})
	}
}

func TestInstallationChangedDuringLoadCausesReload(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/__init__.py", fmt.Sprintf("import os\nread = 'old'\nopen(%q, 'w')\nwhile not os.path.exists(%q):\n    pass\n",
			filepath.Join(f.dir, "began"), filepath.Join(f.dir, "go")))
	})
	f.eventually("it loads", func() bool { _, err := os.Stat(filepath.Join(f.dir, "began")); return err == nil })
	f.write("vllm/__init__.py", "read = 'new'\n")
	f.write("go", "")
	f.ready()
	got := f.forkedFacts("a")
	assert.Equal(t, "new", got.Read)
}

func TestNewLoadTimeVariablesAddOnePreloaderEach(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/__init__.py", "import os\nread = os.environ.get('FIRST') and os.environ.get('SECOND')\n")
	})
	f.ready()
	f.ready("FIRST=1", "SECOND=2")
	for range 3 {
		assert.NoError(t, f.pool.Check(append(f.environ(), "FIRST=1", "SECOND=2")))
	}
	var variables [][]string
	for _, l := range f.pool.List().Preloaders {
		variables = append(variables, l.Variables)
	}
	assert.Equal(t, [][]string{nil, {"FIRST"}, {"FIRST", "SECOND"}}, variables)
	got := f.forkedFacts("a", "FIRST=1", "SECOND=2")
	assert.Equal(t, "2", got.Read)
}

func TestUncommonPreloaderServesWithoutTheCommonOne(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.ready("OMP_NUM_THREADS=2")
	f.pool.mu.Lock()
	f.pool.drop(f.pool.all[0])
	f.pool.mu.Unlock()
	f.fork("a", nil, []string{"OMP_NUM_THREADS=2"})
	assert.Len(t, f.pool.List().Preloaders, 1)
	assert.Contains(t, f.refusalReason(), "loading")
}

func TestFailedPreloaderIsDroppedForRoomAndWhenIdle(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/__init__.py", "import os\nread = os.environ.get('BAD') and 1 / 0\n")
	})
	f.ready()
	f.eventually("it does not load", func() bool { return strings.Contains(f.refusalReason("BAD=1"), "ZeroDivisionError") })
	one := f.pool.List().Preloaders[0].MemoryBytes
	f.set(func(o *Options) { o.MemoryLimit = one * 5 / 2 })
	f.ready("OMP_NUM_THREADS=2")
	list := f.pool.List().Preloaders
	require.Len(t, list, 2)
	assert.Equal(t, []string{"OMP_NUM_THREADS"}, list[1].Variables)

	f.set(func(o *Options) { o.MemoryLimit = 0 })
	f.eventually("it does not load", func() bool { return strings.Contains(f.refusalReason("BAD=1"), "ZeroDivisionError") })
	f.set(func(o *Options) { o.IdleTime = time.Nanosecond })
	f.eventually("all that do nothing go", func() bool {
		f.pool.endIdleAndStale()
		return len(f.pool.List().Preloaders) == 0
	})
}

func TestCheckBeforeBeginStartsOnlyOnePreloader(t *testing.T) {
	f := newFixture(t)
	f.pool.Close()
	pool := New(f.options)
	defer pool.Close()
	assert.Error(t, pool.Check(f.environ()))
	pool.Begin()
	assert.Len(t, pool.List().Preloaders, 1)
}

func TestTooLargePreloaderBacksOffLongest(t *testing.T) {
	p := Pool{changed: make(chan struct{})}
	assert.Equal(t, longestBackOff, p.recordFailure(&preloader{}, false, 0, fmt.Errorf("it holds 1 GiB, %w", errTooLarge)))
	assert.Equal(t, shortestBackOff, p.recordFailure(&preloader{}, false, 0, errors.New("it ended")))
}

func TestPreloaderThatRefusesAgainBacksOffLongest(t *testing.T) {
	p, l := Pool{changed: make(chan struct{})}, &preloader{}
	var pauses []time.Duration
	for _, why := range []string{"a thread runs", "another thread runs", "another thread runs", "a thread runs"} {
		pauses = append(pauses, p.recordFailure(l, false, 0, newRefusal(hello{Refused: why}, "")))
	}
	assert.Equal(t, []time.Duration{shortestBackOff, 2 * shortestBackOff, longestBackOff, 8 * shortestBackOff}, pauses)
}

func TestPoolLeavesTheFilesOfOthersInItsFolder(t *testing.T) {
	others := []string{"notes.txt", "preloader.pyx", "times", "app.1.log", "@preloader-x.log", "folder/times.json", "@preloader-7.log/x"}
	own := []string{"preloader.py", "times.json.pool", "@preloader-12.log", "probe"}
	f := newFixture(t, func(f *fixture) {
		for _, name := range append(others, own...) {
			path := filepath.Join(f.options.Dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		}
		require.NoError(t, os.WriteFile(filepath.Join(f.options.Dir, programName), []byte("x"), 0o600))
	})
	require.Empty(t, f.pool.Never())
	for _, name := range others {
		assert.FileExists(t, filepath.Join(f.options.Dir, name))
	}
	for _, name := range own {
		assert.NoFileExists(t, filepath.Join(f.options.Dir, name))
	}
	f.ready() // with the program of this release
}

func TestPreloaderLoadsThoughItsFolderWasRemoved(t *testing.T) {
	f := newFixture(t)
	f.ready()
	first := f.pool.List().Preloaders[0].PID
	// RemoveAll fails if a file is added meanwhile. The pool adds this one when the preloader is ready already.
	f.eventually("the time of the load is recorded", func() bool {
		_, err := os.Stat(filepath.Join(f.options.Dir, timesName))
		return err == nil
	})
	require.NoError(t, os.RemoveAll(f.options.Dir))
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	f.eventually("another one is there", func() bool {
		l := f.pool.List().Preloaders[0]
		return l.State == string(Ready) && l.PID != first
	})
	f.fork("a", nil, nil)
}
