package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/nodeview"
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
}

type simSwap struct {
	id      string
	request string
	over    chan struct{}
	result  launcherapi.SwapResult
	err     error
}

func (s *sim) newLauncher(key, pod, node, ip string, gpus []string) *simLauncher {
	l := &simLauncher{
		s: s, key: key, pod: pod, node: node, ip: ip, gpus: gpus, port: 40000,
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
func (l *simLauncher) begin(key string, req launcherapi.SwapRequest) (*simSwap, error) {
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
	if id := req.In.InstanceID; id != "" && l.all[id] == nil {
		return nil, launcher.NotFound(id)
	}
	if id := req.In.ID; id != "" && l.all[id] != nil {
		return nil, launcher.Conflictf("instance %s is there already", id)
	}
	sw := &simSwap{id: fmt.Sprintf("swap-%d", len(l.swaps)), request: string(text), over: make(chan struct{})}
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
		sw.err = err
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
		busy := false
		for _, gpu := range req.GPUUUIDs {
			busy = busy || l.turns[gpu] != nil
		}
		for _, i := range l.on(req.GPUUUIDs) {
			busy = busy || occupies(i) && i.State != string(launcher.Awake)
		}
		if !busy && !l.dead {
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
			return nil, nil, errors.New("the launcher is closing, or its GPUs are busy")
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
	for limit := time.Now().Add(10 * time.Second); ; {
		s.mu.Lock()
		free := l.memoryFree(id, req.GPUUUIDs)
		s.mu.Unlock()
		if free {
			break
		}
		if l.ctx.Err() != nil || time.Now().After(limit) {
			return errors.New("there is no free memory")
		}
		sleep(l.ctx, 20*time.Millisecond)
	}
	if in != nil {
		s.mu.Lock()
		awake := in.State == string(launcher.Awake)
		s.mu.Unlock()
		if awake || l.wakeUp(in) {
			return nil
		}
		return fmt.Errorf("instance %s did not wake", id)
	}
	s.mu.Lock()
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
	return fmt.Errorf("instance %s did not start", id)
}

func (l *simLauncher) fallAsleep(i *simInstance) bool {
	l.s.mu.Lock()
	if i.gone || i.State != string(launcher.Awake) {
		l.s.mu.Unlock()
		return false
	}
	l.move(i, launcher.FallingAsleep, "")
	d := l.s.between("fall asleep", 20*time.Millisecond, 500*time.Millisecond)
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

// simLauncherClient is the way of a controller process to a launcher.
type simLauncherClient struct {
	inc *incarnation
	l   *simLauncher
}

// call reaches the launcher, has it begin something, and waits for that.
func (c simLauncherClient) call(ctx context.Context, begin func() (wait <-chan struct{}, err error)) error {
	s := c.inc.s
	var wait <-chan struct{}
	err := c.inc.call(ctx, "launcher", func() (err error) {
		if !c.l.reachable() {
			return errors.New("cannot ask the launcher: connection refused")
		}
		wait, err = begin()
		return err
	})
	if err != nil || wait == nil {
		return err
	}
	select {
	case <-wait:
	case <-ctx.Done():
		return ctx.Err()
	}
	var lag time.Duration
	s.locked(func() {
		lag = s.between("answer", 100*time.Microsecond, 5*time.Millisecond)
		if !c.l.reachable() {
			err = errors.New("cannot ask the launcher: connection reset")
		}
	})
	sleep(ctx, lag)
	return err
}

func (c simLauncherClient) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, _ func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	var sw *simSwap
	err := c.call(ctx, func() (_ <-chan struct{}, err error) {
		if sw, err = c.l.begin(key, req); err != nil {
			return nil, err
		}
		return sw.over, nil
	})
	if err != nil {
		return launcherapi.SwapResult{}, err
	}
	if sw.err != nil && launcher.CodeOf(sw.err) == "" { // what comes as an answer has a code
		return sw.result, &launcher.Error{Code: launcherapi.CodeEngineFailed, Detail: sw.err.Error()}
	}
	return sw.result, sw.err
}

// verb begins something with an instance, and waits for its end.
func (c simLauncherClient) verb(ctx context.Context, id string, do func(*simInstance) (func(), error)) (view launcherapi.Instance, err error) {
	var i *simInstance
	err = c.call(ctx, func() (<-chan struct{}, error) {
		if i = c.l.all[id]; i == nil {
			return nil, launcher.NotFound(id)
		}
		run, err := do(i)
		if err != nil {
			return nil, err
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			run()
		}()
		return over, nil
	})
	if err == nil {
		c.inc.s.locked(func() { view = i.Instance })
	}
	return view, err
}

func (c simLauncherClient) Sleep(ctx context.Context, id string, _ launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(i *simInstance) (func(), error) {
		switch {
		case i.State == string(launcher.Sleeping):
			return func() {}, nil
		case i.SwapID != "" || i.State != string(launcher.Awake):
			return nil, launcher.Conflictf("instance %s is %s, claimed by %q", id, i.State, i.SwapID)
		}
		c.inc.s.putToSleep(c.l, i)
		return func() { c.l.fallAsleep(i) }, nil
	})
}

func (c simLauncherClient) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(i *simInstance) (func(), error) {
		c.inc.s.putToSleep(c.l, i)
		return func() { c.l.stop(i) }, nil
	})
}

