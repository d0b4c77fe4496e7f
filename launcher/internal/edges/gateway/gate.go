package gateway

import (
	"context"
	"errors"
	"net"
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

// ErrOpen is Drain's error when the gate is open, or was opened meanwhile: an open
// gate has no end of its requests to wait for.
var ErrOpen = errors.New("the gate is open")

// errCut is the cause of a request's cancelled context when a drain cut it.
var errCut = errors.New("cut by the launcher")

// cutGrace is how long a cut request may still take to write an error answer
// to a client that does not read.
const cutGrace = time.Second

// ticket stands for one inference request on its way to the engine.
type ticket struct {
	conn   net.Conn // the client's; nil when unknown
	cancel context.CancelCauseFunc
}

// cut ends the request: it cancels the context, and sets deadlines for reads and
// writes of the client's connection, which a context does not end.
func (t *ticket) cut() {
	t.cancel(errCut)
	if t.conn == nil {
		return
	}
	now := time.Now() // the kernel's clock, not the gate's
	// Both fail only on a connection that is closed already.
	_ = t.conn.SetReadDeadline(now)
	_ = t.conn.SetWriteDeadline(now.Add(cutGrace))
}

// waiter is a held request. Once ready is closed the request is either admitted,
// with its ticket counted, or refused.
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
	changed  chan struct{} // closed at the next change of state, or when the last request leaves; nil when no drain waits
}

func newGate(maxHeld int, now func() time.Time) *gate {
	return &gate{
		maxHeld:  maxHeld,
		now:      now,
		state:    gateShut,
		reason:   "the engine is starting",
		inFlight: map[*ticket]struct{}{},
		held:     map[*waiter]struct{}{},
	}
}

// set moves the gate to a state, unless the gate is closed for good, and admits or
// refuses the held requests. It is the only place that writes the state.
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
		case gateFailed, gateClosed:
			w.refused = refuseFailed(reason)
		}
		delete(g.held, w)
		close(w.ready)
	}
	g.announce()
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
			return nil, refuseFull(len(g.held), g.reason)
		}
		w := &waiter{ticket: t, ready: make(chan struct{})}
		g.held[w] = struct{}{}
		return w, nil
	case gateFailed, gateClosed:
		return nil, refuseFailed(g.reason)
	default:
		panic("gateway: no such gate state: " + string(g.state))
	}
}

// settle ends the wait of a held request: by its admission or refusal, or, if there
// is neither yet, by a refusal for having waited too long.
func (g *gate) settle(w *waiter) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, waiting := g.held[w]; !waiting {
		return w.refused
	}
	delete(g.held, w)
	return refuseLate(g.reason)
}

// admit counts a request; the lock is held.
func (g *gate) admit(t *ticket) {
	g.inFlight[t] = struct{}{}
	g.lastUsed = g.now()
}

// leave ends an admitted request.
func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inFlight, t)
	g.lastUsed = g.now()
	if len(g.inFlight) == 0 {
		g.announce()
	}
}

// announce wakes the drains that wait for a change; the lock is held.
func (g *gate) announce() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// drain waits until no request is in flight. When ctx ends it cuts, once, the
// requests that are, returns their number, and still waits until they have left.
func (g *gate) drain(ctx context.Context) (int, error) {
	cut, ended := 0, ctx.Done()
	for {
		changed, err := g.drained()
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

// drained gives a channel to wait on while requests are in flight; nil: none is.
func (g *gate) drained() (<-chan struct{}, error) {
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

func (g *gate) cutAll() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.inFlight {
		t.cut()
	}
	return len(g.inFlight)
}

// why gives the reason of the present state, and whether the engine is gone.
func (g *gate) why() (reason string, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.state == gateFailed || g.state == gateClosed
}

func (g *gate) counts() (inFlight, held int, lastUsed time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inFlight), len(g.held), g.lastUsed
}
