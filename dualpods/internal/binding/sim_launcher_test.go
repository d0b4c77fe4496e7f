package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	dead   bool // for good
	down   bool // it is being started again
	silent bool
	broken chan struct{} // closed when connections break off
	rev    uint64
	port   int
	all    map[string]*simInstance
	swaps  map[string]*simSwap
	turns  map[string]*simSwap // by GPU
}

type simInstance struct {
	launcherapi.Instance
	changed chan struct{} // closed with the next change
	gone    bool
	awake   time.Time // since when; zero: it is not
}

type simSwap struct {
	id      string
	by      *incarnation // which asked for it first
	record  string       // the idempotency key without the attempt
	request string
	over    chan struct{}
	ended   bool
	at      time.Time // of its end
	begun   bool      // admitted
	off     bool      // called off before
	result  launcherapi.SwapResult
	err     error
}

func (s *sim) newLauncher(key, pod, node, ip string, gpus []string) *simLauncher {
	l := &simLauncher{
		s: s, key: key, pod: pod, node: node, ip: ip, gpus: gpus, port: 40000, broken: make(chan struct{}),
		all: map[string]*simInstance{}, swaps: map[string]*simSwap{}, turns: map[string]*simSwap{},
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
		if i.State == string(launcher.Failed) || i.State == string(launcher.Stopping) {
			l.s.died(l, i, "instance "+i.InstanceID+" is "+i.State)
		}
		i.awake = time.Time{}
		if i.State == string(launcher.Awake) {
			i.awake = time.Now()
		}
	}
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

// occupies says that an instance has its GPUs' memory.
func occupies(i *simInstance) bool {
	switch launcher.State(i.State) {
	case launcher.Starting, launcher.Awake, launcher.FallingAsleep, launcher.Waking, launcher.Stopping:
		return true
	default:
		return false
	}
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(g string) bool { return slices.Contains(b, g) })
}

// on are the instances on some GPUs, sorted.
func (l *simLauncher) on(gpus []string) (all []*simInstance) {
	for _, id := range sortedKeys(l.all) {
		if i := l.all[id]; overlap(i.GPUUUIDs, gpus) {
			all = append(all, i)
		}
	}
	return all
}

// memoryFree says that nobody but id has memory of those GPUs, on any launcher
// of the node.
func (l *simLauncher) memoryFree(id string, gpus []string) bool {
	for _, other := range l.s.launchers {
		if other.node != l.node || other.dead {
			continue
		}
		for _, i := range other.on(gpus) {
			if occupies(i) && (other != l || i.InstanceID != id) {
				return false
			}
		}
	}
	return true
}

// swap is POST /v2/vllm/swap; it comes with the lock held and leaves without.
func (l *simLauncher) begin(inc *incarnation, key string, req launcherapi.SwapRequest) (*simSwap, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if earlier := l.swaps[key]; earlier != nil {
		if earlier.request != string(text) {
			l.s.violated("the key %s is used for two requests: %s and %s", key, earlier.request, text)
			return nil, launcher.Conflictf("the key %s was used for another request", key)
		}
		return earlier, nil
	}
	l.s.asked(inc, l, key, req)
	if n := slices.IndexFunc(req.GPUUUIDs, func(g string) bool { return !slices.Contains(l.gpus, g) }); n >= 0 {
		return nil, launcher.Invalidf("body.gpu_uuids", "unknown GPU UUID %q", req.GPUUUIDs[n])
	}
	if req.In.ID != "" && len(req.In.Args) == 0 {
		l.s.violated("the swap %s asks for an instance of nothing", key)
		return nil, launcher.Invalidf("body.in", "no options and no args")
	}
	if id := req.In.InstanceID; id != "" && l.all[id] == nil {
		return nil, launcher.NotFound(id)
	}
	sw := &simSwap{
		id: fmt.Sprintf("swap-%d", len(l.swaps)), by: inc, record: key[:strings.LastIndex(key, ".")], request: string(text), over: make(chan struct{}),
	}
	l.swaps[key] = sw
	go func() {
		err := l.run(sw, req)
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		for _, id := range sortedKeys(l.all) {
			if i := l.all[id]; i.SwapID == sw.id {
				l.set(i, func(v *launcherapi.Instance) { v.SwapID = "" })
			}
		}
		maps.DeleteFunc(l.turns, func(_ string, t *simSwap) bool { return t == sw })
		sw.err, sw.ended, sw.at = err, true, time.Now()
		if i := l.all[req.In.InstanceID+req.In.ID]; i != nil {
			view := i.Instance
			sw.result.In = &view
		}
		l.s.note("launcher %s: %s of %s is over: %v", l.pod, sw.id, key, err)
		close(sw.over)
	}()
	return sw, nil
}