// simView is a watch stream of a controller process.
type simView struct {
	nodeview.View
	target nodeview.Target
	stream int // counts: what belongs to an earlier one is dropped
	asked  bool
	last   time.Time
}

// Watch begins a stream.
func (inc *incarnation) Watch(key string, target nodeview.Target) {
	inc.s.mu.Lock()
	defer inc.s.mu.Unlock()
	if v := inc.views[key]; v != nil && v.target == target || inc.dead {
		return
	}
	v := &simView{target: target, View: nodeview.View{Lost: time.Now(), Why: "it has not answered yet"}}
	inc.views[key] = v
	inc.connect(key, v, inc.s.between("connect", time.Millisecond, 30*time.Millisecond))
}

func (inc *incarnation) connect(key string, v *simView, d time.Duration) {
	v.stream++
	stream := v.stream
	inc.s.after(d, func() {
		l := inc.s.launchers[key]
		switch {
		case inc.views[key] != v || v.stream != stream || inc.dead:
		case l == nil || !l.reachable():
			inc.connect(key, v, time.Second)
		default:
			v.View = nodeview.View{Connected: true, GPUs: l.gpus, Instances: map[string]launcherapi.Instance{}, Revision: l.rev}
			v.asked = true
			for id, i := range l.all {
				v.Instances[id] = i.Instance
			}
			inc.changed(key)
		}
	})
}

func (inc *incarnation) changed(key string) {
	inc.ctrl.mu.Lock()
	node, ok := inc.ctrl.owner[key]
	inc.ctrl.mu.Unlock()
	if ok {
		inc.enqueue(node)
	}
}

// lose breaks the streams of a launcher off; the watcher sees that after d.
func (l *simLauncher) lose(d time.Duration) {
	inc := l.s.inc
	v := inc.views[l.key]
	if v == nil || !v.Connected {
		return
	}
	v.stream++
	stream := v.stream
	l.s.after(d, func() {
		if v.stream != stream {
			return
		}
		v.Connected, v.Lost, v.Why = false, time.Now(), "the stream broke off"
		inc.changed(l.key)
		inc.connect(l.key, v, 100*time.Millisecond)
	})
}

// tell brings an event to the stream that is open.
func (l *simLauncher) tell(event launcherapi.WatchEvent) {
	inc := l.s.inc
	if inc == nil {
		return
	}
	v := inc.views[l.key]
	if v == nil || !v.Connected || !l.reachable() {
		return
	}
	lag := l.s.between("stream", 100*time.Microsecond, 8*time.Millisecond)
	if l.s.chance("long stream", 5) {
		lag *= 20
	}
	at, stream := time.Now().Add(lag), v.stream
	if !at.After(v.last) {
		at = v.last.Add(time.Microsecond)
	}
	v.last = at
	l.s.after(time.Until(at), func() {
		if v.stream != stream {
			return
		}
		v.Revision = max(v.Revision, event.Object.Revision)
		if event.Type == launcherapi.EventDeleted {
			delete(v.Instances, event.Object.InstanceID)
		} else {
			v.Instances[event.Object.InstanceID] = event.Object
		}
		inc.changed(l.key)
	})
}

// Forget ends a stream.
func (inc *incarnation) Forget(key string) {
	inc.s.locked(func() { delete(inc.views, key) })
}

// View is what is known of a launcher.
func (inc *incarnation) View(key string) nodeview.View {
	inc.s.mu.Lock()
	defer inc.s.mu.Unlock()
	v := inc.views[key]
	if v == nil {
		return nodeview.View{}
	}
	view := v.View
	view.Instances = maps.Clone(view.Instances)
	return view
}

// Client asks a launcher.
func (inc *incarnation) Client(key string) LauncherClient {
	inc.s.mu.Lock()
	defer inc.s.mu.Unlock()
	if v := inc.views[key]; v == nil || inc.s.launchers[key] == nil {
		return nil
	}
	return simLauncherClient{inc, inc.s.launchers[key]}
}
