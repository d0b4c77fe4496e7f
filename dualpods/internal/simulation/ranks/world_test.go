// Package ranks plays servers over several launchers in simulated time: the real controllers of
// ModelServings and of bindings, over an API server, kubelets, requester programs and launchers that
// are simulated. A seed decides what happens, but not in which order things happen at one moment: that is
// up to the Go scheduler. So a seed that has failed may need several runs to fail again.
package ranks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// world is all there is around the controllers.
type world struct {
	schedules.Draws
	trace bool
	start time.Time

	mu         sync.Mutex // guards all that follows, and the draws
	over       bool
	lines      []string
	wrong      []string
	api        *api
	launchers  map[string]*launcher // by UID of their Pods
	programs   map[types.UID]*requester
	proc       *process
	truth      *truth
	group      *groupTruth      // of a world whose groups are changed in place; nil: it has ranks
	gpus       int              // of all nodes
	ports      int              // that were leased
	places     map[string]place // of Pods, by their names, where they were last
	names      int              // of objects, addresses and processes that were made
	steps      int              // calls of controllers to anybody
	passes     int
	failStarts int           // how many engines are still to fail as they start
	refusals   int           // how many swaps are still to be refused for want of room
	slowOrders int           // how many orders still take seconds to come to a launcher
	crashLoop  int           // how many engines are still to end soon after they began to serve
	losesSwaps program.State // the launcher of a worker is to lose its swap when the next entry is in this state
	calm       bool          // nothing happens any more but what the controllers do
	disturbed  time.Time
}

// locked calls do while nobody else does anything.
func (w *world) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// after calls do later, with the lock held.
func (w *world) after(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			do()
		}
	})
}

func (w *world) note(format string, args ...any) {
	if w.trace {
		w.lines = append(w.lines, fmt.Sprintf("%9.3fs  ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
	}
}

// violated notes that a rule was broken, and how.
func (w *world) violated(rule, format string, args ...any) {
	line := rule + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(w.wrong, line) && len(w.wrong) < 20 {
		w.wrong = append(w.wrong, line)
		w.note("VIOLATED  %s", line)
	}
}

// disturb notes that nothing can be expected of the controllers for that long.
func (w *world) disturb(d time.Duration) {
	if until := time.Now().Add(d); until.After(w.disturbed) {
		w.disturbed = until
	}
}

func (w *world) number() int {
	w.names++
	return w.names
}

func (w *world) address() string {
	n := w.number()
	return fmt.Sprintf("10.1.%d.%d", n/200, n%200+1)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// settles is how long the world is watched once faults have ended: longer than any pause of a
// controller. Then next to nothing may happen for the time rests.
const (
	settles = 25 * time.Minute
	rests   = 5 * time.Minute
)

// outcome of a run.
type outcome struct {
	wrong, lines []string
	served       int // how often a server began to serve
	woken        int // how many of these servers slept before
	stopped      int // orders to stop a rank
	recreated    int // groups
}

// simulate plays one script.
func simulate(t *testing.T, seed uint64, script []event, trace bool) (out outcome) {
	return simulateIn(t, seed, script, trace, (*world).setUp)
}

// simulateIn plays one script in a world that setUp has made.
func simulateIn(t *testing.T, seed uint64, script []event, trace bool, setUp func(*world)) (out outcome) {
	synctest.Test(t, func(*testing.T) {
		w := &world{
			Draws: schedules.Draws{Seed: seed}, trace: trace, start: time.Now(),
			launchers: map[string]*launcher{}, programs: map[types.UID]*requester{}, places: map[string]place{},
		}
		w.locked(func() {
			w.api = newAPI(w)
			w.truth = &truth{w: w, starts: map[string]*start{}, byAttempt: map[string]*start{}, swaps: map[string]*swap{}}
			setUp(w)
			w.boot()
			for _, e := range script {
				w.after(e.at, func() {
					w.note("--- %s", e)
					w.happen(e)
				})
			}
			w.truth.tick()
		})
		w.play(script)
		w.locked(func() {
			out = outcome{w.wrong, w.lines, w.truth.served, w.truth.woken, w.truth.stopped, w.truth.recreated}
			w.over = true
			w.proc.end()
			for _, l := range w.launchers {
				l.end()
			}
		})
		w.proc.binder.Close()
		synctest.Wait()
	})
	return out
}

// play waits until the script is over and the world is at rest, and checks that.
func (w *world) play(script []event) {
	end := time.Second
	if len(script) > 0 {
		end += script[len(script)-1].at
	}
	broken := func() (is bool) { w.locked(func() { is = len(w.wrong) > 0 }); return is }
	sleep(context.Background(), end)
	w.locked(w.calmDown)
	if broken() {
		return
	}
	sleep(context.Background(), settles)
	before := 0
	w.locked(func() { before = w.passes; w.truth.checkRest() })
	if broken() {
		return
	}
	sleep(context.Background(), rests)
	w.locked(func() {
		if made := w.passes - before; made > 50 {
			w.violated("works without need", "%d passes in %s, and nothing has happened", made, rests)
		}
	})
}
