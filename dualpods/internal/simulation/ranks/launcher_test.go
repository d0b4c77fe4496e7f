package ranks

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// launcher is the program of a launcher's Pod.
type launcher struct {
	w              *world
	uid, pod, node string
	ip             string
	gpus           []string
	ctx            context.Context // the life of its container
	end            context.CancelFunc
	dead           bool // for good
	down           bool // its program does not run at the moment
	silent         bool
	broken         chan struct{} // closed when connections break
	revision       uint64
	port           int
	all            map[string]*engine
	swaps          map[string]*swap // by key
	early          map[string]bool  // keys that were cancelled before a swap came with them
	turns          map[string]*swap // by GPU
	queue          []*swap          // swaps that wait for their turn, the first asked first
	leases         map[string]*lease
}

// lease is a set of ports that waits for its instance.
type lease struct {
	ports   []int
	expires time.Time
}

const leaseLifetime = 60 * time.Second

func (l *launcher) answers() bool { return !l.dead && !l.down && !l.silent }

// begin starts the container of a launcher, for the first time or again. Its folder has outlived the
// last one, but perhaps not all that was in it.
func (l *launcher) begin() {
	l.ctx, l.end = context.WithCancel(context.Background())
	l.broken, l.down = make(chan struct{}), false
	l.all, l.early, l.turns, l.queue = map[string]*engine{}, map[string]bool{}, map[string]*swap{}, nil
	if l.swaps == nil || l.w.Chance("state lost", 20) {
		l.swaps, l.leases = map[string]*swap{}, map[string]*lease{}
	}
}

// endContainer ends the launcher and its engines.
func (l *launcher) endContainer() {
	l.w.note("launcher %s: its container ends", l.pod)
	l.lose(0)
	l.down = true
	l.end()
	for _, id := range sorted(l.all) {
		l.remove(l.all[id])
	}
	l.forgets()
}

// restartContainer ends a launcher's container, and starts it again. The kubelet tells of that later.
func (l *launcher) restartContainer(back, told time.Duration) {
	l.w.disturb(max(back, told) + 10*time.Second)
	pod := l.w.api.pod(l.pod)
	l.endContainer()
	if told == 0 {
		l.w.api.changePod(pod, containerEnded)
	}
	l.w.after(back, func() {
		if !l.dead {
			l.begin()
		}
	})
	l.w.after(max(back, told), func() {
		if !l.dead {
			l.w.api.changePod(pod, func(p *corev1.Pod) { runs(p, l.ip) })
		}
	})
}

// forgets is how the next program begins: it knows no swaps that had not begun.
func (l *launcher) forgets() {
	clear(l.early)
	maps.DeleteFunc(l.swaps, func(_ string, s *swap) bool { return !s.begun && !s.ended })
}

// restartProgram ends the launcher's program alone. The engines stay. The next program undoes a swap
// that had begun, unless all that the swap still needs is its commit. It knows no other swaps.
func (l *launcher) restartProgram(back time.Duration) {
	l.w.note("launcher %s: its program restarts", l.pod)
	l.lose(0)
	l.down = true
	for _, key := range sorted(l.swaps) {
		switch s := l.swaps[key]; {
		case s.ended:
		case !s.begun:
			s.breakOff(errCloses)
		case !s.atCommit && !s.committed:
			s.breakOff(program.EngineFailedf("the launcher died during the swap"))
		}
	}
	l.forgets()
	l.w.after(back, func() { l.down = l.dead })
}

// engine is an instance, and the processes of vLLM behind it. A worker and its entry meet at the
// entry's address, and know nothing of their starts. Each of them meets once.
type engine struct {
	launcherapi.Instance
	l         *launcher
	changed   chan struct{} // closed with the next change
	gone      bool
	died      bool // its processes have ended by themselves
	slept     bool // it slept when it was told to stop, so it has no memory of the GPU
	claim     *swap
	confirmed bool            // a worker that is known to have loaded
	met       map[int]*engine // the workers of an entry, by index
	entry     *engine         // of a worker
	start     *start          // for which the instance became awake last
	changedAt time.Time
}

func (e *engine) is(states ...program.State) bool {
	return e != nil && !e.gone && slices.Contains(states, program.State(e.State))
}

func (e *engine) isWorker() bool { return e.Rank != nil && e.Rank.Index > 0 }

// runs reports whether the engine's processes run.
func (e *engine) runs() bool {
	return e.is(program.Starting, program.Awake, program.FallingAsleep, program.Sleeping, program.Waking)
}

