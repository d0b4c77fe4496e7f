package ranks

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// launcherClient is the way of a controller process to a launcher.
type launcherClient struct {
	p        *process
	l        *launcher
	isGroups bool // the controller of ModelServings calls
}

// Provider returns how package binding asks a launcher.
func (p *process) Provider(key string) provider.Provider {
	if l := p.watched(key); l != nil {
		return &launcherClient{p: p, l: l}
	}
	return nil
}

// orders returns how the controller of ModelServings asks a launcher.
func (p *process) orders(key string) groups.Launcher {
	if l := p.watched(key); l != nil {
		return &launcherClient{p: p, l: l, isGroups: true}
	}
	return nil
}

func (p *process) watched(key string) *launcher {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.streams[key] == nil {
		return nil
	}
	return p.w.launchers[key]
}

// do calls the launcher. begin is called with the lock held; if it returns a channel, the answer
// comes once that is closed.
func (c *launcherClient) do(ctx context.Context, begin func() (wait <-chan struct{}, err error)) error {
	var wait, broken <-chan struct{}
	var late time.Duration
	c.p.w.locked(func() {
		if c.p.w.slowOrders > 0 {
			c.p.w.slowOrders--
			late = c.p.w.Between("slow order", 0, 4*time.Second)
		}
	})
	sleep(ctx, late)
	err := c.p.call(ctx, "launcher", func() error {
		broken = c.l.broken
		return nil
	})
	if err == nil {
		err = c.reach(ctx, broken)
	}
	if err != nil {
		return err
	}
	c.p.w.locked(func() {
		if c.l.dead || c.l.down {
			err = errReset
			return
		}
		wait, err = begin()
	})
	if err != nil {
		return err
	}
	if wait != nil {
		select {
		case <-wait:
		case <-broken:
		case <-ctx.Done():
		}
	}
	var lag time.Duration
	c.p.w.locked(func() { lag = c.p.w.Between("answer", 100*time.Microsecond, 5*time.Millisecond) })
	sleep(ctx, lag)
	return c.reach(ctx, broken)
}

var (
	errReset   = errors.New("cannot ask the launcher: connection reset")
	errRefused = errors.New("cannot ask the launcher: connection refused")
)

