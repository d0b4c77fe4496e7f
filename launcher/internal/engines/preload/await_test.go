package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// held has the engine load no further than the test lets it: opened ends that.
func holdLoad(f *fixture) (open func()) {
	gate := filepath.Join(f.logs, "go")
	f.write("vllm/hold.py", fmt.Sprintf("import os, time\nwhile not os.path.exists(%q):\n    time.sleep(0.005)\n", gate))
	f.options.Recipe.Modules = append([]string{"vllm.hold"}, f.options.Recipe.Modules...)
	return func() {
		f.t.Helper()
		require.NoError(f.t, os.WriteFile(gate, nil, 0o600))
	}
}

// reasons collects the reasons that Await reports.
type reasons struct {
	mu   sync.Mutex
	said []string
}

func (o *reasons) add(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, reason)
}

func (o *reasons) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.said...)
}

// startWait calls Await in the background, and sends its result on the channel.
func (f *fixture) startWait(ctx context.Context, o *reasons, env ...string) <-chan error {
	f.t.Helper()
	over := make(chan error, 1)
	go func() { over <- f.pool.Await(ctx, append(f.environ(), env...), o.add) }()
	f.eventually("it waits", func() bool { return len(o.all()) > 0 })
	return over
}

func (f *fixture) outcome(over <-chan error) error {
	f.t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(patience.Wait()):
		require.FailNow(f.t, "it waits for ever")
		return nil
	}
}

func TestStartsWaitForTheSameLoadingPreloader(t *testing.T) {
	var open func()
	f := newFixture(t, func(f *fixture) { open = holdLoad(f) })
	assert.Contains(t, f.pool.Awaits(f.environ()), "waiting for the preloader, which began to load at ")
	a, b := f.startWait(t.Context(), &reasons{}), f.startWait(t.Context(), &reasons{})
	open()
	require.NoError(t, f.outcome(a))
	require.NoError(t, f.outcome(b))
	assert.Empty(t, f.pool.Awaits(f.environ()), "now it can be forked at once")
	f.forkedFacts("a")
	f.forkedFacts("b")
	assert.Len(t, f.pool.List().Preloaders, 1)
}

func TestUncommonEnvironmentWaitsForItsOwnPreloader(t *testing.T) {
	f := newFixture(t)
	f.ready()
	var heard reasons
	require.NoError(t, f.outcome(f.startWait(t.Context(), &heard, "OMP_NUM_THREADS=2")))
	assert.Regexp(t, `^waiting for a separate preloader for OMP_NUM_THREADS, which began to load at \S+; the last load took [\d.]+ s$`, heard.all()[0])
	f.forkedFacts("a", "OMP_NUM_THREADS=2")
}

func TestPoolRemembersLoadTimesOfEarlierPool(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.eventually("it is written down", func() bool { return readTimes(f.options.Dir).Last > 0 })
	f.pool.Close()
	f.write("vllm/__init__.py", "import signal\nsignal.pause()\n")
	f.pool = New(f.options)
	f.pool.Begin()
	assert.Contains(t, f.pool.Awaits(f.environ()), "the last load took ")
	require.NoError(t, os.WriteFile(filepath.Join(f.options.Dir, timesName), []byte("{"), 0o600))
	assert.Zero(t, readTimes(f.options.Dir), "what is broken tells nothing")
}

func TestFailedLoadEndsTheWait(t *testing.T) {
	var open func()
	f := newFixture(t, func(f *fixture) {
		open = holdLoad(f)
		f.options.Recipe.Modules = append(f.options.Recipe.Modules[:1:1], "vllm.broken")
		f.write("vllm/broken.py", "1 / 0\n")
	})
	over := f.startWait(t.Context(), &reasons{})
	open()
	require.ErrorContains(t, f.outcome(over), "ZeroDivisionError")
	assert.Empty(t, f.pool.Awaits(f.environ()), "nobody waits for its next attempt")
}

func TestHangingLoadDelaysAStartForABoundedTime(t *testing.T) {
	var open func()
	f := newFixture(t, func(f *fixture) {
		open = holdLoad(f)
		f.options.FirstLoad = 300 * time.Millisecond
	})
	defer open()
	var heard reasons
	err := f.pool.Await(t.Context(), f.environ(), heard.add)
	not, ok := errors.AsType[*NotForkedError](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, not.Reason, "the preloader is loading")
	assert.Empty(t, f.pool.Awaits(f.environ()), "nor does the next one wait")
}

func TestLoadLongerThanAnyBeforeIsNotWaitedFor(t *testing.T) {
	p := Pool{opts: Options{FirstLoad: 2 * time.Minute, LoadTime: 5 * time.Minute}}
	slow := &preloader{state: Loading, began: time.Now().Add(-40 * time.Second)}
	assert.NotNil(t, p.waitFor(slow), "nobody knows how long it takes")
	p.times = times{Last: 14 * time.Second, Longest: 14 * time.Second}
	assert.Nil(t, p.waitFor(slow))
	p.times.Longest = 30 * time.Second
	assert.NotNil(t, p.waitFor(slow), "one took as long before")
}

func TestWaitEndsWithItsContextAndWithThePool(t *testing.T) {
	var open func()
	f := newFixture(t, func(f *fixture) { open = holdLoad(f) })
	defer open()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone, closed := errors.New("the instance is deleted"), f.startWait(t.Context(), &reasons{})
	over := f.startWait(ctx, &reasons{})
	cancel(gone)
	require.ErrorIs(t, f.outcome(over), gone)
	f.pool.Close()
	require.ErrorContains(t, f.outcome(closed), "the launcher is closing")
}

func TestReloadIsWaitedForUnlessTheForkFailed(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.forkedFacts("a")
	require.NoError(t, syscall.Kill(f.pool.List().Preloaders[0].PID, syscall.SIGKILL))
	f.eventually("its end is seen", func() bool { return f.pool.Check(f.environ()) != nil })
	assert.Contains(t, f.pool.Awaits(f.environ()), "waiting for the preloader, which")
	f.ready()

	f.set(func(o *Options) { o.AnswerTime = 100 * time.Millisecond })
	require.NoError(t, syscall.Kill(f.pool.List().Preloaders[0].PID, syscall.SIGSTOP))
	assert.Contains(t, f.refusalReason(), "did not fork")
	assert.Empty(t, f.pool.Awaits(f.environ()), "else each start would wait for what does not fork")
}
