package gateway

import (
	"context"
	"errors"
	"sync"
	"time"
)

// gateState is what the gate does with inference requests.
type gateState string

const (
	gateOpen   gateState = "open"
	gateShut   gateState = "shut"
	gateFailed gateState = "failed"
	gateClosed gateState = "closed"
)

// ErrOpen is Drain's error when the gate is open, or is opened while Drain waits.
// The requests of an open gate never end.
var ErrOpen = errors.New("the gate is open")

// errCut is the cause of a request's cancelled context when Drain or Close cut it.
var errCut = errors.New("cut by the launcher")

// cutGrace is how long a cut request may still take to write an error answer
// to a client that does not read.
const cutGrace = time.Second

// ticket stands for one inference request that is held or in flight.
type ticket struct {
	conn   *clientConn // the client's connection; nil when unknown
	cancel context.CancelCauseFunc

	mu      sync.Mutex // held during a cut
	cutAt   time.Time  // zero: the request was not cut
	settled bool       // the request is not cut any more
}

// cut ends the request, unless it is settled. It cancels the context, and sets deadlines on the
// client's connection, since a context does not end reads and writes there. The connection must
// not be used again. The rest of a settled request's answer has a deadline too; the server takes
// it away before the next request.
func (t *ticket) cut() (cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now() // deadlines are times of the kernel's clock, not of the gate's
	if t.conn != nil {
		_ = t.conn.SetWriteDeadline(now.Add(cutGrace)) // fails only on a connection that is closed already
	}
	if t.settled {
		return false
	}
	t.cutAt = now
	t.cancel(errCut)
	if t.conn != nil {
		_ = t.conn.SetReadDeadline(now)
	}
	return true
}

// settle notes that the request gets its answer, or has got it: from now on it is not cut.
// Otherwise a cut could end the connection of a client that may use it again.
func (t *ticket) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = true
}

// wasCut returns when the request was cut, if it was. It waits for the end of a cut.
func (t *ticket) wasCut() (at time.Time, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cutAt, !t.cutAt.IsZero()
}

// waiter is a held request. Closing ready ends its wait: the gate has then either
// admitted and counted its ticket, or set refused.
type waiter struct {
	ticket  *ticket
	ready   chan struct{}
	refused *refusal
}

// gate admits inference requests and counts them, both under one lock.
type gate struct {
	maxHeld int
	now     func() time.Time

	mu       sync.Mutex
	state    gateState
	reason   string
	inFlight map[*ticket]struct{}
	held     map[*waiter]struct{}
	lastUsed time.Time
	quiet    *quietWatch
	changed  chan struct{} // closed when the state changes or the last request leaves; nil when no drain waits
}

func newGate(maxHeld int, now func() time.Time) *gate {
	return &gate{
		quiet:    newQuietWatch(0, nil),
		maxHeld:  maxHeld,
		now:      now,
		state:    gateShut,
		reason:   "the engine is starting",
		inFlight: map[*ticket]struct{}{},
		held:     map[*waiter]struct{}{},
	}
}

// set changes the gate's state, and admits or refuses the held requests. A closed
// gate stays closed. No other function writes the state.
func (g *gate) set(state gateState, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == gateClosed {
		return
	}
	g.state, g.reason = state, reason
	for w := range g.held {
		switch state {
		case gateShut:
			continue
		case gateOpen:
			g.admit(w.ticket)
		case gateFailed:
			w.refused = refuseEngineGone(reason)
		case gateClosed:
			w.refused = refuseClosed(reason)
		}
		delete(g.held, w)
		close(w.ready)
	}
	g.wakeDrains()
}

// enter admits a request (nil, nil), holds it (a waiter), or refuses it.
func (g *gate) enter(t *ticket) (*waiter, *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case gateOpen:
		g.admit(t)
		return nil, nil
	case gateShut:
		if len(g.held) >= g.maxHeld {
			return nil, refuseQueueFull(len(g.held), g.reason)
		}
		w := &waiter{ticket: t, ready: make(chan struct{})}
		g.held[w] = struct{}{}
		return w, nil
	case gateFailed:
		return nil, refuseEngineGone(g.reason)
	case gateClosed:
		return nil, refuseClosed(g.reason)
	default:
		panic("gateway: no such gate state: " + string(g.state))
	}
}

// endWait ends the wait of a held request. It returns nil if the gate has admitted
// the request, and the gate's refusal if it has refused it. Otherwise the refusal
// says that the request waited too long.
func (g *gate) endWait(w *waiter) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, waiting := g.held[w]; !waiting {
		return w.refused
	}
	delete(g.held, w)
	return refuseHeldTooLong(g.reason)
}

// admit counts a request as in flight. The caller holds the lock.
func (g *gate) admit(t *ticket) {
	if len(g.inFlight) == 0 {
		g.beginQuietWatch()
	}
	g.inFlight[t] = struct{}{}
	g.lastUsed = g.now()
}

// leave ends an admitted request.
func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inFlight, t)
	g.lastUsed = g.now()
	g.quiet.noteSign()
	if len(g.inFlight) == 0 {
		g.endQuietWatch()
		g.wakeDrains()
	}
}

// wakeDrains wakes the calls of drain that wait for a change. The caller holds the
// lock.
func (g *gate) wakeDrains() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// drain waits until no request is in flight. When ctx ends, drain cuts the requests
// in flight, once, and waits until they have left. It returns how many it cut.
func (g *gate) drain(ctx context.Context) (int, error) {
	cut, ended := 0, ctx.Done()
	for {
		changed, err := g.nextChange()
		if changed == nil {
			return cut, err
		}
		select {
		case <-changed:
		case <-ended:
			cut, ended = g.cutAll(), nil
		}
	}
}

// nextChange returns a channel that is closed at the gate's next change. The channel
// is nil when no request is in flight.
func (g *gate) nextChange() (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == gateOpen {
		return nil, ErrOpen
	}
	if len(g.inFlight) == 0 {
		return nil, nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed, nil
}

// cutAll cuts the requests in flight, and returns how many.
func (g *gate) cutAll() (cut int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.inFlight {
		if t.cut() {
			cut++
		}
	}
	return cut
}

// isShut reports whether the gate holds requests.
func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == gateShut
}

// currentReason returns the reason of the gate's state, and whether the engine is
// gone.
func (g *gate) currentReason() (reason string, engineGone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.state == gateFailed || g.state == gateClosed
}

func (g *gate) counts() (inFlight, held int, lastUsed time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inFlight), len(g.held), g.lastUsed
}
