package swap

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file runs swaps in two halves: a client holds a swap before it changes anything, and again
// before the gate of the instance that comes in opens. So several launchers can swap together.
//
//	phase    ends with         without that
//	go       go                after the hold, the swap is refused
//	commit   commit, or undo   at its deadline, the swap is undone
//
// Go may come before the phase, commit may not; both may be repeated. Commit and undo are written
// down before they are answered, so the next launcher keeps to them.

// Bounds of a hold.
const (
	defaultHold = 30 * time.Second
	maxHold     = 5 * time.Minute
)

var (
	errUndoAsked    = causedBy(launcher.Conflictf("a client asked for the undo"), "undo_asked")
	errNotCommitted = causedBy(launcher.EngineTimeoutf("no client said commit before the deadline of the swap"), "not_committed")
)

func causedBy(err *launcher.Error, cause string) *launcher.Error {
	err.FailureCause = cause
	return err
}

// readHalves reads where the swap waits for its client.
func (r *Run) readHalves() error {
	hold := orDefault(r.req.Hold, defaultHold)
	switch {
	case r.req.Hold != nil && !r.req.Prepare:
		return launcher.Invalidf("body.hold", "hold needs prepare: true; without it the swap does not wait for go")
	case hold > maxHold:
		return launcher.Invalidf("body.hold", "hold is %s; other swaps wait meanwhile, so that it is at most %s", hold, maxHold)
	case r.req.Until != "" && r.req.Until != launcherapi.UntilHealthy:
		return launcher.Invalidf("body.until", "unknown until %q; it is healthy", r.req.Until)
	case r.req.Until != "" && r.req.In == nil:
		return launcher.Invalidf("body.until", "until needs in: the instance that is to be healthy before the commit")
	}
	r.saved.NeedsCommit = r.req.Until == launcherapi.UntilHealthy
	return nil
}

// Go lets the swap with that id, which is prepared, begin. It has no effect on a swap that has
// begun. The error has the code not_found if no swap has the id; if the swap has failed or is
// refused, it is the swap's.
func (c *Coordinator) Go(id string) (*Run, error) { return c.onRun(id, (*Run).mayBegin) }

// Commit ends the phase commit of the swap with that id, which opens the gate of the instance
// that comes in. The errors are those of Go; the code is conflict, too, if the swap has not got to
// that phase or is being undone, and storage if the commit could not be written down: the swap is
// done all the same, unless the launcher dies at once.
func (c *Coordinator) Commit(id string) (*Run, error) { return c.onRun(id, (*Run).commit) }

// Undo undoes the swap with that id, or cancels it if it waits. It has no effect on a swap that
// has failed or had nothing to do. The error has the code not_found if no swap has the id, conflict
// if the swap is committed, and storage if the undo could not be written down: the swap is undone
// all the same, unless the launcher dies at once.
func (c *Coordinator) Undo(id string) (*Run, error) { return c.onRun(id, (*Run).askUndo) }

func (c *Coordinator) onRun(id string, do func(*Run) error) (*Run, error) {
	r, err := c.Get(id)
	if err != nil {
		return nil, err
	}
	return r, do(r)
}

func (r *Run) mayBegin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return r.err
	case r.cancelled:
		return errCancelled
	case r.refusal != nil:
		return r.refusal
	case !r.goAsked:
		r.goAsked = true
		close(r.begin)
	}
	return nil
}

