package swap

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// settleGrace is how long the instances of a swap that is taken up may take to come
// to rest beyond its time. It is a part of undoGrace.
const settleGrace = 5 * time.Second

// takeUp finishes or undoes a swap that an earlier life of the launcher left. How far
// the swap got shows in what its instances do.
func (r *Run) takeUp(ctx context.Context) {
	defer r.letGo()
	r.answer = r.answerBy() // counted from now on, in this life of the launcher
	settleBy := time.Now().Add(settleGrace)
	if settleBy.Before(r.saved.Plan.Until) {
		settleBy = r.saved.Plan.Until
	}
	settle, cancel := context.WithDeadline(ctx, settleBy)
	defer cancel()
	r.claim.Settle(settle)
	if ctx.Err() != nil {
		r.conclude(launcherapi.OutcomeInterrupted, errLauncherCloses)
		return
	}
	failed := &FailedError{Phase: phaseOf(r.saved), Err: launcher.EngineFailedf("the launcher died in the middle of it")}
	switch {
	case r.saved.Failure != nil:
		failed = failedError(*r.saved.Failure, r.result)
	case r.complete():
		if failed = r.tryCanary(settle); failed == nil {
			r.claim.Open()
			r.stopOut()
			r.conclude(launcherapi.OutcomeDone, nil)
			return
		}
	}
	r.reached = len(rows)
	r.undo(failed)
}

// tryCanary has the instance that came in give the token that the request asks for,
// unless that was done before the launcher died. Nil: the gate may open.
func (r *Run) tryCanary(ctx context.Context) *FailedError {
	if len(r.tested()) == 0 || r.saved.Phase == launcherapi.PhaseOpen {
		return nil
	}
	err := r.phase(launcherapi.PhaseCanary, r.saved.Plan.In, func() error { return r.claim.Canary(ctx) })
	failed, _ := errors.AsType[*FailedError](err)
	return failed
}

// complete says whether an interrupted swap reached its goal.
func (r *Run) complete() bool {
	in, out := r.claim.Show()
	for _, i := range out {
		switch launcher.State(i.State) {
		case launcher.Awake, launcher.Starting, launcher.FallingAsleep, launcher.Waking: // it may be awake in the end
			return false
		case launcher.Sleeping, launcher.Stopping, launcher.Stopped, launcher.Failed:
		}
	}
	return r.saved.Plan.In == "" || in != nil && in.State == string(launcher.Awake)
}