// admit takes the GPUs' turn once nobody on them moves.
func (l *simLauncher) admit(sw *simSwap, req launcherapi.SwapRequest) (in *simInstance, out []*simInstance, err error) {
	id := req.In.InstanceID + req.In.ID
	for limit := time.Now().Add(time.Minute); ; {
		l.s.mu.Lock()
		if sw.off {
			l.s.mu.Unlock()
			return nil, nil, launcher.Conflictf("the swap was called off while it waited for its turn")
		}
		busy := false
		for _, gpu := range req.GPUUUIDs {
			busy = busy || l.turns[gpu] != nil
		}
		for _, i := range l.on(req.GPUUUIDs) {
			busy = busy || occupies(i) && i.State != string(launcher.Awake)
		}
		if !busy && !l.dead {
			sw.begun = true
			for _, gpu := range req.GPUUUIDs {
				l.turns[gpu] = sw
			}
			for _, i := range l.on(req.GPUUUIDs) {
				if i.InstanceID != id && i.State == string(launcher.Awake) {
					l.s.swappedOut(l, i, id)
					out = append(out, i)
					l.set(i, func(v *launcherapi.Instance) { v.SwapID = sw.id })
				}
			}
			in = l.all[id]
			switch {
			case in == nil && req.In.ID == "":
				err = launcher.NotFound(id)
			case in != nil && req.In.ID != "":
				in, err = nil, launcher.Existsf("Instance with ID %s already exists", id)
			case in != nil && in.State != string(launcher.Awake) && in.State != string(launcher.Sleeping):
				err = launcher.Conflictf("instance %s is %s", id, in.State)
			case in != nil:
				l.set(in, func(v *launcherapi.Instance) { v.SwapID = sw.id })
			}
			l.s.mu.Unlock()
			return in, out, err
		}
		pause := l.s.between("turn", 5*time.Millisecond, 30*time.Millisecond)
		dead := l.dead
		l.s.mu.Unlock()
		if dead || time.Now().After(limit) {
			return nil, nil, launcher.Unavailablef("the launcher is closing, or its GPUs are busy")
		}
		sleep(l.ctx, pause)
	}
}

func (l *simLauncher) run(sw *simSwap, req launcherapi.SwapRequest) error {
	in, out, err := l.admit(sw, req)
	if err != nil {
		return err
	}
	for _, i := range out {
		l.fallAsleep(i)
	}
	var evicting time.Duration
	l.s.locked(func() {
		evicting = l.s.between("evict", time.Millisecond, 2*time.Second) * time.Duration(l.s.draw("evicts", 4)/3)
	})
	sleep(l.ctx, evicting)
	err = l.bringIn(sw, req, in)
	if err == nil {
		return nil
	}
	l.s.mu.Lock()
	if in = l.all[req.In.ID]; in != nil && in.SwapID == sw.id {
		l.remove(in)
	} else if in = l.all[req.In.InstanceID]; in != nil && in.State == string(launcher.Awake) {
		l.move(in, launcher.Sleeping, "")
	}
	l.s.mu.Unlock()
	for _, i := range out {
		l.wakeUp(i)
	}
	return err
}

// bringIn wakes or starts the one that comes in.
func (l *simLauncher) bringIn(sw *simSwap, req launcherapi.SwapRequest, in *simInstance) error {
	s := l.s
	id := req.In.InstanceID + req.In.ID
	s.mu.Lock()
	for limit := time.Now().Add(10 * time.Second); !l.memoryFree(id, req.GPUUUIDs); s.mu.Lock() {
		s.mu.Unlock()
		if l.ctx.Err() != nil || time.Now().After(limit) {
			return launcher.EngineFailedf("there is no free memory")
		}
		sleep(l.ctx, 20*time.Millisecond)
	}
	if in != nil {
		awake := in.State == string(launcher.Awake)
		s.mu.Unlock()
		if awake || l.wakeUp(in) {
			return nil
		}
		return launcher.EngineFailedf("instance %s did not wake", id)
	}
	l.port++
	in = &simInstance{changed: make(chan struct{}), Instance: launcherapi.Instance{
		InstanceID: id, State: string(launcher.Starting), GPUUUIDs: req.GPUUUIDs, Args: req.In.Args,
		Annotations: req.In.Annotations, Port: l.port, SwapID: sw.id,
	}}
	l.all[id] = in
	l.set(in, func(*launcherapi.Instance) {})
	s.note("launcher %s: %s is starting", l.pod, id)
	d := s.between("start", 200*time.Millisecond, 8*time.Second)
	s.mu.Unlock()
	l.rest(in, d)
	if l.finish(in, launcher.Starting, launcher.Awake) {
		return nil
	}
	return launcher.EngineFailedf("instance %s did not start", id)
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
	l.s.mu.Unlock()
	l.rest(i, d)
	return l.finish(i, launcher.FallingAsleep, launcher.Sleeping)
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
