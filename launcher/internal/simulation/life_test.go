package simulation

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/launcher/internal/feed"
	"hotseat.dev/hotseat/launcher/internal/gpu"
	"hotseat.dev/hotseat/launcher/internal/statedir"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/launcher/internal/swap"
	"hotseat.dev/hotseat/launcher/internal/turns"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// limits of the simulated launcher.
var limits = supervisor.Limits{
	Start: 20 * time.Second, Sleep: 5 * time.Second, Wake: 5 * time.Second, Drain: 2 * time.Second,
	StopGrace: 2 * time.Second, StartingGrace: 500 * time.Millisecond, Memory: 5 * time.Second,
}

// errDead is what a launcher that was killed is told: nothing that it does has an
// effect any more.
var errDead = errors.New("the launcher was killed")

// life is one life of the launcher, from its start until it is killed. All that
// it has of the world goes through it.
type life struct {
	w     *world
	m     *machine
	died  chan struct{}
	state *statedir.Dir
	sup   *supervisor.Supervisor
	swaps *swap.Coordinator
	feed  *feed.Feed
	turns *turns.Queue

	written *statedir.Records // of swaps

	mu    sync.Mutex
	dead  bool
	calls int // into the world
	// killAt is the call at which it is killed, before its effect or after; 0: none.
	killAt    int
	killAfter bool
	gates     map[*gate]bool
}

// begin starts the launcher on what is on the disk and in the processes.
func (w *world) begin(killAt int, killAfter bool) *life {
	l := &life{w: w, m: w.m, died: make(chan struct{}), turns: &turns.Queue{}, gates: map[*gate]bool{}, killAt: killAt, killAfter: killAfter}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	l.state, err = statedir.Open(w.dir)
	must(err)
	instances, err := l.state.Records("instances")
	must(err)
	swaps, err := l.state.Records("swaps")
	must(err)
	var memory supervisor.Memory
	found, err := instances.Read()
	must(err)
	for _, f := range found {
		s, err := supervisor.ReadSaved(f)
		must(errors.Join(f.Damage, err))
		memory.Add(s)
	}
	l.written = swaps
	saved := l.saved()
	memory.UnderWay = swap.UnderWay(saved)
	if !l.state.New {
		memory.Revision = max(memory.Revision, uint64(time.Now().UnixMilli()))
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	l.feed = feed.New(10_000, memory.Revision)
	l.sup = supervisor.New(supervisor.Options{
		Engines: []engine.Engine{&simEngine{l, engine.NewVLLM(engine.VLLMOptions{})}}, Program: []string{"/bin/vllm"}, SleepMode: engine.SleepModeAlways,
		GPUs: gpus{l}, Processes: l.m, Runner: runner{l}, Gates: ports{l}, Logs: logs{}, Records: &records{l, "instance", instances},
		Feed: l.feed, Turns: l.turns, ConfigDir: w.dir, Limits: limits, Budget: w.budget, Observer: nobody{}, Logger: log,
	})
	l.swaps = swap.New(swap.Options{
		Supervisor: l.sup, Turns: l.turns, Records: &records{l, "swap", swaps}, Limits: limits, Logger: log,
		Finished: func(string, launcherapi.SwapResult) {},
	})
	if err := l.sup.Recover(context.Background(), memory); err != nil && !l.isDead() {
		w.m.wrong("recovery failed: %v", err)
	}
	l.swaps.Recover(saved)
	l.sup.HoldBudgets()
	return l
}

// saved are the swaps that are written, in the order of their beginning.
func (l *life) saved() (all []swap.Saved) {
	found, err := l.written.Read()
	for _, f := range found {
		s, damage := swap.ReadSaved(f)
		err = errors.Join(err, f.Damage, damage)
		all = append(all, s)
	}
	if err != nil {
		panic(err)
	}
	swap.InOrder(all)
	return all
}

func (l *life) isDead() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.dead }

// call is to come before each effect on the world. An error says that the launcher
// was killed before it could have one.
func (l *life) call(string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	l.calls++
	if l.calls == l.killAt && !l.killAfter {
		l.die()
		return errDead
	}
	return nil
}

// effected is to come after each effect.
func (l *life) effected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == l.killAt && l.killAfter && !l.dead {
		l.die()
	}
}

// die ends what the launcher does, as kill -9 does. The lock is held.
func (l *life) die() {
	l.dead = true
	close(l.died)
}

// kill is kill -9.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dead {
		l.die()
	}
}

