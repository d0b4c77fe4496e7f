package swap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// undoGrace is how much longer than its time a swap may take to answer: for its
// undoing, or for the end of the instances that it stops.
const undoGrace = 15 * time.Second

// answerBy is when the swap answers at the latest.
func (r *Run) answerBy() time.Time {
	if !r.answer.IsZero() {
		return r.answer
	}
	if now := time.Now(); now.After(r.saved.Plan.Until) {
		return now.Add(undoGrace)
	}
	return r.saved.Plan.Until.Add(undoGrace)
}

// undo brings the instances of the swap back to how they were, as far as possible.
// The swap is answered in time; an undoing that takes longer goes on and keeps the
// turn. The undoing is broken off by the end of the launcher, or by its closing
// once the swap is answered.
func (r *Run) undo(failure error) {
	failed := asFailed(failure)
	r.c.log.Warn("undoing a swap", "swap", r.ID(), "because", failure)
	if err := r.rewrite(func(s *Saved) { s.Failure = savedFailure(failed) }); err != nil {
		r.c.log.Warn("cannot write down why a swap is undone", "swap", r.ID(), "error", err)
	}
	limits := r.c.opts.Limits
	ctx, cancel := context.WithTimeout(r.c.ctx, limits.Sleep+limits.Wake+limits.Memory)
	defer cancel()
	done := make(chan struct{})
	early := *failed
	r.c.tasks.Go(func() { r.answerInTime(early, done, cancel) })
	err := r.phase(launcherapi.PhaseUndo, "", func() error { return r.undoRows(ctx) })
	close(done)
	if errors.Is(ctx.Err(), context.Canceled) && r.c.ctx.Err() == nil {
		return // the next life of the launcher takes the swap up
	}
	outcome := launcherapi.OutcomeUndone
	if err != nil {
		outcome, failed.Undo = launcherapi.OutcomeUndoFailed, asFailed(err).Err
		r.c.log.Error("a swap could not be undone whole", "swap", r.ID(), "error", failed.Undo)
	}
	r.conclude(outcome, failed)
}

// answerInTime answers a swap whose undoing is not done in time, and cancels that
// undoing when the launcher closes.
func (r *Run) answerInTime(failed FailedError, done <-chan struct{}, cancel func()) {
	late := time.NewTimer(time.Until(r.answerBy()))
	defer late.Stop()
	select {
	case <-late.C:
	case <-done:
		return
	}
	failed.Undo = fmt.Errorf("the undoing takes longer, and goes on; now %s", strings.Join(r.leftHow(), ", "))
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
	in, out := r.claim.Show()
	if in != nil {
		out = append(out, *in)
	}
	var left []string
	for _, i := range out {
		left = append(left, i.InstanceID+" is "+i.State)
	}
	return left
}
