package swap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// undoGrace is how long after its deadline a swap may answer. The swap uses that time
// for its undo, or for the end of the instances that it stops.
const undoGrace = 15 * time.Second

// answerBy returns the time by which the swap answers.
func (r *Run) answerBy() time.Time {
	if !r.answerDeadline.IsZero() {
		return r.answerDeadline
	}
	return r.saved.Plan.Until.Add(undoGrace)
}

// undo restores the instances of the swap, as far as possible. The swap is answered in
// time; an undo that takes longer goes on and keeps the turn. The end of the launcher
// breaks off an undo. Once the swap is answered, the closing of the launcher does too.
func (r *Run) undo(failure error) {
	failed := asFailed(failure)
	r.c.log.Warn("undoing a swap", "swap", r.ID(), "reason", failure)
	if err := r.updateRecord(func(s *Saved) { s.Failure = savedFailure(failed) }); err != nil {
		r.c.log.Warn("cannot record why a swap is undone", "swap", r.ID(), "error", err)
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
		return // the next launcher takes the swap up
	}
	outcome := launcherapi.OutcomeUndone
	if err != nil {
		outcome, failed.Undo = launcherapi.OutcomeUndoFailed, asFailed(err).Err
		r.c.log.Error("cannot undo a swap completely", "swap", r.ID(), "error", failed.Undo)
	}
	r.conclude(outcome, failed)
}

// answerInTime answers a swap whose undo is not done in time, and cancels that undo
// when the launcher closes.
func (r *Run) answerInTime(failed launcher.SwapError, done <-chan struct{}, cancel func()) {
	late := time.NewTimer(time.Until(r.answerBy()))
	defer late.Stop()
	select {
	case <-late.C:
	case <-done:
		return
	}
	failed.Undo = fmt.Errorf("the undo takes longer and continues; now %s", strings.Join(r.describeStates(), ", "))
	r.setResult(launcherapi.OutcomeUndoFailed, &failed)
	r.finish()
	select {
	case <-r.c.closing:
		cancel()
	case <-done:
	}
}

// describeStates names the state of each instance of the swap.
func (r *Run) describeStates() []string {
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
