package binding

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// simLauncherClient is the way of a controller process to a launcher.
type simLauncherClient struct {
	inc *incarnation
	l   *simLauncher
	// late is how much longer it takes to connect to the launcher, and waits how long
	// a call that has come there is left alone.
	late, waits time.Duration
}

// call reaches the launcher, has it begin something, and waits for that.
func (c simLauncherClient) call(ctx context.Context, begin func() (wait <-chan struct{}, err error)) error {
	s := c.inc.s
	var wait, broken <-chan struct{}
	s.locked(func() { s.callsLauncher(c.inc, c.l) })
	sleep(ctx, c.late)
	err := c.inc.call(ctx, "launcher", func() error {
		broken = c.l.broken
		return nil
	})
	if err == nil {
		err = c.heard(ctx, broken)
	}
	if err != nil {
		return err
	}
	if c.waits > 0 {
		select {
		case <-broken:
			return errors.New("cannot ask the launcher: connection reset")
		case <-time.After(c.waits):
		}
	}
	s.locked(func() {
		if c.l.dead || c.waits > 0 && c.inc.dead { // what a controller that died has sent comes at once or never
			err = errors.New("cannot ask the launcher: connection reset")
			return
		}
		wait, err = begin()
	})
	if err != nil {
		return err
	}
	select {
	case <-wait:
	case <-broken:
	case <-ctx.Done():
	}
	var lag time.Duration
	s.locked(func() { lag = s.between("answer", 100*time.Microsecond, 5*time.Millisecond) })
	sleep(ctx, lag)
	return c.heard(ctx, broken)
}

// heard waits until a packet has come through to a launcher, or back.
func (c simLauncherClient) heard(ctx context.Context, broken <-chan struct{}) error {
	for {
		var down, silent bool
		c.inc.s.locked(func() { down, silent = c.l.down || c.l.dead, c.l.silent })
		select {
		case <-broken:
			return errors.New("cannot ask the launcher: connection reset")
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		switch {
		case down:
			return errors.New("cannot ask the launcher: connection refused")
		case !silent:
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

func (c simLauncherClient) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, _ func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	var sw *simSwap
	c.inc.s.locked(func() {
		if c.late = next(&c.inc.s.slowCalls); c.late > 0 && c.inc.s.chance("it waits at the launcher", 50) {
			c.late, c.waits = 0, c.late
		}
	})
	err := c.call(ctx, func() (_ <-chan struct{}, err error) {
		if sw, err = c.l.begin(c.inc, key, req); err != nil {
			return nil, err
		}
		return sw.over, nil
	})
	if err != nil {
		return launcherapi.SwapResult{}, err
	}
	return sw.result, sw.err
}

// next takes the first of some times; 0 where there is none.
func next(times *[]time.Duration) (d time.Duration) {
	if len(*times) > 0 {
		d, *times = (*times)[0], (*times)[1:]
	}
	return d
}

// slowOrder is how much longer a call other than a swap takes to come to its launcher.
func (s *sim) slowOrder() (d time.Duration) {
	s.locked(func() {
		if d = next(&s.slowOrders); d > 0 {
			s.disturb(d)
		}
	})
	return d
}

// verb begins something with an instance, and waits for its end.
func (c simLauncherClient) verb(ctx context.Context, id string, do func(*simInstance) (func() error, error)) (view launcherapi.Instance, err error) {
	var i *simInstance
	var failed error
	c.late = c.inc.s.slowOrder()
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
			failed = run()
		}()
		return over, nil
	})
	if err == nil {
		c.inc.s.locked(func() { view = i.Instance })
		err = failed
	}
	return view, err
}

func (c simLauncherClient) CallOff(ctx context.Context, key string) error {
	c.late = c.inc.s.slowOrder()
	return c.call(ctx, func() (<-chan struct{}, error) {
		sw := c.l.swaps[key]
		switch {
		case sw == nil:
			c.l.early[key] = true
			return nil, launcher.NotFound(key)
		case sw.begun:
			return nil, launcher.Conflictf("%s has begun", sw.id)
		}
		sw.off = true
		c.l.s.note("launcher %s: %s of %s is called off", c.l.pod, sw.id, key)
		at := make(chan struct{})
		close(at)
		return at, nil
	})
}

func (c simLauncherClient) Sleep(ctx context.Context, id string, _ launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(i *simInstance) (func() error, error) {
		switch {
		case i.State == string(launcher.Sleeping):
			return func() error { return nil }, nil
		case i.SwapID != "" || i.State != string(launcher.Awake):
			return nil, launcher.Conflictf("instance %s is %s, claimed by %q", id, i.State, i.SwapID)
		}
		c.inc.s.putToSleep(c.l, i)
		return func() error {
			if !c.l.fallAsleep(i) && i.sleepless {
				return refusesToSleep(i)
			}
			return nil
		}, nil
	})
}

func (c simLauncherClient) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(i *simInstance) (func() error, error) {
		c.inc.s.putToSleep(c.l, i)
		return func() error {
			c.l.stop(i)
			return nil
		}, nil
	})
}

// simView is a watch stream of a controller process.
type simView struct {
	nodeview.View
	target nodeview.Target
	stream int                  // counts: what belongs to an earlier one is dropped
	since  time.Time            // it is connected
	told   map[string]time.Time // when it last told of an instance
	last   time.Time
	// modelsAt is when it last told of models, or began to be asked for them.
	modelsAt time.Time
}

// Watch begins a stream.
func (inc *incarnation) Watch(key string, target nodeview.Target) {
	inc.s.mu.Lock()
	defer inc.s.mu.Unlock()
	if strings.HasPrefix(key, strangerPrefix) {
		inc.watchStranger(key, target)
		return
	}
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
			v.since, v.told = time.Now(), map[string]time.Time{}
			v.hears(l)
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
	if !l.silent {
		close(l.broken)
		l.broken = make(chan struct{})
		for _, sw := range l.swaps {
			sw.by = nil // nobody hears of it any more
		}
	}
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
		v.told[event.Object.InstanceID] = time.Now()
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

// One is what is known of a launcher, with one of its instances.
func (inc *incarnation) One(key, id string) nodeview.View {
	view := inc.View(key)
	return view.One(id)
}

// Pick is what is known of a launcher, with some of its instances.
func (inc *incarnation) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := inc.View(key)
	return view.Pick(keep)
}

// Client asks a launcher.
func (inc *incarnation) Provider(key string) provider.Provider {
	inc.s.mu.Lock()
	defer inc.s.mu.Unlock()
	if inc.views[key] != nil && strings.HasPrefix(key, strangerPrefix) {
		return simLiar{}
	}
	if v := inc.views[key]; v == nil || inc.s.launchers[key] == nil {
		return nil
	}
	return simLauncherClient{inc: inc, l: inc.s.launchers[key]}
}
