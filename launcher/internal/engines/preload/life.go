package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// A preloader that ended is started again after a back-off, which doubles each time
// within these bounds. After a preloader has served for longestBackOff, the back-off
// begins with the shortest again.
const (
	shortestBackOff      = time.Second
	longestBackOff       = 5 * time.Minute
	housekeepingInterval = 15 * time.Second
)

// keepRunning starts a preloader's process again whenever it ends, until ctx ends.
func (p *Pool) keepRunning(ctx context.Context, l *preloader) {
	defer l.cancel()
	defer os.Remove(p.logPath(l)) // an error means that the log was never made
	for ctx.Err() == nil {
		served, lasted, err := p.runOnce(ctx, l)
		if err := p.endProcess(l); err != nil {
			p.opts.Logger.Error("cannot end a preloader", "preloader", l.name, "error", err)
		}
		if ctx.Err() != nil {
			return
		}
		pause := p.recordFailure(l, served, lasted, err)
		refused, is := errors.AsType[*refusal](err)
		if is && refused.lasting {
			p.opts.Logger.Warn("a preloader can never fork this engine; engines are started by exec until another engine is installed", "preloader", l.name, "reason", err)
			p.awaitChange(ctx, refused.by, nil)
			continue
		}
		p.opts.Logger.Warn("a preloader ended; engines are started by exec meanwhile", "preloader", l.name, "reason", err, "again_in", pause)
		if is {
			p.awaitChange(ctx, refused.by, time.After(pause))
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// refusal says why a preloader refuses to serve.
type refusal struct {
	reason  string
	lasting bool         // every preloader of this installation will refuse
	by      installation // which the preloader has loaded
}

func (e *refusal) Error() string { return e.reason }

// newRefusal makes the error for a preloader that refuses to serve.
func newRefusal(h hello, command string) *refusal {
	return &refusal{"it refuses to fork engines: " + h.Refused, h.Lasting, installation{watch: h.Watch, stamp: stamp(h.Watch), command: command}}
}

// awaitChange returns when the installation has changed, when pause has a value, or when
// ctx ends.
func (p *Pool) awaitChange(ctx context.Context, of installation, pause <-chan time.Time) {
	tick := time.NewTicker(p.opts.LookEvery)
	defer tick.Stop()
	for !p.isStale(of) {
		select {
		case <-tick.C:
		case <-pause:
			return
		case <-ctx.Done():
			return
		}
	}
}

// errTooLarge is the error for a preloader that alone exceeds the memory limit of all
// preloaders together.
var errTooLarge = errors.New("more than the limit of preloaders")

// recordFailure records why a preloader does not serve. It returns how long to wait
// before the next try: a preloader that refuses for the same reason as the one before it
// will most likely do so once more, and each load takes a processor for as long as an import
// of the engine.
func (p *Pool) recordFailure(l *preloader, served bool, lasted time.Duration, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.state, l.bytes = Waiting, 0
	l.failed = l.failed || !served
	_, refused := errors.AsType[*refusal](err)
	hopeless := errors.Is(err, errTooLarge) || refused && l.reason == err.Error()
	if err != nil {
		l.reason = err.Error()
	}
	p.wakeWaiters()
	if lasted >= longestBackOff {
		l.attempt = 0
	}
	pause := longestBackOff
	if l.attempt < 9 && !hopeless {
		pause = min(shortestBackOff<<l.attempt, longestBackOff)
	}
	l.attempt++
	return pause
}

// runOnce runs one process of a preloader. It returns when the process has ended or
// must be ended. served says whether the process was ready, and lasted for how long.
func (p *Pool) runOnce(ctx context.Context, l *preloader) (served bool, lasted time.Duration, err error) {
	command := p.commandStamp()
	p.mu.Lock()
	l.state, l.began, l.loadedFrom = Loading, time.Now(), installation{command: command} // l.reason still says why the previous process ended
	began := l.began
	p.wakeWaiters()
	p.mu.Unlock()
	loading, cancel := p.withPatience(ctx, p.opts.LoadTime)
	r, h, err := p.begin(loading, l)
	late := loading.Err() != nil && ctx.Err() == nil
	cancel()
	switch {
	case late:
		return false, 0, fmt.Errorf("it did not load the engine within %s", p.opts.LoadTime)
	case err != nil:
		return false, 0, fmt.Errorf("it could not load the engine: %w", err)
	case h.Refused != "":
		return false, 0, newRefusal(h, command)
	}
	ready := time.Now()
	if err := p.serve(l, r, h); err != nil {
		return false, 0, err
	}
	if took := ready.Sub(began); took <= p.opts.LoadTime { // else it waited for the disk
		p.recordLoadTime(l, took)
	}
	select {
	case <-r.tree.Done():
		if code := r.tree.Exit().Code; code != nil {
			return true, time.Since(ready), fmt.Errorf("its process ended with code %d", *code)
		}
		return true, time.Since(ready), errors.New("its process ended")
	case reason := <-r.ended:
		return true, time.Since(ready), errors.New(reason)
	case <-ctx.Done():
		return true, time.Since(ready), ctx.Err()
	}
}

// serve makes a preloader ready after its load.
func (p *Pool) serve(l *preloader, r *run, h hello) error {
	from := installation{watch: h.Watch, stamp: stamp(h.Watch), command: l.loadedFrom.command} // only this goroutine writes the fields
	if changedSince(h.Watch, l.began) || p.commandStamp() != from.command {
		return errors.New("the installation of the engine has changed while it was loaded")
	}
	bytes := procfs.PSS(r.tree.ID().PID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit := p.opts.MemoryLimit; limit > 0 && bytes > limit {
		return fmt.Errorf("it holds %s, %w: %s (preload_memory_limit)", launcher.BytesText(bytes), errTooLarge, launcher.BytesText(limit))
	}
	l.hello, l.bytes, l.loadedFrom = h, bytes, from
	l.loadTimeNames = setOf(h.Names)
	l.state, l.reason, l.lastUsed = Ready, "", time.Now()
	p.wakeWaiters()
	p.opts.Logger.Info("a preloader is ready", "preloader", l.name, "engine", h.Version, "seconds", h.Seconds, "bytes", bytes, "modules_left_out", len(h.Skipped))
	if h.InspectsByExec != "" {
		p.opts.Logger.Info("the first start of each architecture imports the engine once more", "preloader", l.name, "reason", h.InspectsByExec)
	}
	if h.NVMLLeaves != "" {
		p.opts.Logger.Info("helper processes ask NVML for the forked engines", "preloader", l.name, "reason", "NVML leaves this in each process that asks it: "+h.NVMLLeaves)
	}
	for name, why := range h.Skipped {
		p.opts.Logger.Debug("a preloader left a module out", "preloader", l.name, "module", name, "reason", why)
	}
	return nil
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// doHousekeeping calls endIdleAndStale at intervals, until the pool is closed.
func (p *Pool) doHousekeeping() {
	tick := time.NewTicker(p.opts.LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.endIdleAndStale()
		case <-p.ctx.Done():
			return
		}
	}
}

// endIdleAndStale drops preloaders that were not used for IdleTime, and reloads
// preloaders whose installation has changed.
func (p *Pool) endIdleAndStale() {
	for l, loaded := range p.endIdle() {
		if p.isStale(loaded.installation) {
			p.mu.Lock()
			p.reload(l, loaded.by)
			p.mu.Unlock()
		}
	}
}

// loaded is what a process of a preloader has loaded.
type loaded struct {
	by *run
	installation
}

// endIdle drops preloaders that were not used for IdleTime. It returns the others that are
// ready.
func (p *Pool) endIdle() map[*preloader]loaded {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := map[*preloader]loaded{}
	for _, l := range slices.Clone(p.all) {
		switch {
		case l.state == Loading:
		case p.opts.IdleTime > 0 && time.Since(l.lastUsed) > p.opts.IdleTime:
			p.opts.Logger.Info("ending a preloader that was not used for long", "preloader", l.name)
			p.drop(l)
		case l.state == Ready:
			ready[l] = loaded{l.run, l.loadedFrom}
		}
	}
	return ready
}
