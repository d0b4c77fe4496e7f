package gateway

import (
	"sync/atomic"
	"time"
)

// quietWatch notices that requests are in flight and nothing comes back from the engine. Its
// timer runs only while a request is in flight. The gate's lock guards the run.
type quietWatch struct {
	limit   time.Duration // 0: nothing is noticed
	onQuiet func()
	epoch   time.Time    // a reading of the monotonic clock, from which sign counts
	sign    atomic.Int64 // when something last came back, or when the first request in flight was admitted
	run     *quietRun    // nil: no request is in flight, or there is no limit
}

// quietRun lasts from the first request in flight to the last.
type quietRun struct{ timer *time.Timer }

func newQuietWatch(limit time.Duration, onQuiet func()) *quietWatch {
	return &quietWatch{limit: limit, onQuiet: onQuiet, epoch: time.Now()}
}

// noteSign records that something came back from the engine.
func (q *quietWatch) noteSign() { q.sign.Store(int64(time.Since(q.epoch))) }

// lasts returns for how long nothing has come back.
func (q *quietWatch) lasts() time.Duration {
	return time.Since(q.epoch) - time.Duration(q.sign.Load())
}

// beginQuietWatch begins with the first request in flight. The caller holds the lock.
func (g *gate) beginQuietWatch() {
	q := g.quiet
	q.noteSign()
	if q.limit <= 0 {
		return
	}
	run := &quietRun{}
	q.run = run
	run.timer = time.AfterFunc(q.limit, func() { g.quietDue(run) })
}

// endQuietWatch ends with the last request in flight. The caller holds the lock.
func (g *gate) endQuietWatch() {
	if g.quiet.run != nil {
		g.quiet.run.timer.Stop()
		g.quiet.run = nil
	}
}

// quietDue calls onQuiet if nothing has come back for the whole limit, and sets the timer
// again. A timer whose requests have left does nothing.
func (g *gate) quietDue(run *quietRun) {
	g.mu.Lock()
	if g.quiet.run != run {
		g.mu.Unlock()
		return
	}
	rest := g.quiet.limit - g.quiet.lasts()
	due := rest <= 0
	if due {
		rest = g.quiet.limit
	}
	run.timer.Reset(rest)
	g.mu.Unlock()
	if due {
		g.quiet.onQuiet()
	}
}

// quietFor returns for how long the requests in flight have got nothing from the engine; 0:
// no request is in flight.
func (g *gate) quietFor() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inFlight) == 0 {
		return 0
	}
	return g.quiet.lasts()
}

// QuietFor returns for how long the requests in flight have got nothing from the engine; 0:
// no request is in flight.
func (p *Proxy) QuietFor() time.Duration { return p.gate.quietFor() }