// bury waits until nothing of a life that is over runs any more, and gives back
// what the kernel would: its ports and its lock.
func (l *life) bury() {
	over, stop := context.WithCancel(context.Background())
	stop()
	l.swaps.Close(over)
	_ = l.sup.Close(over, false) // the dead are told errors all along
	l.mu.Lock()
	for g := range l.gates {
		l.m.free(g.port)
	}
	l.mu.Unlock()
	if err := l.state.Close(); err != nil {
		l.m.wrong("cannot unlock the state folder: %v", err)
	}
}

// records are files on the world's disk.
type records struct {
	l    *life
	what string
	real *statedir.Records
}

func (r *records) Put(id string, record any) error {
	return r.do("write "+r.what+" "+id, func() error {
		if r.l.w.full() {
			return syscall.ENOSPC
		}
		return r.real.Put(id, record)
	})
}

func (r *records) Doubt(id string) error {
	return r.do("doubt "+r.what+" "+id, func() error { return r.real.Doubt(id) })
}

func (r *records) Remove(id string) error {
	return r.do("remove "+r.what+" "+id, func() error { return r.real.Remove(id) })
}

func (r *records) do(what string, effect func() error) error {
	if err := r.l.call(what); err != nil {
		return err
	}
	defer r.l.effected()
	return effect()
}

// gpus are what the driver says.
type gpus struct{ l *life }

func (gpus) Kind() string             { return "simulated" }
func (gpus) Env() []string            { return nil }
func (gpus) Health(string) gpu.Health { return gpu.Health{OK: true} }

func (gpus) Devices() []gpu.Device {
	return []gpu.Device{{UUID: "g0", MemoryTotalBytes: 80 * gib}, {UUID: "g1", Index: 1, MemoryTotalBytes: 80 * gib}}
}

func (g gpus) Memory(uuid string) (gpu.Memory, error) {
	if g.l.isDead() {
		return gpu.Memory{}, errDead
	}
	return g.l.m.memory(uuid), nil
}

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

type reservation struct {
	l    *life
	port int
}

func (r *reservation) Port() int    { return r.port }
func (r *reservation) Close() error { return nil } // the engine's, from its start to its end

func (p ports) Reserve() (supervisor.Reservation, error) {
	if err := p.l.call("reserve"); err != nil {
		return nil, err
	}
	p.l.m.mu.Lock()
	defer p.l.m.mu.Unlock()
	p.l.m.nextPort++
	return &reservation{p.l, p.l.m.nextPort}, nil
}

func (p ports) Claim(port int) (supervisor.Reservation, error) { return &reservation{p.l, port}, nil }

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
	changed chan struct{} // closed and replaced when it opens
}

func (g *gate) Host() string        { return "127.0.0.1" }
func (g *gate) Port() int           { return g.port }
func (g *gate) InFlight() int       { return 0 }
func (g *gate) Held() int           { return 0 }
func (g *gate) LastUsed() time.Time { return time.Time{} }
func (g *gate) Shut(string)         { g.set(false) }
func (g *gate) Fail(string)         { g.set(false) }

func (g *gate) Open() {
	if g.l.isDead() {
		return
	}
	g.l.m.mu.Lock()
	p := g.l.m.at(g.target)
	asleep := p != nil && (p.level > 0 || !p.ready)
	garbage := p != nil && p.garbage
	g.l.m.mu.Unlock()
	if asleep {
		g.l.m.wrong("the gate of %s opens, and its engine is not awake", g.id)
	}
	if garbage {
		g.l.m.wrong("the gate of %s opens, and its engine was woken by the sequence of another level", g.id)
	}
	g.set(true)
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
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

func (g *gate) Close(context.Context) error {
	g.l.mu.Lock()
	dead := g.l.dead
	delete(g.l.gates, g)
	g.l.mu.Unlock()
	if !dead {
		g.set(false)
	}
	g.l.m.free(g.port) // the kernel closes those of the dead as well
	return nil
}

// logs are files that nobody reads.
type logs struct{}

func (logs) Create(id string) (*os.File, string, error) {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return f, id + ".log", err
}

func (logs) Latest(string) (string, bool)                  { return "", false }
func (logs) Tail(string, int, int) ([]string, error)       { return nil, nil }
func (logs) Size(string) int64                             { return 0 }
func (logs) Watch(string) (<-chan struct{}, func(), error) { return nil, func() {}, nil }

type nobody struct{}

func (nobody) Transition(string, launcher.State, launcher.State, string) {}
func (nobody) Phase(string, time.Duration)                               {}
func (nobody) Refused(string, string)                                    {}
func (nobody) Cut(int)                                                   {}
func (nobody) Started(string, bool)                                      {}
func (nobody) WriteFailed()                                              {}
