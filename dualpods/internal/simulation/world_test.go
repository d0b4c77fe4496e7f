// Package simulation plays the controllers of model caches and of placement in
// simulated time: the real Controllers, over an API server, nodes, launchers and a
// scheduler that are simulated. What happens is drawn from a seed.
package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	sources    []*source
	machines   map[string]*machine
	programs   map[string]*launcher // by UID of their Pods
	proc       *process
	steps      int // calls of controllers to anybody
	names      int // of objects that were made
	truth      *truth
	calls      *callCheck
	waits      map[string]time.Time // since when a requester waits for its gate alone
	trouble    time.Time            // until when writes of Pods are disturbed, or a controller begins
	cares      map[string]bool      // Pods that have been bound
	given      map[string]string    // GPUs, to Pods
	strangers  map[string]bool      // UIDs of Pods that look like launchers
	breaks     int                  // how many fetches are still to break off
	writes     int                  // of controllers, that were made
	passes     int
	secretNext bool          // the Secret changes when the next fetch of a gated model begins
	calm       bool          // nothing happens any more but what the controllers do
	healed     int           // of the checks at the end, how many nodes had their model
	relaunch   time.Duration // how long a launcher is away that is replaced
	many       bool          // there are many nodes, which may all fetch at once
}

// locked does something while nobody else does.
func (w *world) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// after does something later.
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

// violated notes what must never be: a rule, and where it was broken.
func (w *world) violated(rule, format string, args ...any) {
	line := rule + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(w.wrong, line) && len(w.wrong) < 20 {
		w.wrong = append(w.wrong, line)
		w.note("VIOLATED  %s", line)
	}
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

// How long the world is watched once nothing happens any more: longer than any pause of
// a controller, and then for a while in which next to nothing is to be done.
const (
	settles = 25 * time.Minute
	rests   = 15 * time.Minute
)

// outcome of a run.
type outcome struct {
	wrong, lines []string
	passes       int
	whole        int // nodes that had their models at the end
}

// simulate runs one script.
func simulate(t *testing.T, seed uint64, script []event, trace bool) (out outcome) {
	synctest.Test(t, func(*testing.T) {
		w := &world{
			Draws: schedules.Draws{Seed: seed}, trace: trace, start: time.Now(), machines: map[string]*machine{}, programs: map[string]*launcher{},
			waits: map[string]time.Time{}, cares: map[string]bool{}, given: map[string]string{}, strangers: map[string]bool{},
		}
		w.locked(func() {
			w.api = newAPI(w)
			w.truth = newTruth(w)
			w.calls = newCallCheck(w)
			w.setUp()
			w.boot()
			for _, e := range script {
				w.after(e.at, func() {
					w.note("--- %s", e)
					w.happen(e)
				})
			}
			w.tick()
		})
		end := time.Second
		if slices.ContainsFunc(script, func(e event) bool { return e.what == "silence and delete" }) {
			end += 30 * time.Second
		}
		if len(script) > 0 {
			end += script[len(script)-1].at
		}
		sleep(context.Background(), end)
		w.locked(w.calmDown)
		broken := func() (is bool) { w.locked(func() { is = len(w.wrong) > 0 }); return is }
		if !broken() {
			sleep(context.Background(), settles)
			w.locked(w.checkRest)
		}
		if !broken() {
			sleep(context.Background(), rests)
			w.locked(w.checkStill)
		}
		w.locked(func() {
			out = outcome{w.wrong, w.lines, w.passes, w.healed}
			w.over = true
			w.proc.dead = true
			w.proc.cancel()
		})
		w.proc.caches.Close()
		synctest.Wait()
	})
	return out
}
