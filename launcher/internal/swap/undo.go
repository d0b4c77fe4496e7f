package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// undoGrace is how much longer than its time a swap may take to answer: for
// its undoing, or for the end of whoever it stops.
const undoGrace = 15 * time.Second

// settleGrace is how long the instances of a swap that is taken up may take to come
// to rest beyond its time. It is a part of undoGrace.
const settleGrace = 5 * time.Second

// answerBy is when the swap answers at the latest.
func (r *Run) answerBy() time.Time {
	if !r.answer.IsZero() {
		return r.answer
	}
	if now := time.Now(); now.After(r.until) {
		return now.Add(undoGrace)
	}
	return r.until.Add(undoGrace)
}

// undo brings everything back to how it was, as far as can be. It is answered
// in time, and goes on when that is not enough, with the turn in hand. The end
// of the launcher, or its closing once the swap is answered, breaks it off.
func (r *Run) undo(failure error) {
	failed := asFailed(failure)
	r.c.log.Warn("undoing a swap", "swap", r.order.swapID, "because", failure)
	if err := r.rewrite(func(s *Saved) { s.Failure = savedFailure(failed) }); err != nil {
		r.c.log.Warn("cannot write down why a swap is undone", "swap", r.order.swapID, "error", err)
	}
	limits := r.c.opts.Limits
	ctx, cancel := context.WithTimeout(r.c.ctx, limits.Sleep+limits.Wake+limits.Memory)
	defer cancel()
	done := make(chan struct{})
	early := *failed
	r.c.tasks.Go(func() { r.answerInTime(early, done, cancel) })
	err := r.phase(launcherapi.PhaseUndo, "", func() error { return r.bringAllBack(ctx) })
	close(done)
	if errors.Is(ctx.Err(), context.Canceled) && r.c.ctx.Err() == nil {
		return // it is taken up again when the launcher is back
	}
	outcome := launcherapi.OutcomeUndone
	if err != nil {
		outcome, failed.Undo = launcherapi.OutcomeUndoFailed, asFailed(err).Err
		r.c.log.Error("a swap could not be undone whole", "swap", r.order.swapID, "error", failed.Undo)
	}
	r.conclude(outcome, failed)
}

// answerInTime answers a swap whose undoing takes too long, unless it is done
// before. From then on it cancels the undoing when the launcher closes.
func (r *Run) answerInTime(failed FailedError, done <-chan struct{}, cancel func()) {
	late := time.NewTimer(time.Until(r.answerBy()))
	defer late.Stop()
	select {
	case <-late.C:
	case <-done:
		return
	}
	failed.Undo = fmt.Errorf("that takes longer, and goes on; now %s", strings.Join(r.leftHow(), ", "))
	r.settle(launcherapi.OutcomeUndoFailed, &failed)
	r.finish()
	select {
	case <-r.c.closing:
		cancel()
	case <-done:
	}
}

// leftHow says in which state each instance of the swap is.
func (r *Run) leftHow() []string {
	var out []string
	for _, id := range append(slices.Clone(r.intent.Out), r.intent.In) {
		if view, err := r.c.opts.Supervisor.Get(id); err == nil {
			out = append(out, id+" is "+view.State)
		}
	}
	return out
}

func (r *Run) bringAllBack(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	if err := r.sendBack(ctx); err != nil {
		errs = append(errs, fmt.Errorf("%s does not go back: %w", r.intent.In, err))
	}
	for _, id := range r.result.Deleted {
		errs = append(errs, goneError(id))
	}
	_ = r.each(r.intent.Out, func(id string) error {
		if err := r.bringBack(ctx, id); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

// sendBack removes the new instance, or puts the one that existed back to
// sleep, so that the memory is free for whoever was there.
func (r *Run) sendBack(ctx context.Context) error {
	if r.intent.Want == nil {
		return nil // it was awake before, or there is none
	}
	sup := r.c.opts.Supervisor
	if r.intent.New {
		err := sup.Remove(ctx, r.intent.In, r.order.swapID)
		if launcher.CodeOf(err) == launcherapi.CodeNotFound {
			return nil // it was never made
		}
		return err
	}
	sup.CutShort(r.intent.In)
	view, err := sup.AwaitRest(ctx, r.intent.In)
	if launcher.CodeOf(err) == launcherapi.CodeNotFound {
		return nil // somebody has deleted it
	}
	if err != nil || view.State != string(launcher.Awake) {
		return err
	}
	if _, err := sup.Sleep(r.intent.In, supervisor.Ask{Level: supervisor.LastLevel, SwapID: r.order.swapID}); err != nil {
		return err
	}
	_, err = sup.AwaitVerb(ctx, r.intent.In, launcher.Sleeping)
	return err
}

func goneError(id string) error { return fmt.Errorf("%s is gone: somebody has deleted it", id) }

// bringBack wakes one that had left. The error says how it is left.
func (r *Run) bringBack(ctx context.Context, id string) error {
	failed := r.wakeAgain(ctx, id)
	view, err := r.c.opts.Supervisor.Get(id)
	switch {
	case err != nil:
		return goneError(id)
	case view.State == string(launcher.Awake):
		return nil
	}
	return fmt.Errorf("%s is %s: %w", id, view.State, failed)
}

// wakeAgain wakes one that had left, once the memory is free that others give
// back.
func (r *Run) wakeAgain(ctx context.Context, id string) error {
	sup := r.c.opts.Supervisor
	sup.CallOff(id)
	sup.CutShort(id)
	view, err := sup.AwaitRest(ctx, id)
	if err != nil || view.State == string(launcher.Awake) {
		return err
	}
	if launcher.State(view.State).Ended() {
		return errors.New(view.Reason)
	}
	sup.Unreserve(r.order.swapID)
	if err := sup.AwaitRoom(ctx, id, r.order.swapID); err != nil {
		return err
	}
	if _, err := sup.Wake(id, supervisor.Ask{SwapID: r.order.swapID}); err != nil {
		return err
	}
	_, err = sup.AwaitVerb(ctx, id, launcher.Awake)
	return err
}
