package simulation

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// limits of the simulated launcher.
var limits = supervisor.Limits{
	Start: time.Minute, Sleep: 40 * time.Second, Wake: 40 * time.Second, Drain: 2 * time.Second,
	StopGrace: 5 * time.Second, StartingGrace: 500 * time.Millisecond, Memory: 20 * time.Second, Fingerprint: 10 * time.Second,
	Hang: 10 * time.Second,
}

// errDead is what a launcher that was killed is told: nothing that it does has an
// effect any more.
var errDead = errors.New("the launcher was killed")

// life is one life of the launcher, from its start until it is killed. All that
// it has of the world goes through it.
type life struct {
	w      *world
	m      *machine
	died   chan struct{}
	state  *statedir.Dir
	mark   string
	sup    *supervisor.Supervisor
	swaps  *swap.Coordinator
	feed   *eventlog.Log
	turns  *gpuqueue.Queue
	forker *forker

	// ctx ends with the life: so do the calls of its clients.
	ctx  context.Context
	over context.CancelCauseFunc
	born time.Time

	written *statedir.Records // of swaps

	mu      sync.Mutex
	dead    bool
	closing bool
	calls   int // into the world
	// killAt is the call at which it is killed, before its effect or after; 0: none.
	killAt       int
	killAfter    bool
	gates        map[*gate]bool
	lastRevision uint64 // that it told of before its end

	firstRevision uint64 // that it went on from
}

// begin starts the launcher on what is on the disk and in the processes.
func (w *world) begin(killAt int, killAfter bool) *life {
	l := &life{w: w, m: w.m, died: make(chan struct{}), turns: &gpuqueue.Queue{}, gates: map[*gate]bool{}, killAt: killAt, killAfter: killAfter}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	l.ctx, l.over = context.WithCancelCause(context.Background())
	l.born = time.Now()
	var err error
	l.state, err = statedir.Open(w.dir)
	must(err)
	instances, err := l.state.Records("instances")
	must(err)
	l.written, err = l.state.Records("swaps")
	must(err)
	var memory supervisor.SavedState
	for _, saved := range readable(l, instances, supervisor.ReadSaved) {
		memory.Add(saved)
	}
	var foreign []supervisor.SavedInstance
	if l.mark, foreign = ownMark(l.state, l.m, &memory); len(foreign) > 0 {
		w.m.wrong(launchersLeaveOthersAlone, "the launcher takes %s for another's", foreign[0].Facts.ID)
	}
	saved := l.saved()
	memory.UnderWay = swap.UnderWay(saved)
	memory.Revision, err = l.state.NextRevision(memory.Revision, w.wallClock(), w.bootClock())
	must(err)
	log := slog.New(slog.NewTextHandler(w.log, nil))
	l.feed, l.firstRevision = eventlog.New(10_000, memory.Revision), memory.Revision
	l.forker = newForker(l)
	writes := &statedir.Queue{}
	l.sup = supervisor.New(supervisor.Options{
		Mark:    l.mark,
		Engines: l.engines(), Programs: programs, SaveDir: w.saveDir(), SleepMode: engine.SleepModeAlways,
		GPUs: gpu.Guard(gpus{l}, log), Processes: l.m, Runner: runner{l}, Forker: l.forker, Models: newModels(l), Gates: ports{l}, Logs: logs{l}, Records: &records{l, "instance", instances}, Writes: writes, Clock: w.bootClock(),
		Feed: l.feed, Turns: l.turns, ConfigDir: w.dir, Limits: limits, Budget: w.budget, Observer: supervisortest.Nobody{}, Logger: log,
	})
	l.swaps = swap.New(swap.Options{
		Supervisor: l.sup, Turns: l.turns, Records: &records{l, "swap", l.written}, Writes: writes, Clock: w.bootClock(), Limits: limits, Logger: log,
		Finished: func(string, launcherapi.SwapResult) {},
	})
	l.recover(memory, saved)
	return l
}

// ownMark is the mark of a launcher, which it keeps. It drops the records of other
// launchers' engines, as package daemon does.
func ownMark(state *statedir.Dir, m *machine, memory *supervisor.SavedState) (own string, foreign []supervisor.SavedInstance) {
	mark, err := state.Mark(memory.Marks())
	if err == nil {
		err = state.KeepMark(mark)
	}
	if err != nil {
		panic(err)
	}
	foreign, err = memory.DropForeign(supervisor.Owner{Mark: mark, Processes: m})
	if err != nil {
		panic(err)
	}
	return mark, foreign
}

