package binding

import (
	"context"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// simLauncher is a launcher and its engines.
type simLauncher struct {
	s      *sim
	key    string // UID of its Pod
	pod    string
	node   string
	ip     string
	gpus   []string
	ctx    context.Context // the life of the launcher
	end    context.CancelFunc
	dead   bool // for good, or until its container is started again
	ended  bool // its container, which is started again later
	down   bool // it is being started again
	silent bool
	broken chan struct{} // closed when connections break off
	rev    uint64
	port   int
	all    map[string]*simInstance
	swaps  map[string]*simSwap
	early  map[string]bool     // keys that were called off before any swap came with them
	turns  map[string]*simSwap // by GPU
	queue  []*simSwap          // those that wait for theirs, in the order of asking
}

type simInstance struct {
	launcherapi.Instance
	changed   chan struct{} // closed with the next change
	gone      bool
	sleepless bool      // its engine refuses to sleep
	byHand    bool      // somebody woke it at its launcher since it slept last
	awake     time.Time // since when; zero: it is not
	up        time.Time // since when it has its GPUs' memory; zero: it has not
	since     time.Time // of the last change
	residue   uint64    // what it holds of each GPU while it sleeps
	holds     uint64    // and now
}

func (s *sim) newLauncher(key, pod, node, ip string, gpus []string) *simLauncher {
	l := &simLauncher{
		s: s, key: key, pod: pod, node: node, ip: ip, gpus: gpus, port: 40000, broken: make(chan struct{}),
		all: map[string]*simInstance{}, swaps: map[string]*simSwap{}, early: map[string]bool{}, turns: map[string]*simSwap{},
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	s.launchers[key] = l
	return l
}

func (l *simLauncher) reachable() bool { return !l.dead && !l.down && !l.silent }

// set changes an instance, and tells those who watch.
func (l *simLauncher) set(i *simInstance, change func(*launcherapi.Instance)) {
	state := i.State
	change(&i.Instance)
	if state != i.State {
		i.StateSince = time.Now()
		if i.State == string(launcher.Failed) || i.State == string(launcher.Stopping) {
			l.s.died(l, i, "instance "+i.InstanceID+" is "+i.State)
		}
		i.awake = time.Time{}
		if i.State == string(launcher.Awake) {
			i.awake = time.Now()
		}
		i.weigh(l.s.awake)
	}
	i.since = time.Now()
	l.rev++
	i.Revision = l.rev
	close(i.changed)
	i.changed = make(chan struct{})
	if state != i.State {
		l.s.note("launcher %s: %s is %s", l.pod, i.InstanceID, i.State)
	}
	l.tell(launcherapi.WatchEvent{Type: launcherapi.EventUpdated, Object: i.Instance})
}

func (l *simLauncher) move(i *simInstance, state launcher.State, reason string) {
	l.set(i, func(v *launcherapi.Instance) { v.State, v.Reason = string(state), reason })
}

func (l *simLauncher) remove(i *simInstance) {
	if i.gone {
		return
	}
	i.gone = true
	delete(l.all, i.InstanceID)
	l.rev++
	i.Revision = l.rev
	close(i.changed)
	i.changed = make(chan struct{})
	l.s.note("launcher %s: %s is gone", l.pod, i.InstanceID)
	l.tell(launcherapi.WatchEvent{Type: launcherapi.EventDeleted, Object: i.Instance})
}

// rest waits for d, or until the instance changes. The lock is not held.
func (l *simLauncher) rest(i *simInstance, d time.Duration) {
	l.s.mu.Lock()
	changed := i.changed
	l.s.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-l.ctx.Done():
	}
}

// finish ends what an instance is doing, unless something has come in between.
func (l *simLauncher) finish(i *simInstance, from, to launcher.State) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.dead || i.gone || i.State != string(from) {
		return false
	}
	reason := ""
	if from == launcher.Starting && l.s.failStart > 0 {
		l.s.failStart--
		to, reason = launcher.Failed, "the engine ended"
	}
	l.move(i, to, reason)
	if from == launcher.Starting && to == launcher.Awake {
		l.s.startedUp(l, i)
	}
	l.s.check()
	return i.State == string(to) && to != launcher.Failed
}

func (l *simLauncher) fallAsleep(i *simInstance) bool {
	l.s.mu.Lock()
	if i.gone || i.State != string(launcher.Awake) {
		l.s.mu.Unlock()
		return false
	}
	l.move(i, launcher.FallingAsleep, "")
	d := l.s.between("fall asleep", 20*time.Millisecond, 500*time.Millisecond)
	if l.s.chance("first sleep", 15) {
		d *= 12
	}
	to := launcher.Sleeping
	if i.sleepless {
		to = launcher.Awake
	}
	l.s.mu.Unlock()
	l.rest(i, d)
	return l.finish(i, launcher.FallingAsleep, to) && to == launcher.Sleeping
}

func refusesToSleep(i *simInstance) error {
	return launcher.EngineFailedf("instance %s is awake, not sleeping: its engine refuses", i.InstanceID)
}

func (l *simLauncher) wakeUp(i *simInstance) bool {
	l.s.mu.Lock()
	if i.gone || i.State != string(launcher.Sleeping) || !l.memoryFree(i.InstanceID, i.GPUUUIDs) {
		l.s.mu.Unlock()
		return false
	}
	l.move(i, launcher.Waking, "")
	d := l.s.between("wake", 20*time.Millisecond, 300*time.Millisecond)
	l.s.mu.Unlock()
	l.rest(i, d)
	return l.finish(i, launcher.Waking, launcher.Awake)
}

// wakeByHand wakes an instance that no requester is bound to.
func (l *simLauncher) wakeByHand(i *simInstance) {
	l.s.locked(func() { i.byHand = true })
	if !l.wakeUp(i) {
		l.s.locked(func() { i.byHand = false })
	}
}

// stop ends an instance.
func (l *simLauncher) stop(i *simInstance) {
	l.s.mu.Lock()
	if i.gone {
		l.s.mu.Unlock()
		return
	}
	if i.State != string(launcher.Stopping) {
		l.move(i, launcher.Stopping, "")
	}
	d := l.s.between("stop", 10*time.Millisecond, 300*time.Millisecond)
	l.s.mu.Unlock()
	l.rest(i, d)
	l.s.locked(func() { l.remove(i) })
}
