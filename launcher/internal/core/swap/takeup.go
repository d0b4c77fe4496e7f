package swap

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// settleGrace is how long the instances of a recovered swap may take to come to rest,
// even if the swap's deadline has passed. It is a part of undoGrace.
const settleGrace = 5 * time.Second

// takeUp finishes or undoes a swap that an earlier launcher broke off. The states of
// its instances show how far the swap got.
func (r *Run) takeUp(ctx context.Context) {
	defer r.releaseClaim()
	now := time.Now()
	r.answerDeadline = r.answerBy()
	if now.After(r.saved.Plan.Until) {
		r.answerDeadline = now.Add(undoGrace) // counted from the start of this launcher
	}
	settleBy := now.Add(settleGrace)
	if settleBy.Before(r.saved.Plan.Until) {
		settleBy = r.saved.Plan.Until
	}
	settle, cancel := context.WithDeadline(ctx, settleBy)
	defer cancel()
	r.claim.Settle(settle) // also before an undo, which has to know what there is
	if ctx.Err() != nil {
		r.conclude(launcherapi.OutcomeInterrupted, errLauncherCloses)
		return
	}
	phases, stop := r.untilUndo(ctx)
	defer stop()
	failed := error(&launcher.SwapError{Phase: phaseOf(r.saved.Phase), Err: launcher.EngineFailedf("the launcher died during the swap")})
	switch {
	case r.saved.Failure != nil:
		failed = failedError(*r.saved.Failure, r.result)
	case phases.Err() == nil && r.reachedGoal():
		failed = r.finishTakenUp(phases, settleBy)
	}
	switch {
	case failed == nil:
		r.stopLeavers()
		r.conclude(launcherapi.OutcomeDone, nil)
		return
	case errors.Is(failed, errLauncherCloses):
		r.conclude(launcherapi.OutcomeInterrupted, failed)
		return
	}
	r.rowsBegun = len(rows)
	r.undo(orUndoAsked(phases, failed))
}

// finishTakenUp does what is left of a swap whose instance is awake: its canary, which may take
// until the given time, and its commit. It then opens the gate.
func (r *Run) finishTakenUp(ctx context.Context, until time.Time) error {
	if err := r.tryCanary(ctx, until); err != nil {
		return err
	}
	if len(r.heldForCommit()) > 0 {
		ctx, cancel := context.WithDeadlineCause(ctx, r.saved.Plan.Until, errTimeout)
		defer cancel()
		if err := r.phase(launcherapi.PhaseCommit, r.saved.Plan.In, func() error { return r.awaitCommit(ctx, r.saved.Plan.In) }); err != nil {
			return err
		}
	}
	r.claim.Open(r.saved.NeedsCommit)
	return nil
}

// tryCanary asks the instance that came in for one token, if the request wants that and
// the launcher died before it was done. The answer may take until the given time, and at least
// settleGrace: instances that leave may have needed all of that time to settle.
func (r *Run) tryCanary(ctx context.Context, until time.Time) error {
	if len(r.canaryAsked()) == 0 || r.saved.Phase == launcherapi.PhaseOpen || r.saved.Phase == launcherapi.PhaseCommit {
		return nil
	}
	if least := time.Now().Add(settleGrace); until.Before(least) {
		until = least
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return r.phase(launcherapi.PhaseCanary, r.saved.Plan.In, func() error { return r.claim.Canary(ctx) })
}

// reachedGoal reports whether an interrupted swap reached its goal. All that leave are asleep
// before the instance that a swap brings in is awake. If one of them is in another state by now, a
// client has woken it since, or nobody knows its state: the end of the swap was not recorded, as on
// a disk that stalls. An instance that is to be stopped cannot be woken before.
func (r *Run) reachedGoal() bool {
	in, out := r.claim.Show()
	plan := r.saved.Plan
	inAwake := in != nil && in.State == string(launcher.Awake)
	if plan.In != "" && !inAwake {
		return false
	}
	if inAwake && plan.Room != nil && !plan.Stop {
		return true
	}
	for _, i := range out {
		switch launcher.State(i.State) {
		case launcher.Awake, launcher.Starting, launcher.FallingAsleep, launcher.Waking: // the instance may still become awake
			return false
		case launcher.Sleeping, launcher.Stopping, launcher.Stopped, launcher.Failed:
		}
	}
	return true
}
