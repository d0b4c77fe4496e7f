package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/crashpoint"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Run is one swap.
type Run struct {
	c      *Coordinator
	req    launcherapi.SwapRequest
	order  order
	limit  time.Duration
	drain  time.Duration
	began  time.Time
	intent supervisor.Intent
	saved  supervisor.SavedSwap

	mu       sync.Mutex
	progress []launcherapi.SwapProgress
	changed  chan struct{} // closed and replaced when progress grows
	ended    chan struct{} // closed when it is over
	over     bool
	result   launcherapi.SwapResult
	err      error
}

// ID is the swap's.
func (r *Run) ID() string { return r.order.swapID }

// FailedError says in which phase a swap failed; everything was undone as far
// as could be.
type FailedError struct {
	Phase  string
	Result launcherapi.SwapResult
	Err    error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the swap failed in phase %s: %v", e.Phase, e.Err)
}

func (e *FailedError) Unwrap() error { return e.Err }

// Wait returns when the swap is over. When ctx ends first the swap goes on.
func (r *Run) Wait(ctx context.Context) (launcherapi.SwapResult, error) {
	select {
	case <-r.ended:
	case <-ctx.Done():
		return launcherapi.SwapResult{}, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result, r.err
}

// Follow calls tell with every step of the swap, those before the call
// included, until it is over. It ends early with the error of tell or of ctx;
// the swap goes on.
func (r *Run) Follow(ctx context.Context, tell func(launcherapi.SwapProgress) error) error {
	for n := 0; ; {
		r.mu.Lock()
		news, over, changed := r.progress[n:], r.over, r.changed
		r.mu.Unlock()
		for _, p := range news {
			if err := tell(p); err != nil {
				return err
			}
		}
		n += len(news)
		if over && len(news) == 0 {
			return nil
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Run) tell(p launcherapi.SwapProgress) {
	p.SwapID = r.order.swapID
	r.progress = append(r.progress, p)
	close(r.changed)
	r.changed = make(chan struct{})
}

// phase runs one step and notes how long it took. A refusal of the first phase
// is not a failure: nothing was touched.
func (r *Run) phase(name, instanceID string, step func() error) error {
	r.mu.Lock()
	r.tell(launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, Phase: name, InstanceID: instanceID})
	r.mu.Unlock()
	crashpoint.At(crashpoint.Begun(name))
	began := time.Now()
	if err := step(); err != nil {
		r.noteDone(name, instanceID, time.Since(began))
		if errors.Is(err, errTimeout) {
			err = launcher.EngineTimeoutf("%w (%s)", errTimeout, r.limit)
		}
		return &FailedError{Phase: name, Err: err}
	}
	r.noteDone(name, instanceID, time.Since(began))
	crashpoint.At(crashpoint.Done(name))
	return nil
}

func (r *Run) noteDone(name, instanceID string, took time.Duration) {
	ms := milliseconds(took)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Phases = append(r.result.Phases, launcherapi.PhaseTime{Name: name, InstanceID: instanceID, DurationMS: ms})
	r.tell(launcherapi.SwapProgress{Type: launcherapi.ProgressDone, Phase: name, InstanceID: instanceID, DurationMS: ms})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run does the swap from beginning to end.
func (r *Run) run(parent context.Context) {
	ctx, cancel := context.WithTimeoutCause(parent, r.limit, errTimeout)
	defer cancel()
	outcome, err := r.do(ctx)
	if parent.Err() != nil && err != nil {
		r.finish("", errLauncherCloses)
		return
	}
	r.finish(outcome, err)
}

// errTimeout is why a swap that ran out of time is cancelled.
var errTimeout = errors.New("the swap ran out of time")

func (r *Run) do(ctx context.Context) (outcome string, err error) {
	var release func()
	if err := r.phase(launcherapi.PhaseAdmit, "", func() (err error) {
		release, err = r.admit(ctx)
		return err
	}); err != nil {
		failed, _ := errors.AsType[*FailedError](err)
		return "", failed.Err // nothing was touched
	}
	defer release()
	if r.req.DryRun {
		return launcherapi.OutcomeDryRun, nil
	}
	defer r.c.opts.Supervisor.Dismiss(r.order.swapID)
	if len(r.intent.Out) == 0 && r.intent.Want == nil {
		return launcherapi.OutcomeNoop, nil
	}
	if err := r.save(false); err != nil {
		return "", err
	}
	crashpoint.At(crashpoint.SwapWritten)
	failure := r.change(ctx)
	if r.c.ctx.Err() != nil {
		return "", errLauncherCloses // left as it is, and written down
	}
	if failure != nil {
		r.undo(failure)
		return launcherapi.OutcomeUndone, failure
	}
	return launcherapi.OutcomeDone, r.save(true)
}

// admit takes the swap's turn, waits until nothing on its GPUs moves, and
// decides. Until it succeeds nothing is touched.
func (r *Run) admit(ctx context.Context) (release func(), err error) {
	sup, keys := r.c.opts.Supervisor, slices.Clone(r.order.gpus)
	decideOn := sup.Enlist
	if r.req.DryRun {
		decideOn = func(_ string, d supervisor.Decide) (supervisor.Intent, error) { return sup.Consider(d) }
	}
	for {
		keys = append(keys, missing(keys, sup.Neighbours(keys))...)
		release, err = r.c.opts.Turns.Take(ctx, r.order.swapID, keys)
		if err != nil {
			return nil, err
		}
		r.order.held = keys
		r.intent, err = r.decideOnce(ctx, decideOn)
		if err == nil {
			return release, nil
		}
		release()
		wider, ok := errors.AsType[*widerError](err)
		if !ok {
			return nil, err
		}
		keys = append(keys, wider.gpus...)
	}
}

func (r *Run) decideOnce(ctx context.Context, decideOn func(string, supervisor.Decide) (supervisor.Intent, error)) (supervisor.Intent, error) {
	sup := r.c.opts.Supervisor
	for {
		intent, err := decideOn(r.order.swapID, func(w World, all []launcherapi.Instance) (supervisor.Intent, error) {
			r.order.now = time.Now()
			return decide(r.order, w, all)
		})
		if soon, ok := errors.AsType[*tooSoonError](err); ok {
			if err := pause(ctx, soon.wait); err != nil {
				return intent, err
			}
			continue
		}
		moving, ok := errors.AsType[*movingError](err)
		if !ok {
			return intent, err
		}
		_, err = sup.AwaitRest(ctx, moving.id)
		if err != nil && launcher.CodeOf(err) != launcherapi.CodeNotFound {
			return intent, err
		}
	}
}

// pause waits for a span of time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish ends the swap and tells everybody who follows it.
func (r *Run) finish(outcome string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Outcome = outcome
	r.result.TotalMS = milliseconds(time.Since(r.began))
	if in, e := r.c.opts.Supervisor.Get(r.order.in); e == nil {
		r.result.In = &in
	}
	r.result.Out = r.outViews()
	if failed, ok := errors.AsType[*FailedError](err); ok {
		failed.Result = r.result
	}
	r.err = err
	r.over = true
	close(r.ended)
	if err == nil {
		result := r.result
		r.tell(launcherapi.SwapProgress{Type: launcherapi.ProgressResult, Result: &result})
	} else {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	if outcome == "" {
		outcome = "refused"
	}
	r.c.opts.Finished(outcome, r.result)
	r.c.log.Info("swap is over", "swap", r.order.swapID, "outcome", outcome, "in", r.order.in, "out", r.intent.Out, "total_ms", r.result.TotalMS, "error", err)
}

// outViews shows those who left; one that is gone is shown as it was last seen.
func (r *Run) outViews() []launcherapi.Instance {
	out := []launcherapi.Instance{}
	for _, id := range r.intent.Out {
		if view, err := r.c.opts.Supervisor.Get(id); err == nil {
			out = append(out, view)
			continue
		}
		for _, gone := range r.result.Out {
			if gone.InstanceID == id {
				out = append(out, gone)
			}
		}
	}
	return out
}

// save writes the swap down, or that it is over.
func (r *Run) save(done bool) error {
	r.saved = supervisor.SavedSwap{
		ID: r.order.swapID, GPUs: r.order.held, In: r.intent.In, New: r.intent.New, Out: r.intent.Out,
		Stays: r.intent.Want == nil, Stop: r.intent.Stop, Level: r.intent.Level, Done: done,
	}
	r.c.mu.Lock()
	if done {
		delete(r.c.saved, r.saved.ID)
	} else {
		r.c.saved[r.saved.ID] = r.saved
	}
	r.c.mu.Unlock()
	err := r.c.opts.Supervisor.WriteSwap(r.saved)
	if err != nil && done {
		r.c.log.Error("cannot write down that a swap is over", "swap", r.saved.ID, "error", err)
		return nil
	}
	if err != nil { // it will not be begun
		r.c.mu.Lock()
		delete(r.c.saved, r.saved.ID)
		r.c.mu.Unlock()
	}
	return err
}