// moves reports whether the engine is changing its state.
func (e *engine) moves() bool {
	return e.is(program.Starting, program.FallingAsleep, program.Waking, program.Stopping)
}

// set changes an instance, and tells those who watch.
func (l *launcher) set(e *engine, change func(*launcherapi.Instance)) {
	state := e.State
	change(&e.Instance)
	if state != e.State {
		e.StateSince, e.changedAt = time.Now(), time.Now()
		l.w.note("launcher %s: %s is %s", l.pod, e.InstanceID, e.State)
	}
	l.changed(e, launcherapi.EventUpdated)
}

func (l *launcher) changed(e *engine, event launcherapi.EventType) {
	l.revision++
	e.Revision = l.revision
	close(e.changed)
	e.changed = make(chan struct{})
	l.tell(launcherapi.WatchEvent{Type: event, Object: e.Instance})
}

func (l *launcher) move(e *engine, to program.State) {
	l.set(e, func(i *launcherapi.Instance) { i.State = string(to) })
}

func (l *launcher) remove(e *engine) {
	if e.gone {
		return
	}
	e.gone, e.changedAt = true, time.Now()
	if l.all[e.InstanceID] == e {
		delete(l.all, e.InstanceID)
	}
	l.w.note("launcher %s: %s is gone", l.pod, e.InstanceID)
	l.changed(e, launcherapi.EventDeleted)
}

// fails ends an engine's processes.
func (l *launcher) fails(e *engine) {
	if e.runs() {
		e.died = true
		l.move(e, program.Failed)
	}
}

// rest waits for d, or until the instance changes. The lock is held, and given back meanwhile.
func (l *launcher) rest(ctx context.Context, e *engine, d time.Duration) {
	changed := e.changed
	l.w.mu.Unlock()
	t := time.NewTimer(d)
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
	}
	t.Stop()
	l.w.mu.Lock()
}

// await waits until so holds, or the instance leaves a state. It returns whether so holds.
func (l *launcher) await(ctx context.Context, e *engine, state program.State, limit time.Duration, so func() bool) bool {
	for until := time.Now().Add(limit); e.is(state) && ctx.Err() == nil && time.Now().Before(until); {
		if so() {
			return true
		}
		l.rest(ctx, e, l.w.Between("look", 50*time.Millisecond, 200*time.Millisecond))
	}
	return false
}

// verbLimit bounds sleep and wake.
const verbLimit = 40 * time.Second

// fallAsleep puts an instance to sleep. The engine of a worker sleeps when its entry is told to.
func (l *launcher) fallAsleep(ctx context.Context, e *engine) error {
	if !e.is(program.Awake) {
		return nil
	}
	l.move(e, program.FallingAsleep)
	if e.isWorker() && !l.await(ctx, e, program.FallingAsleep, verbLimit, func() bool { return e.entry.is(program.FallingAsleep, program.Sleeping) }) {
		if e.is(program.FallingAsleep) {
			l.move(e, program.Awake)
		}
		return program.EngineFailedf("instance %s did not fall asleep", e.InstanceID)
	}
	l.rest(ctx, e, l.w.Between("fall asleep", 20*time.Millisecond, time.Second))
	if !e.is(program.FallingAsleep) || ctx.Err() != nil && l.ctx.Err() != nil {
		return program.EngineFailedf("instance %s ended", e.InstanceID)
	}
	l.move(e, program.Sleeping)
	return nil
}

// wakeUp wakes an instance. The engine of a worker wakes when its entry is told to, and an entry
// whose workers do not run does not wake.
func (l *launcher) wakeUp(ctx context.Context, e *engine) error {
	if !e.is(program.Sleeping) {
		return program.EngineFailedf("instance %s is %s", e.InstanceID, e.State)
	}
	l.move(e, program.Waking)
	together := func() bool {
		if e.isWorker() {
			return e.entry.is(program.Waking, program.Awake)
		}
		return l.w.allRun(e)
	}
	so := l.await(ctx, e, program.Waking, verbLimit, together)
	if so {
		l.rest(ctx, e, l.w.Between("wake", 20*time.Millisecond, time.Second))
	}
	switch {
	case !e.is(program.Waking):
		return program.EngineFailedf("instance %s ended", e.InstanceID)
	case !so || ctx.Err() != nil:
		l.move(e, program.Sleeping)
		return program.EngineFailedf("instance %s did not wake", e.InstanceID)
	case l.w.group != nil && l.w.lacksMemory(e):
		l.fails(e)
		return program.EngineFailedf("instance %s has no memory for a worker", e.InstanceID)
	}
	l.move(e, program.Awake)
	return nil
}