// recoveryTime bounds a recovery: the API serves only after it.
const recoveryTime = 5 * time.Second

func (l *life) recover(memory supervisor.SavedState, saved []swap.Saved) {
	done := make(chan error, 1)
	go func() { done <- l.sup.Recover(context.Background(), memory) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(recoveryTime):
		l.m.wrong(recoveryIsQuick, "the recovery takes longer than %s", recoveryTime)
		l.kill()
		err = <-done
	}
	if err != nil && !l.isDead() {
		l.m.wrong(recoveryIsQuick, "the recovery failed: %v", err)
	}
	l.swaps.Recover(saved)
	l.sup.EnforceBudgets()
}

// readable gives what can be read, and sets the other files aside, as package daemon
// does.
func readable[T any](l *life, records *statedir.Records, read func(statedir.Found) (T, error)) (all []T) {
	found, err := records.Read()
	if err != nil {
		panic(err)
	}
	for _, f := range found {
		var record T
		if err := f.Damage; err == nil {
			record, err = read(f)
			if err == nil {
				all = append(all, record)
				continue
			}
		}
		if _, err := records.SetAside(f.Name, statedir.Broken); err != nil {
			l.m.wrong(filesAreTrue, "cannot set a file aside: %v", err)
		}
		if len(l.w.damaged) == 0 {
			l.m.wrong(filesAreTrue, "the file of %s cannot be read, and nobody damaged it", f.Name)
		}
	}
	return all
}

// saved are the swaps that are written, in the order of their beginning.
func (l *life) saved() []swap.Saved {
	all := readable(l, l.written, swap.ReadSaved)
	swap.InOrder(all)
	return all
}

func (l *life) isClosing() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.closing }

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
	if l.killAfter && l.killAt > 0 && l.calls >= l.killAt && !l.dead {
		l.die()
	}
}

// die ends what the launcher does, as kill -9 does. The lock is held.
func (l *life) die() {
	l.dead = true
	if l.feed != nil {
		l.lastRevision = l.feed.Revision()
	}
	close(l.died)
	l.over(errDead)
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
	l.m.mu.Lock()
	clear(l.m.private)
	l.m.mu.Unlock()
	if err := l.state.Close(); err != nil {
		l.m.wrong(nothingIsLeft, "cannot unlock the state folder: %v", err)
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
	if err := r.l.awaitDisk(); err != nil {
		return err
	}
	return effect()
}

// gpus are what the driver says.
type gpus struct{ l *life }

func (gpus) Kind() string             { return "simulated" }
func (gpus) Env() []string            { return nil }
func (gpus) Health(string) gpu.Health { return gpu.Health{OK: true} }

func (g gpus) AllDevices() []gpu.Device { return g.Devices() }

func (gpus) Devices() []gpu.Device {
	return []gpu.Device{{UUID: "g0", MemoryTotalBytes: 80 * gib}, {UUID: "g1", Index: 1, MemoryTotalBytes: 80 * gib}}
}

func (g gpus) Memory(uuid string) (gpu.Memory, error) {
	if g.l.isDead() {
		return gpu.Memory{}, errDead
	}
	g.l.m.awaitDriver(uuid)
	return g.l.m.memory(uuid), nil
}

// logs are files that nobody reads.
type logs struct{ l *life }

func (o logs) Create(id string) (*os.File, string, error) {
	if err := o.l.awaitDisk(); err != nil {
		return nil, "", err
	}
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return f, id + ".log", err
}

func (o logs) Reopen(string) (*os.File, error) {
	if err := o.l.awaitDisk(); err != nil {
		return nil, err
	}
	return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
}

func (logs) Latest(string) (string, bool)                    { return "", false }
func (logs) Note(string, string) error                       { return nil }
func (o logs) Tail(string, int, int) ([]string, error)       { return nil, o.l.awaitDisk() }
func (o logs) Size(string) int64                             { _ = o.l.awaitDisk(); return 0 }
func (o logs) Watch(string) (<-chan struct{}, func(), error) { return nil, func() {}, o.l.awaitDisk() }
