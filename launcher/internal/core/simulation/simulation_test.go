package simulation

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// world is the machine, the disk, the clients, and the launcher of the moment.
type world struct {
	m       *machine
	dir     string // the disk
	budget  launcherapi.Budget
	budgets []launcherapi.Budget // that launchers have had
	next    *launcherapi.Budget  // of the launcher that is started next; nil: the same
	log     *buffer
	traced  bool
	began   time.Time
	end     time.Time // of the script; faults last no longer

	life    *life           // nil while there is none
	down    step            // how the launcher is away when it is killed next
	pulled  bool            // the store of models was made
	damaged map[string]bool // kinds of files of which one was damaged
	deaths  int
	died    []time.Time            // the launcher, each time
	back    time.Time              // when it is started again
	left    []launcherapi.Instance // at the end of the script
	idle    time.Time              // since when swaps wait and nothing is under way

	mu       sync.Mutex
	diskFull bool
	fits     int           // writes that the disk still has room for, though it is full then
	stalled  time.Time     // until then the disk does not answer
	ahead    time.Duration // of the wall clock, compared with the beginning
	jump     time.Duration // of the wall clock since the records were written
	requests []*request
	trace    []string
	starts   map[string]int // processes made, by model
	said     map[string]*saying
	ends     []ending
	seen     follower
	late     map[string]time.Time // since when something should have come to rest, by what it is
}

// ending is a healthy process that the launcher ended.
type ending struct {
	p     *proc
	at    time.Time
	level int  // that it slept at
	woken bool // a client waits for it to wake
	// blind: its wake has failed, and the driver hangs, its memory does not come back, or it waited
	// for the disk until a moment ago: nobody can tell whether all of it sleeps.
	blind bool
	began bool // its start was over: its gate had opened once
	moves bool // it has no process while it sleeps, and somebody asks it to sleep or to wake
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
	return &world{
		m: newMachine(seed), dir: t.TempDir(), log: &buffer{}, began: time.Now(), end: time.Now(),
		starts: map[string]int{}, late: map[string]time.Time{}, damaged: map[string]bool{}, said: map[string]*saying{},
	}
}

// full says whether the disk has no room for a write.
func (w *world) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.diskFull && w.fits > 0 {
		w.fits--
		return false
	}
	return w.diskFull
}

// started counts a process that was made, unless it is that of an instance that wakes.
func (w *world) started(p *proc, wakes bool) {
	w.note("process of %s for %s", p.name, p.model)
	w.mu.Lock()
	defer w.mu.Unlock()
	if wakes {
		return
	}
	w.starts[p.model]++
}

// ended notes that the launcher ends a process.
func (w *world) ended(p *proc) {
	w.m.mu.Lock()
	healthy, level, began := p.alive() && p.ready && !p.asked, p.level, p.opened
	// A call that waits for the driver is not under way.
	silent := w.m.isSilent(p.gpus) || w.m.ever["memory is lost"] && p.holdsAsleep() || level > 0 && time.Since(p.silent) < grace
	w.m.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if healthy {
		e := ending{p: p, at: time.Now(), level: level, began: began, moves: p.isRestarted() && w.isAsked(p.name, time.Now().Add(-limits.Start), "sleep", "wake")}
		for _, r := range w.requests {
			if r.what == "wake" && r.id == p.name && r.l != nil && r.began.Before(e.at) && (r.open || silent) && !r.l.hasSleptAgain(p.name, r.began) {
				e.woken, e.blind = !silent, silent
			}
		}
		w.ends = append(w.ends, e)
	}
}

// note adds a line to what happened.
func (w *world) note(format string, args ...any) {
	if !w.traced {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%9.3fs %s", time.Since(w.began).Seconds(), plain(fmt.Sprintf(format, args...))))
}

// TestAKillAtEachCallOfASwapIsFinishedOrUndone kills the launcher at every call
// that it makes into the world while it swaps, before the call's effect and after
// it, and starts it again: the swap is finished or undone, and the invariants hold.
func TestAKillAtEachCallOfASwapIsFinishedOrUndone(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, more := 1, true; more; n++ {
			require.Less(t, n, 10_000)
			s := script{seed: 1, steps: []step{
				{what: "create", request: "first", id: "a", gpus: []string{"g0"}, share: "0.9"},
				{at: 10 * time.Second, what: "kill", n: n, after: after, limit: time.Second},
				{at: 10*time.Second + 1, what: "swap in new", request: "second", keyed: true, persist: true, id: "b", gpus: []string{"g0"}, share: "0.9"},
				{at: 30 * time.Second, what: "retry", request: "second"},
			}}
			out := play(t, s, false)
			more = out.deaths > 0
			swapped := []string{"a sleeping", "b awake"}
			if len(out.left) == 1 {
				swapped = []string{"a awake"}
			}
			var left []string
			for _, i := range out.left {
				left = append(left, i.InstanceID+" "+i.State)
			}
			assert.Equal(t, swapped, left)
			assert.Equal(t, 1, out.starts["first"])
			if !assert.Empty(t, out.wrong, "killed at call %d, after its effect: %v", n, after) {
				t.Log(out.log)
			}
		}
	}
}