// lacksMemory reports whether another engine has the memory of a worker of an entry that wakes.
func (w *world) lacksMemory(e *engine) bool {
	for _, worker := range e.met {
		for _, other := range worker.l.on(worker.GPUUUIDs[0]) {
			if other != worker && !other.died && !other.slept && other.is(program.Starting, program.Awake, program.Stopping) {
				return true
			}
		}
	}
	return false
}

// allRun reports whether the workers that an entry has met are all that it needs, and run.
func (w *world) allRun(e *engine) bool {
	for index := 1; e.Rank != nil && index < e.Rank.Size; index++ {
		if worker := e.met[index]; worker == nil || !worker.runs() {
			return false
		}
	}
	return true
}

// meet has an entry meet the workers that look for it.
func (w *world) meet(e *engine) bool {
	for _, uid := range sorted(w.launchers) {
		for _, id := range sorted(w.launchers[uid].all) {
			worker := w.launchers[uid].all[id]
			if !worker.isWorker() || worker.entry != nil || worker.Rank.Entry != e.Rank.Entry || !worker.is(program.Awake) {
				continue
			}
			if e.met[worker.Rank.Index] == nil {
				e.met[worker.Rank.Index], worker.entry = worker, e
			}
		}
	}
	return w.allRun(e)
}

// comeUp is the start of an engine. The launcher knows no more of a worker than that it runs. An
// entry loads once it has met its workers; it never ends if one of them ends meanwhile.
func (l *launcher) comeUp(ctx context.Context, e *engine) error {
	if e.isWorker() {
		l.rest(ctx, e, l.w.Between("process", 20*time.Millisecond, 500*time.Millisecond))
	} else if e.Rank != nil {
		met := func() bool { return l.w.meet(e) }
		if l.await(ctx, e, program.Starting, time.Hour, met) {
			if st := e.start; st != nil {
				l.w.after(0, func() { l.w.loseSwap(st, program.Starting) })
			}
			l.rest(ctx, e, l.w.Between("load", 200*time.Millisecond, 8*time.Second))
			l.await(ctx, e, program.Starting, time.Hour, met)
		}
	}
	if !e.is(program.Starting) || ctx.Err() != nil {
		return program.EngineFailedf("instance %s did not start", e.InstanceID)
	}
	if is := func(model string) bool { return e.Args[0] == "org/"+model }; is(badModel) || is(halfModel) && e.isWorker() || is(loneModel) && e.Rank == nil {
		l.fails(e)
		return program.EngineFailedf("the engine of instance %s ended", e.InstanceID)
	}
	if l.w.failStarts > 0 {
		l.w.failStarts--
		l.fails(e)
		return program.EngineFailedf("the engine of instance %s ended", e.InstanceID)
	}
	l.move(e, program.Awake)
	return nil
}

// stop ends an instance.
func (l *launcher) stop(e *engine) {
	if e.gone {
		return
	}
	if !e.is(program.Stopping) {
		e.slept = e.is(program.Sleeping)
		l.move(e, program.Stopping)
	}
	d := l.w.Between("stop", 10*time.Millisecond, 300*time.Millisecond)
	if l.w.Chance("slow stop", 10) {
		d *= 60
	}
	l.rest(l.ctx, e, d)
	l.remove(e)
}

// on returns the instances on a GPU.
func (l *launcher) on(gpu string) (all []*engine) {
	for _, id := range sorted(l.all) {
		if slices.Contains(l.all[id].GPUUUIDs, gpu) {
			all = append(all, l.all[id])
		}
	}
	return all
}

// leasePorts leases ports for an instance that is yet to be created, or renews its lease.
func (l *launcher) leasePorts(id string, count int) launcherapi.PortLease {
	if e := l.all[id]; e != nil && e.Leased != nil {
		return launcherapi.PortLease{ID: id, Ports: e.Leased}
	}
	has := l.leases[id]
	if has == nil || time.Now().After(has.expires) {
		has = &lease{}
		for range count {
			l.w.ports++
			has.ports = append(has.ports, 20000+l.w.ports)
		}
		l.leases[id] = has
	}
	has.expires = time.Now().Add(leaseLifetime)
	return launcherapi.PortLease{ID: id, Ports: has.ports, ExpiresAt: has.expires}
}

// takePorts has an instance take its lease over.
func (l *launcher) takePorts(id string) []int {
	has := l.leases[id]
	delete(l.leases, id)
	if has == nil || time.Now().After(has.expires) {
		return nil
	}
	return has.ports
}
