package requester

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

const (
	// dialTimeout bounds the way to a target that is on the same node.
	dialTimeout = 5 * time.Second
	// acceptPause is how long no connection is accepted after the kernel could
	// give none, as it does when it has no descriptor or no memory for one.
	acceptPause = 50 * time.Millisecond
	// shortestLook keeps a drain with a tiny idle_timeout from looking without end.
	shortestLook = 10 * time.Millisecond
)

// binding owns a serving port and the connections that came in through it. They
// go to its target, and none outlives it. Until it has a target it holds them.
type binding struct {
	config   requesterapi.ProxyConfig
	listener *net.TCPListener // nil: no connections come in
	tally    *tally
	maxConns int
	holdFor  time.Duration // for how long a connection is held
	served   chan struct{} // closed when there is a target; config is complete then
	endDials context.CancelFunc
	// running are the accept loop and the connections; over is closed when none
	// of them is left.
	running sync.WaitGroup
	over    chan struct{}
	// hurry tells the drain that its end has moved.
	hurry chan struct{}
	// gone is closed when the requester is unbound; outcome stands then.
	gone    chan struct{}
	outcome requesterapi.Unbound

	mu       sync.Mutex
	conns    map[*connection]struct{}
	holds    bool      // there is no target yet
	deadline time.Time // of the drain; zero before there is one
	idle     time.Duration
}

// drainFor is how patient a drain is.
type drainFor struct{ timeout, idle time.Duration }

// newBinding makes a binding that holds the connections that come in until serve.
func newBinding(hold requesterapi.Hold, l *net.TCPListener, t *tally, maxConns int, holdFor time.Duration) *binding {
	ctx, cancel := context.WithCancel(context.Background())
	b := &binding{
		config:   requesterapi.ProxyConfig{Binding: hold.Binding, ServingPort: hold.ServingPort},
		listener: l,
		tally:    t,
		maxConns: maxConns,
		holdFor:  holdFor,
		served:   make(chan struct{}),
		endDials: cancel,
		over:     make(chan struct{}),
		hurry:    make(chan struct{}, 1),
		gone:     make(chan struct{}),
		conns:    map[*connection]struct{}{},
		holds:    true,
	}
	if l != nil {
		b.running.Go(func() { b.accept(ctx) })
	}
	return b
}

// stopListening refuses connections from now on.
func (b *binding) stopListening() {
	if b.listener != nil {
		_ = b.listener.Close() // fails only when it is closed
	}
}

// serve gives a binding that holds its target. The connections that are held go there.
func (b *binding) serve(config requesterapi.ProxyConfig) {
	b.mu.Lock()
	b.config, b.holds = config, false
	b.mu.Unlock()
	close(b.served)
}

// isFor reports whether a binding has this name and this serving port.
func (b *binding) isFor(hold requesterapi.Hold) bool {
	return b.config.Binding == hold.Binding && b.config.ServingPort == hold.ServingPort
}

// release ends a binding that holds: it stops listening, and resets what it holds.
func (b *binding) release() {
	b.mu.Lock()
	b.deadline = time.Now()
	b.mu.Unlock()
	b.stopListening()
	b.endDials()
	b.running.Wait()
}

func (b *binding) accept(ctx context.Context) {
	for {
		client, err := b.listener.AcceptTCP()
		switch {
		case err == nil:
			b.take(ctx, client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause(ctx, acceptPause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// take carries a connection, or resets it when it came too late or is one too
// many: descriptors must be left for the SPI.
func (b *binding) take(ctx context.Context, client *net.TCPConn) {
	c := &connection{client: client, last: time.Now()}
	b.mu.Lock()
	refuse := !b.deadline.IsZero() || len(b.conns) >= b.maxConns || b.holds && len(b.conns) >= requesterapi.MaxHeld
	if !refuse {
		b.conns[c] = struct{}{}
	}
	b.mu.Unlock()
	if refuse {
		reset(client)
		b.tally.ended(outcomeRefused)
		return
	}
	b.running.Go(func() {
		if !b.awaitTarget(ctx) {
			c.stop(outcomeUnserved)
			b.left(c, outcomeUnserved)
			return
		}
		b.left(c, c.carry(ctx, b.config.Target(), b.tally))
	})
}

// awaitTarget waits until a connection that is held can be carried; false: it cannot be.
func (b *binding) awaitTarget(ctx context.Context) bool {
	select {
	case <-b.served:
		return true
	default:
	}
	timer := time.NewTimer(b.holdFor)
	defer timer.Stop()
	select {
	case <-b.served:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// left counts how a connection ended.
func (b *binding) left(c *connection, how outcome) {
	b.tally.ended(how)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
	if b.deadline.IsZero() {
		return
	}
	switch how {
	case outcomeIdle:
		b.outcome.Idle++
	case outcomeCut:
		b.outcome.Cut++
	case outcomeFinished, outcomeReset, outcomeUnreachable, outcomeRefused, outcomeUnserved:
		b.outcome.Finished++
	}
}

func (b *binding) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

func (b *binding) draining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.deadline.IsZero()
}

// beginDrain stops listening. It says whether it was the first; a later one can
// only make the drain shorter.
func (b *binding) beginDrain(now time.Time, limits drainFor) (first bool) {
	deadline := now.Add(limits.timeout)
	b.mu.Lock()
	first = b.deadline.IsZero()
	if first || deadline.Before(b.deadline) {
		b.deadline = deadline
	}
	if first || limits.idle < b.idle {
		b.idle = limits.idle
	}
	b.mu.Unlock()
	if first {
		b.stopListening()
		return true
	}
	select {
	case b.hurry <- struct{}{}:
	default: // it will look anyway
	}
	return false
}

// drain lets the connections end, closes idle ones and cuts the rest at the
// deadline. It returns when none is left.
func (b *binding) drain() {
	defer b.endDials()
	go func() {
		b.running.Wait()
		close(b.over)
	}()
	for {
		wait, late := b.closeIdle(time.Now())
		if late {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-b.over:
			timer.Stop()
			return
		case <-timer.C:
		case <-b.hurry:
			timer.Stop()
		}
	}
	b.mu.Lock()
	for c := range b.conns {
		c.stop(outcomeCut)
	}
	b.mu.Unlock()
	b.endDials()
	<-b.over
}

// closeIdle closes the connections that are idle and says how long to wait until
// another one can be, or the drain is late.
func (b *binding) closeIdle(now time.Time) (wait time.Duration, late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.deadline) {
		return 0, true
	}
	next := now.Add(b.idle)
	for c := range b.conns {
		idle, since := c.idle()
		switch {
		case !idle:
		case now.Sub(since) >= b.idle:
			c.stop(outcomeIdle)
		case since.Add(b.idle).Before(next):
			next = since.Add(b.idle)
		}
	}
	wait = max(next.Sub(now), shortestLook)
	return min(wait, b.deadline.Sub(now)), false
}
