package simulation

import (
	"context"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
)

// ports are the kernel's, and gates that clients come to.
type ports struct{ l *life }

func (m *machine) free(port int) { m.mu.Lock(); delete(m.ports, port); m.mu.Unlock() }

func (m *machine) listen(port int, who string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for port == 0 || port < 0 {
		m.nextPort++
		if m.ports[m.nextPort] == "" {
			port = m.nextPort
		}
	}
	if by := m.ports[port]; by != "" {
		return 0, launcher.PortTakenf("port %d is taken by %s", port, by)
	}
	m.ports[port] = who
	return port, nil
}

// reservation is an engine's port, from its start to its end.
type reservation struct {
	l    *life
	port int
}

func (r *reservation) Port() int { return r.port }

func (r *reservation) Close() error {
	if r.l.isDead() {
		return nil // what it held is another life's by now
	}
	r.l.m.mu.Lock()
	defer r.l.m.mu.Unlock()
	delete(r.l.m.private, r.port)
	return nil
}

func (p ports) Reserve() (supervisor.Reservation, error) {
	if err := p.l.call("reserve"); err != nil {
		return nil, err
	}
	p.l.m.mu.Lock()
	defer p.l.m.mu.Unlock()
	if p.l.m.starved {
		return nil, errNoDescriptors
	}
	p.l.m.nextPort++
	p.l.m.private[p.l.m.nextPort] = true
	return &reservation{p.l, p.l.m.nextPort}, nil
}

func (p ports) Claim(port int) (supervisor.Reservation, error) {
	p.l.m.mu.Lock()
	defer p.l.m.mu.Unlock()
	if p.l.m.private[port] {
		return nil, launcher.PortTakenf("port %d is kept for another engine", port)
	}
	p.l.m.private[port] = true
	return &reservation{p.l, port}, nil
}

func (p ports) Listen(o supervisor.GateOptions) (supervisor.Gate, error) {
	if err := p.l.call("listen " + o.InstanceID); err != nil {
		return nil, err
	}
	port, err := p.l.m.listen(o.Port, o.InstanceID)
	if err != nil {
		return nil, err
	}
	g := &gate{l: p.l, id: o.InstanceID, port: port, target: o.TargetPort, changed: make(chan struct{})}
	p.l.mu.Lock()
	p.l.gates[g] = true
	p.l.mu.Unlock()
	return g, nil
}

// gate is a public port with clients.
type gate struct {
	l            *life
	id           string
	port, target int

	mu      sync.Mutex
	open    bool
	since   time.Time     // it last opened
	changed chan struct{} // closed and replaced when it opens

	timesQuiet int // as of the last check
}

func (g *gate) Host() string        { return "127.0.0.1" }
func (g *gate) Port() int           { return g.port }
func (g *gate) InFlight() int       { return 0 }
func (g *gate) Held() int           { return 0 }
func (g *gate) LastUsed() time.Time { return time.Time{} }

// QuietFor: clients ask all the time, and are answered at once unless the engine waits for the
// disk.
func (g *gate) QuietFor() time.Duration {
	g.l.m.mu.Lock()
	var since time.Time
	if p := g.l.m.at(g.target); p != nil && time.Until(p.silent) > 0 {
		since = p.silentSince
	}
	g.l.m.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.open || since.IsZero():
		return 0
	case g.since.After(since):
		since = g.since
	}
	return time.Since(since)
}

func (g *gate) Shut(string) { g.set(false) }
func (g *gate) Fail(string) { g.set(false) }

func (g *gate) Open() {
	if g.l.isDead() {
		return
	}
	g.l.m.mu.Lock()
	p := g.l.m.at(g.target)
	asleep := p != nil && (p.level > 0 || !p.ready)
	if asleep && g.l.m.ever["disk full"] && p.troubled && time.Since(g.l.born) < recoveryTime {
		asleep = false // what is written is out of date, and the engine did not answer: it is taken to be as written
	}
	garbage := p != nil && p.garbage
	if p != nil && !p.opened {
		p.opened, p.known = true, p.known || p.answered >= 2 && !p.troubled && p.lost == 0
	}
	// Where what is written was lost, so was what the engine is compared with.
	unusable := p != nil && p.known && (p.garbled || p.mute) && !g.l.m.ever["disk full"] && !g.l.m.ever["damage"]
	g.l.m.mu.Unlock()
	if unusable {
		g.l.m.wrong(gatesTellTheTruth, "the gate of %s opens, and its engine answers garbage or nothing", g.id)
	}
	if asleep {
		g.l.m.wrong(gatesTellTheTruth, "the gate of %s opens, and its engine is not awake", g.id)
	}
	if garbage {
		g.l.m.wrong(gatesTellTheTruth, "the gate of %s opens, and its engine was woken by the sequence of another level", g.id)
	}
	g.set(true)
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if open && !g.open {
		g.since = time.Now()
	}
	g.open = open
	if open {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

func (g *gate) isOpen() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.open }

// Drain waits for answers in flight, of which there are some now and then.
func (g *gate) Drain(ctx context.Context) (cut int, err error) {
	if err := g.l.call("drain " + g.id); err != nil {
		return 0, err
	}
	g.mu.Lock()
	opened := g.changed
	g.mu.Unlock()
	var longest time.Duration
	if g.l.m.draw("in flight "+g.id, 3) == 0 {
		longest = g.l.m.take("answers of "+g.id, 4*time.Second)
	}
	select {
	case <-time.After(longest):
		return 0, nil
	case <-opened: // called off
		return 0, nil
	case <-ctx.Done():
		return 1, ctx.Err()
	}
}

// Close waits for the clients that ask the launcher itself through it, as with
// --llm-d-compat.
func (g *gate) Close(ctx context.Context) error {
	g.l.mu.Lock()
	dead := g.l.dead
	delete(g.l.gates, g)
	g.l.mu.Unlock()
	if !dead {
		g.set(false)
		if g.l.m.draw("asked at the close of "+g.id, 4) == 0 {
			g.answerLast(ctx)
		}
	}
	g.l.m.free(g.port) // the kernel closes those of the dead as well
	return nil
}

func (g *gate) answerLast(ctx context.Context) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		time.Sleep(time.Millisecond)
		_, _ = g.l.sup.Get(g.id)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}
