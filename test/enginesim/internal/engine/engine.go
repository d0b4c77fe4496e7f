// Package engine is the API server's view of the engine: what sleeps, what is
// paused, and which requests are being answered. Its rules are those of vLLM's
// EngineCore, executor and scheduler.
package engine

import (
	"context"
	"slices"
	"sync"

	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// Executor is what the workers do.
type Executor interface {
	Sleep(level int) error
	// WakeUp makes resident what sleeps, but for the tags that stay asleep.
	WakeUp(asleep []string) error
	ReloadWeights() error
	// Reach returns when every worker has answered.
	Reach() error
}

// ErrDead is what requests get once EngineCore is gone.
const ErrDead = vllmerr.Error("EngineCore encountered an issue. See stack trace (above) for the root cause.")

// Options set an Engine up.
type Options struct {
	Executor Executor
	Slots    int // requests answered at once; others wait
	Warn     func(at, format string, args ...any)
}

// Engine answers requests unless it is paused. Its methods may be called from
// several goroutines.
type Engine struct {
	opts Options
	// turn is held by one sleep or wake at a time, as EngineCore works off one
	// call after the other.
	turn chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew at each change
	paused   pause
	sleeping bool     // the executor
	asleep   []string // tags that are not resident
	level    int      // as the metric shows it
	awake    bool     // as the metric shows it
	garbled  bool     // weights were dropped and not loaded again
	mute     bool     // no request is answered
	dead     bool
	live     map[*Request]struct{}
	running  int
}

// pause is the scheduler's state.
type pause int

const (
	unpaused  pause = iota
	pausedNew       // new requests wait
	pausedAll       // all requests wait
)

// New makes an engine that is awake.
func New(opts Options) *Engine {
	return &Engine{
		opts: opts, turn: make(chan struct{}, 1), changed: make(chan struct{}),
		awake: true, live: map[*Request]struct{}{},
	}
}

// change runs f with the lock held and tells everyone who waits.
func (e *Engine) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

// take waits for the turn to sleep or wake.
func (e *Engine) take(ctx context.Context) error {
	if e.State().Dead {
		return ErrDead
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) give() { <-e.turn }

// Sleep pauses the scheduler in the given mode and, from level 1 on, puts the
// executor to sleep. An executor that sleeps already stays as it is.
//
//	mode   requests in flight         new requests
//	abort  end now, reason "abort"    wait
//	wait   are answered first         wait
//	keep   stand still                wait
func (e *Engine) Sleep(ctx context.Context, level int, mode string) error {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	if err := e.pause(ctx, mode); err != nil {
		return err
	}
	if level >= 1 {
		if err := e.suspend(level); err != nil {
			return err
		}
	}
	e.change(func() { e.level, e.awake = level, false })
	return nil
}

func (e *Engine) suspend(level int) error {
	e.mu.Lock()
	sleeping := e.sleeping
	e.mu.Unlock()
	if sleeping {
		e.opts.Warn("abstract.py:339", "Executor is already sleeping.")
		return nil
	}
	if err := e.opts.Executor.Sleep(level); err != nil {
		return err
	}
	e.change(func() {
		e.sleeping, e.asleep = true, []string{"weights", "kv_cache"}
		e.garbled = e.garbled || level == 2
	})
	return nil
}

// pause sets the scheduler's state, and for "wait" waits for the requests in
// flight.
func (e *Engine) pause(ctx context.Context, mode string) error {
	switch mode {
	case "abort":
		e.change(func() {
			e.paused = pausedNew
			for r := range e.live {
				r.aborted = true
			}
		})
	case "wait":
		e.change(func() { e.paused = pausedNew })
		return e.until(ctx, func() bool { return e.running == 0 })
	case "keep":
		e.change(func() { e.paused = pausedAll })
	default:
		return vllmerr.New("Invalid pause mode: %s", mode)
	}
	return nil
}

// Pause stops answering without any change to memory.
func (e *Engine) Pause(ctx context.Context, mode string) error {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	return e.pause(ctx, mode)
}

// Resume answers again.
func (e *Engine) Resume() { e.change(func() { e.paused = unpaused }) }

// WakeUp makes the tags resident again, all of them when tags is nil, and
// resumes once everything is. Tags that are not asleep change nothing.
func (e *Engine) WakeUp(ctx context.Context, tags []string) error {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	scheduling := slices.Contains(tags, "scheduling")
	rest := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return t == "scheduling" })
	if !scheduling || len(rest) > 0 {
		if err := e.resume(rest); err != nil {
			return err
		}
	}
	e.change(func() {
		if !e.sleeping {
			e.paused = unpaused
		}
		e.level, e.awake = 0, true
	})
	return nil
}

func (e *Engine) resume(tags []string) error {
	e.mu.Lock()
	sleeping, asleep := e.sleeping, slices.Clone(e.asleep)
	e.mu.Unlock()
	if !sleeping {
		e.opts.Warn("abstract.py:352", "Executor is not sleeping.")
		return nil
	}
	for _, t := range tags {
		if !slices.Contains(asleep, t) {
			e.opts.Warn("abstract.py:357", "Tag %s is not in sleeping tags %v", t, asleep)
			return nil
		}
	}
	left := slices.DeleteFunc(asleep, func(t string) bool { return len(tags) == 0 || slices.Contains(tags, t) })
	if err := e.opts.Executor.WakeUp(left); err != nil {
		return err
	}
	e.change(func() {
		e.asleep = left
		e.sleeping = len(left) > 0
	})
	return nil
}

// Reload loads weights that a level 2 sleep dropped.
func (e *Engine) Reload() error {
	if err := e.opts.Executor.ReloadWeights(); err != nil {
		return err
	}
	e.change(func() { e.garbled = false })
	return nil
}

// Spoil has the engine answer requests with garbage, or not at all if mute.
func (e *Engine) Spoil(mute bool) {
	e.change(func() {
		e.garbled = true
		e.mute = e.mute || mute
	})
}

// until waits for a condition, which is asked with the lock held.
func (e *Engine) until(ctx context.Context, cond func() bool) error {
	for {
		e.mu.Lock()
		ok, dead, changed := cond(), e.dead, e.changed
		e.mu.Unlock()
		switch {
		case dead:
			return ErrDead
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
