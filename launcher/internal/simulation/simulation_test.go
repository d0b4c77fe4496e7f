package simulation

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// world is the machine, the disk, and the launcher of the moment.
type world struct {
	t      *testing.T
	m      *machine
	dir    string // the disk
	budget launcherapi.Budget
	log    *buffer

	mu       sync.Mutex
	diskFull bool
	starts   map[string]int // processes made, by instance
	unasked  map[int]string // healthy processes that the launcher ended, by process
}

// buffer is the launcher's log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}
func (b *buffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.text.String() }

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	return &world{t: t, m: newMachine(seed), dir: t.TempDir(), log: &buffer{}, starts: map[string]int{}, unasked: map[int]string{}}
}

func (w *world) full() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.diskFull }

// started counts a process that was made.
func (w *world) started(p *proc) { w.mu.Lock(); defer w.mu.Unlock(); w.starts[p.name]++ }

// ended notes that the launcher ends a process.
func (w *world) ended(p *proc) {
	w.m.mu.Lock()
	healthy := p.alive() && p.ready && !p.asked
	w.m.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if healthy {
		w.unasked[p.pid] = p.name
	}
}

// rest waits until everything has come to rest, and checks that it has.
func (w *world) rest(l *life) {
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	all, _ := l.sup.List()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	assert.Empty(w.t, w.m.broken)
	served, waiting := l.turns.Counts()
	assert.Zero(w.t, served+waiting, "turns are given back")
	pids := map[int]bool{}
	for _, i := range all {
		state := launcher.State(i.State)
		assert.False(w.t, state.Moving(), "%s is %s", i.InstanceID, i.State)
		assert.Empty(w.t, i.SwapID, "%s is claimed", i.InstanceID)
		if state.Ended() {
			continue
		}
		pids[i.PID] = true
		p := w.m.procs[i.PID]
		if assert.True(w.t, p != nil && p.alive(), "%s is %s, and has no process", i.InstanceID, i.State) {
			assert.Equal(w.t, state == launcher.Sleeping, p.level > 0, "%s is %s, and its engine is at level %d", i.InstanceID, i.State, p.level)
		}
	}
	for _, p := range w.m.living() {
		assert.True(w.t, pids[p.pid], "a process of %s is left over", p.name)
	}
	ports := 0
	for _, i := range all {
		if i.Port != 0 {
			ports++
		}
	}
	assert.Len(w.t, w.m.ports, ports, "ports are given back")
	for _, saved := range l.saved() {
		assert.True(w.t, saved.Done, "swap %s is over", saved.ID)
	}
}

func spec(gpu, share string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{Args: []string{"model", "--gpu-memory-utilization", share}, GPUUUIDs: []string{gpu}}
}

// make makes an instance and waits until it is awake.
func (l *life) make(ctx context.Context, id, gpu, share string) error {
	if _, err := l.sup.Create(supervisor.Create{ID: id, Spec: spec(gpu, share)}); err != nil {
		return err
	}
	_, err := l.sup.AwaitVerb(ctx, id, launcher.Awake)
	return err
}

// swapTo asks for a swap and waits for its end, or for that of the launcher.
func (l *life) swapTo(ctx context.Context, in launcherapi.SwapIn, gpu, key string) (launcherapi.SwapResult, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-l.died:
			stop(errDead)
		case <-ctx.Done():
		}
	}()
	run, err := l.swaps.Begin(launcherapi.SwapRequest{GPUUUIDs: []string{gpu}, In: &in}, key)
	if err != nil {
		return launcherapi.SwapResult{}, err
	}
	return run.Wait(ctx)
}

// TestAKillAtEachCallOfASwapIsFinishedOrUndone kills the launcher at every call
// that it makes into the world while it swaps, before the call's effect and after
// it, and starts it again: the swap is finished or undone, whoever is awake is
// the only one, a retry with the swap's key does nothing twice, and nothing is
// left over.
func TestAKillAtEachCallOfASwapIsFinishedOrUndone(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, more := 1, true; more; n++ {
			name := fmt.Sprintf("call %d, before its effect", n)
			if after {
				name = fmt.Sprintf("call %d, after its effect", n)
			}
			more = t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { more = killedAt(t, n, after) })
			}) && more
			require.Less(t, n, 10_000)
		}
	}
}

// killedAt says whether the swap made so many calls.
func killedAt(t *testing.T, n int, after bool) (reached bool) {
	ctx := t.Context()
	w := newWorld(t, 1)
	l := w.begin(0, false)
	require.NoError(t, l.make(ctx, "a", "g0", "0.9"))
	l.mu.Lock()
	l.killAt, l.killAfter = l.calls+n, after
	l.mu.Unlock()
	in := launcherapi.SwapIn{ID: "b", Args: spec("g0", "0.9").Args}
	_, err := l.swapTo(ctx, in, "g0", "key")
	reached = l.isDead()
	if !reached {
		require.NoError(t, err)
		l.mu.Lock()
		l.killAt = 0
		l.mu.Unlock()
	}
	l.kill()
	l.bury()
	l = w.begin(0, false)
	result, err := l.swapTo(ctx, in, "g0", "key")
	outcome := result.Outcome
	w.rest(l)
	a, err2 := l.sup.Get("a")
	require.NoError(t, err2)
	b, gone := l.sup.Get("b")
	if err == nil {
		assert.Equal(t, launcherapi.OutcomeDone, outcome)
		assert.Equal(t, "sleeping", a.State)
		assert.Equal(t, "awake", b.State)
	} else {
		assert.Contains(t, []string{launcherapi.OutcomeUndone, launcherapi.OutcomeInterrupted, launcherapi.OutcomeRefused}, outcome, "%v", err)
		assert.Equal(t, "awake", a.State, "%v", err)
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(gone), "b is %s: %v", b.State, err)
	}
	assert.LessOrEqual(t, w.starts["b"], 1, "a retry does nothing twice")
	assert.Equal(t, 1, w.starts["a"])
	for _, name := range w.unasked {
		assert.Equal(t, "b", name, "nobody asked for its end")
	}
	if t.Failed() {
		t.Log(w.log.String())
	}
	l.kill()
	l.bury()
	w.m.mu.Lock()
	for _, p := range w.m.living() {
		p.end(signalled(9))
	}
	w.m.mu.Unlock()
	time.Sleep(time.Minute)
	return reached
}
