package swap

import (
	"context"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// World is the ledger's picture.
type World = ledger.World

// change does what was decided, phase by phase.
func (r *Run) change(ctx context.Context) error {
	steps := []func(context.Context) error{r.leave, r.evict, r.bringIn, r.canary, r.open, r.stopOut}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leave drains whoever is awake and puts them to sleep, all at once.
func (r *Run) leave(ctx context.Context) error {
	return r.each(r.intent.Out, func(id string) error {
		if err := r.phase(launcherapi.PhaseDrain, id, func() error { return r.orDeleted(ctx, id, r.drainOne(ctx, id)) }); err != nil {
			return err
		}
		if r.deleted(id) {
			return nil
		}
		return r.phase(launcherapi.PhaseSleep, id, func() error {
			_, err := r.c.opts.Supervisor.AwaitVerb(ctx, id, launcher.Sleeping)
			return r.orDeleted(ctx, id, err)
		})
	})
}

// drainOne asks for the sleep of an instance and returns when its answers in
// flight have ended, or when its sleep has come to an end early.
func (r *Run) drainOne(ctx context.Context, id string) error {
	sup := r.c.opts.Supervisor
	ask := supervisor.Ask{Level: r.intent.Level, Drain: r.drain, SwapID: r.order.swapID}
	if _, err := sup.Sleep(id, ask); err != nil {
		return err
	}
	_, err := sup.Await(ctx, id, func(i launcherapi.Instance) bool {
		return supervisor.Settled(i) || took(i, launcherapi.PhaseDrain)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Cut += sup.Cut(id)
	return err
}

func took(i launcherapi.Instance, phase string) bool {
	for _, t := range i.Timings {
		if t.Name == phase {
			return true
		}
	}
	return false
}

// each does something for several instances at once and waits for all.
func (r *Run) each(ids []string, do func(id string) error) error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for n, id := range ids {
		all.Go(func() { errs[n] = do(id) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// orDeleted makes up for what came to nothing because somebody has deleted the
// one that leaves: it is noted, and is none of those that leave any more.
func (r *Run) orDeleted(ctx context.Context, id string, err error) error {
	if err == nil {
		return nil
	}
	if err = r.c.opts.Supervisor.AwaitDeleted(ctx, id, err); err != nil {
		return err
	}
	r.mu.Lock()
	r.result.Deleted = append(r.result.Deleted, id)
	r.intent.Out = slices.DeleteFunc(slices.Clone(r.intent.Out), func(out string) bool { return out == id })
	left := r.intent.Out
	r.mu.Unlock()
	if err := r.rewrite(func(s *Saved) { s.Out = left }); err != nil {
		r.c.log.Warn("cannot write down that an instance which leaves was deleted", "swap", r.order.swapID, "instance", id, "error", err)
	}
	return nil
}

func (r *Run) deleted(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.result.Deleted, id)
}

// evict ends the sleepers that stand in the way.
func (r *Run) evict(ctx context.Context) error {
	for _, id := range r.intent.Evict {
		evicted := false
		err := r.phase(launcherapi.PhaseEvict, id, func() (err error) {
			evicted, err = r.c.opts.Supervisor.Evict(ctx, id, r.order.swapID)
			return err
		})
		if err != nil {
			return err
		}
		if evicted {
			r.mu.Lock()
			r.result.Evicted = append(r.result.Evicted, id)
			r.mu.Unlock()
		}
	}
	return nil
}

// bringIn wakes or starts the one that comes in, once there is free memory for
// it, and waits until it is awake. Its gate stays shut.
func (r *Run) bringIn(ctx context.Context) error {
	if r.intent.Want == nil {
		return nil
	}
	sup := r.c.opts.Supervisor
	if r.intent.New {
		if err := r.phase(launcherapi.PhaseStart, r.intent.In, func() error { return r.start(ctx) }); err != nil {
			return err
		}
		return r.phase(launcherapi.PhaseHealthy, r.intent.In, func() error {
			_, err := sup.AwaitVerb(ctx, r.intent.In, launcher.Awake)
			return err
		})
	}
	return r.phase(launcherapi.PhaseWake, r.intent.In, func() error { return r.wake(ctx) })
}

func (r *Run) start(ctx context.Context) error {
	sup := r.c.opts.Supervisor
	if err := sup.AwaitFree(ctx, r.intent.Want.Bytes); err != nil {
		return err
	}
	_, err := sup.Start(r.order.draft)
	sup.Unreserve(r.order.swapID)
	return err
}

func (r *Run) wake(ctx context.Context) error {
	sup := r.c.opts.Supervisor
	if err := sup.AwaitFree(ctx, sup.MissingBytes(r.intent.In)); err != nil {
		return err
	}
	sup.HoldGate(r.intent.In)
	if _, err := sup.Wake(r.intent.In, supervisor.Ask{SwapID: r.order.swapID}); err != nil {
		return err
	}
	sup.Unreserve(r.order.swapID)
	_, err := sup.AwaitVerb(ctx, r.intent.In, launcher.Awake)
	return err
}

// canary asks for one token, when the request wants it.
func (r *Run) canary(ctx context.Context) error {
	if !r.req.Canary || r.intent.In == "" {
		return nil
	}
	return r.phase(launcherapi.PhaseCanary, r.intent.In, func() error {
		ask, err := r.c.opts.Supervisor.Canary(r.intent.In)
		if err != nil {
			return err
		}
		if err := ask(ctx); err != nil {
			return launcher.EngineFailedf("the canary got no token: %w", err)
		}
		return nil
	})
}

// open lets requests through to the one that came in.
func (r *Run) open(context.Context) error {
	if r.intent.Want == nil {
		return nil
	}
	return r.phase(launcherapi.PhaseOpen, r.intent.In, func() error {
		r.c.opts.Supervisor.OpenGate(r.intent.In)
		return nil
	})
}

// stopOut ends those who left, when that was asked for: only now, so that they
// could be brought back until here. From here on nothing is undone; what does
// not end in time is left to end.
func (r *Run) stopOut(context.Context) error {
	if !r.intent.Stop {
		return nil
	}
	ctx, cancel := context.WithDeadline(r.c.ctx, r.answerBy())
	defer cancel()
	return r.each(r.intent.Out, func(id string) error {
		view, err := r.c.opts.Supervisor.StopOut(ctx, id, r.order.swapID)
		if launcher.CodeOf(err) == launcherapi.CodeNotFound {
			return nil // somebody has deleted it
		}
		if err != nil {
			r.c.log.Error("cannot stop an instance that was swapped out", "instance", id, "error", err)
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.result.Out = append(r.result.Out, view)
		return nil
	})
}

// takeUp finishes or undoes a swap that an earlier life of the launcher left.
func (r *Run) takeUp(ctx context.Context) {
	sup := r.c.opts.Supervisor
	defer r.letGo()
	r.answer = r.answerBy() // of this life, whatever is to be waited for first
	settleBy := time.Now().Add(settleGrace)
	if settleBy.Before(r.until) {
		settleBy = r.until
	}
	settle, cancel := context.WithDeadline(ctx, settleBy)
	defer cancel()
	for _, id := range append([]string{r.intent.In}, r.intent.Out...) {
		if _, err := sup.AwaitRest(settle, id); err != nil && launcher.CodeOf(err) != launcherapi.CodeNotFound {
			r.c.log.Warn("an instance of an interrupted swap does not settle", "swap", r.order.swapID, "instance", id, "error", err)
		}
	}
	if ctx.Err() != nil {
		r.conclude(launcherapi.OutcomeInterrupted, errLauncherCloses)
		return
	}
	if r.saved.Failure == nil && r.complete() {
		sup.OpenGate(r.intent.In)
		_ = r.stopOut(ctx) // logs what goes wrong
		r.conclude(launcherapi.OutcomeDone, nil)
		return
	}
	if !r.saved.Stays {
		r.intent.Want = &ledger.Want{} // whatever came in goes back
	}
	failed := &FailedError{Phase: phaseOf(r.saved), Err: launcher.EngineFailedf("the launcher died in the middle of it")}
	if r.saved.Failure != nil {
		failed = failedError(*r.saved.Failure, r.result)
	}
	r.undo(failed)
}

// complete says whether an interrupted swap got where it was going.
func (r *Run) complete() bool {
	sup := r.c.opts.Supervisor
	for _, id := range r.intent.Out {
		view, err := sup.Get(id)
		if err != nil {
			continue
		}
		switch launcher.State(view.State) {
		case launcher.Awake, launcher.Starting, launcher.FallingAsleep, launcher.Waking: // it may be awake in the end
			return false
		case launcher.Sleeping, launcher.Stopping, launcher.Stopped, launcher.Failed:
		}
	}
	if r.intent.In == "" {
		return true
	}
	view, err := sup.Get(r.intent.In)
	return err == nil && view.State == string(launcher.Awake)
}