// awaitGo waits until a client says go, and looks at the instances again then. Nothing is changed
// meanwhile.
func (r *Run) awaitGo(ctx context.Context) error {
	hold := orDefault(r.req.Hold, defaultHold)
	ctx, cancel := context.WithTimeoutCause(ctx, hold, launcher.Conflictf("no client said go within %s; ask for the swap again", hold))
	defer cancel()
	var err error
	select {
	case <-r.begin:
	case <-r.c.closing:
		err = errLauncherCloses
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.goAsked { // perhaps at this very moment
		err = nil
	}
	r.refusal = err
	if err == nil {
		return r.claim.Check()
	}
	return err
}

func (r *Run) commit() error {
	r.mu.Lock()
	switch {
	case !r.saved.NeedsCommit:
		r.mu.Unlock()
		return launcher.Conflictf("swap %s does not wait for its commit: it was not asked for with until: %s", r.id, launcherapi.UntilHealthy)
	case r.over:
		defer r.mu.Unlock()
		return r.err
	case r.undoAsked:
		defer r.mu.Unlock()
		return launcher.Conflictf("cannot commit swap %s: it is being undone", r.id)
	case !r.committed && !r.atCommit:
		defer r.mu.Unlock()
		return launcher.Conflictf("cannot commit swap %s in the phase %s; it may be committed in the phase %s", r.id, r.view.Phase, launcherapi.PhaseCommit)
	}
	first := !r.committed
	r.committed = true
	r.mu.Unlock()
	err := r.record(func(s *Saved) { s.Committed = true })
	if first {
		close(r.commitWritten)
	}
	return err
}

func (r *Run) askUndo() error {
	r.mu.Lock()
	switch {
	case !r.saved.NeedsCommit:
		defer r.mu.Unlock()
		return launcher.Conflictf("cannot undo swap %s: it was not asked for with until: %s", r.id, launcherapi.UntilHealthy)
	case r.over && r.result.Outcome == launcherapi.OutcomeInterrupted:
		defer r.mu.Unlock()
		return r.err
	case r.cancelled || r.refusal != nil || r.over && r.result.Outcome != launcherapi.OutcomeDone:
		r.mu.Unlock()
		return nil
	case r.over || r.committed:
		defer r.mu.Unlock()
		return launcher.Conflictf("cannot undo swap %s: it is committed", r.id)
	case !r.begun:
		defer r.mu.Unlock()
		r.cancelWaiting()
		return nil
	}
	r.undoAsked, r.atCommit = true, false
	breakOff := r.breakOff
	r.mu.Unlock()
	err := r.record(func(s *Saved) { s.UndoAsked = true })
	if breakOff != nil {
		breakOff(errUndoAsked)
	}
	return err
}

// record changes the record of a swap that may have none yet, or none any more: the first record
// has the change, too.
func (r *Run) record(change func(*Saved)) error {
	r.c.mu.Lock()
	recorded := r.recorded && !r.saved.Done
	if !recorded {
		change(&r.saved)
		r.c.mu.Unlock()
		return nil
	}
	written := r.putRecord(change)
	r.c.mu.Unlock()
	return r.awaitRecord(written)
}

// untilUndo returns a context that ends when a client asks for the undo.
func (r *Run) untilUndo(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, breakOff := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breakOff = breakOff
	if r.undoAsked {
		breakOff(errUndoAsked)
	}
	return ctx, func() { breakOff(nil) }
}

// orUndoAsked returns the failure of a swap, or that a client asked for the undo.
func orUndoAsked(ctx context.Context, failure error) error {
	if !errors.Is(context.Cause(ctx), errUndoAsked) {
		return failure
	}
	return &launcher.SwapError{Phase: asFailed(failure).Phase, Err: errUndoAsked}
}

// heldForCommit returns the instance that comes in if the swap is to be committed.
func (r *Run) heldForCommit() []string { return r.incomingIf(r.saved.NeedsCommit) }

// awaitCommit waits until a client says commit, and watches the instance that came in meanwhile.
func (r *Run) awaitCommit(ctx context.Context, _ string) error {
	r.mu.Lock()
	committed := r.committed
	r.atCommit = !r.undoAsked
	r.mu.Unlock()
	if committed { // before a restart
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	lost := make(chan error, 1)
	r.c.tasks.Go(func() { lost <- r.claim.AwaitLoss(ctx) })
	var err error
	select {
	case <-r.commitWritten:
	case <-r.c.closing:
		err = errLauncherCloses
	case err = <-lost:
	}
	stop()
	r.mu.Lock()
	r.atCommit = false
	committed, undo := r.committed, r.undoAsked
	r.mu.Unlock()
	switch {
	case committed:
		<-r.commitWritten // the gate opens after that
		return nil
	case undo:
		return errUndoAsked
	case errors.Is(err, errTimeout):
		return errNotCommitted
	}
	return err
}