// reach waits until a packet has come through to the launcher, or back.
func (c *launcherClient) reach(ctx context.Context, broken <-chan struct{}) error {
	for {
		var down, silent bool
		c.p.w.locked(func() { down, silent = c.l.down || c.l.dead, c.l.silent })
		select {
		case <-broken:
			return errReset
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		switch {
		case down:
			return errRefused
		case !silent:
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// SwapOnce begins a swap and follows it to its end.
func (c *launcherClient) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	var s *swap
	var broken <-chan struct{}
	told := 0
	err := c.do(ctx, func() (_ <-chan struct{}, err error) {
		broken = c.l.broken
		if s, err = c.l.ask(key, req); err == nil && s.ended {
			told = len(s.progress) // of a swap that is over only its result is known
		}
		return nil, err
	})
	if err != nil {
		return launcherapi.SwapResult{}, err
	}
	for n := told; ; {
		var news []launcherapi.SwapProgress
		var changed chan struct{}
		var over bool
		var lag time.Duration
		c.p.w.locked(func() {
			news, changed, over = s.progress[n:], s.changed, s.ended
			lag = c.p.w.Between("progress", 100*time.Microsecond, 10*time.Millisecond)
		})
		sleep(ctx, lag)
		if err := c.reach(ctx, broken); err != nil {
			return launcherapi.SwapResult{}, err
		}
		for _, p := range news {
			if progress != nil {
				progress(p)
			}
		}
		n += len(news)
		if over && len(news) == 0 {
			return s.result, s.err
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-broken:
		case <-ctx.Done():
		}
	}
}

// CallOff cancels the swap of a key while it waits.
func (c *launcherClient) CallOff(ctx context.Context, key string) error {
	return c.do(ctx, func() (<-chan struct{}, error) {
		switch s := c.l.swaps[key]; {
		case s == nil:
			c.l.early[key] = true
			return nil, program.NotFound(key)
		case s.cancelled:
			return nil, nil
		case s.begun || s.ended:
			return nil, program.Conflictf("%s has begun", s.id)
		default:
			s.cancel()
			return nil, nil
		}
	})
}

func (s *swap) cancel() {
	s.l.w.note("launcher %s: %s is cancelled", s.l.pod, s.id)
	s.cancelled = true
	s.changes()
}

// onSwap calls do with a swap.
func (c *launcherClient) onSwap(ctx context.Context, id string, do func(*swap) error) (launcherapi.Swap, error) {
	return launcherapi.Swap{SwapID: id}, c.do(ctx, func() (<-chan struct{}, error) {
		for _, key := range sorted(c.l.swaps) {
			if s := c.l.swaps[key]; s.id == id {
				return nil, do(s)
			}
		}
		return nil, program.NotFound(id)
	})
}

// GoSwap has a swap begin that has prepared.
func (c *launcherClient) GoSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.onSwap(ctx, id, func(s *swap) error {
		switch {
		case s.ended:
			return s.err
		case s.cancelled:
			return errCancelled
		case s.refusal != nil:
			return s.refusal
		}
		s.l.w.note("launcher %s: go for %s", s.l.pod, s.id)
		s.goAsked = true
		s.changes()
		return nil
	})
}

// CommitSwap opens the gate of a swap that is healthy.
func (c *launcherClient) CommitSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.onSwap(ctx, id, func(s *swap) error {
		switch {
		case s.ended:
			return s.err
		case s.undoAsked:
			return program.Conflictf("cannot commit %s: it is being undone", s.id)
		case !s.committed && !s.atCommit:
			return program.Conflictf("cannot commit %s: it is not healthy", s.id)
		case !s.committed:
			s.l.w.note("launcher %s: commit of %s", s.l.pod, s.id)
			s.committed = true
			s.l.w.truth.commits(s)
			close(s.commit)
		}
		return nil
	})
}

// cameToNothing reports whether a swap was refused or has failed.
func (s *swap) cameToNothing() bool { return s.refusal != nil || s.ended && !s.done }

// UndoSwap undoes a swap, or cancels it if it waits.
func (c *launcherClient) UndoSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.onSwap(ctx, id, func(s *swap) error {
		c.l.w.truth.stops(s)
		switch {
		case s.cancelled || s.cameToNothing():
			return nil
		case s.ended || s.committed:
			return program.Conflictf("cannot undo %s: it is committed", s.id)
		case !s.begun:
			s.cancel()
			return nil
		}
		s.l.w.note("launcher %s: undo of %s is asked for", s.l.pod, s.id)
		s.undoAsked, s.atCommit = true, false
		s.breakOff(errUndoAsked)
		return nil
	})
}

// LeasePorts leases ports.
func (c *launcherClient) LeasePorts(ctx context.Context, id string, count int) (got launcherapi.PortLease, err error) {
	err = c.do(ctx, func() (<-chan struct{}, error) {
		got = c.l.leasePorts(id, count)
		return nil, nil
	})
	return got, err
}

// verb begins something with an instance.
func (c *launcherClient) verb(ctx context.Context, id string, do func(*engine) (run func() error, err error)) (view launcherapi.Instance, err error) {
	var failed error
	var e *engine
	err = c.do(ctx, func() (<-chan struct{}, error) {
		if e = c.l.all[id]; e == nil {
			return nil, program.NotFound(id)
		}
		run, err := do(e)
		if err != nil || run == nil {
			return nil, err
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.p.w.locked(func() { failed = run() })
		}()
		return over, nil
	})
	if err == nil {
		c.p.w.locked(func() { view, err = e.Instance, failed })
	}
	return view, err
}

// Sleep puts an instance to sleep.
func (c *launcherClient) Sleep(ctx context.Context, id string, _ launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(e *engine) (func() error, error) {
		switch {
		case e.is(program.Sleeping):
			return nil, nil
		case e.claim != nil || !e.is(program.Awake) || e.isWorker() && !e.confirmed:
			return nil, program.Conflictf("cannot sleep: instance %s is %s", id, e.State)
		}
		return func() error { return c.l.fallAsleep(c.l.ctx, e) }, nil
	})
}

// Delete ends an instance.
func (c *launcherClient) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return c.verb(ctx, id, func(e *engine) (func() error, error) {
		if c.isGroups {
			c.l.w.truth.deletes(e)
		}
		return func() error { c.l.stop(e); return nil }, nil
	})
}
