package swap

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file runs swaps in two halves: a client holds a swap before it changes anything, and again
// before the gate of the one that comes in opens. Several launchers can then swap together.
//
//	wait           ends with         if nobody says so
//	phase go       go                after the hold, the swap is refused
//	phase commit   commit, or undo   at its deadline, the swap is undone
//
// A client may say each of them before the swap waits for it, and more than once. The record
// says whether a swap is committed: after a restart, a swap that is not goes on waiting.

// Bounds of a hold.
const (
	defaultHold = 30 * time.Second
	maxHold     = 5 * time.Minute
)

var errUndoAsked = launcher.Conflictf("a client asked for the undo")

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
	r.saved.AwaitsCommit = r.req.Until == launcherapi.UntilHealthy
	return nil
}

// Go lets the swap with that id, which is prepared, begin. It has no effect on a swap that has
// begun. The error has the code not_found if no swap has the id; if the swap has failed, it is the
// swap's.
func (c *Coordinator) Go(id string) (*Run, error) { return c.tell(id, (*Run).sayGo) }

// Commit lets the swap with that id open the gate of the instance that comes in. Once that is
// written down, the swap is done, unless that instance is lost before the swap has got so far.
// The errors are those of Go; the code is conflict, too, if the swap is being undone, and
// storage if the commit could not be written down.
func (c *Coordinator) Commit(id string) (*Run, error) { return c.tell(id, (*Run).commit) }

// Undo undoes the swap with that id, or cancels it if it waits. The errors are those of Go; the
// code is conflict, too, if the swap is committed. An undo of a swap that has failed, or had
// nothing to do, has no effect.
func (c *Coordinator) Undo(id string) (*Run, error) { return c.tell(id, (*Run).askUndo) }

func (c *Coordinator) tell(id string, say func(*Run) error) (*Run, error) {
	r, err := c.Get(id)
	if err != nil {
		return nil, err
	}
	return r, say(r)
}

func (r *Run) sayGo() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return r.err
	case r.cancelled:
		return errCancelled
	case !r.goes:
		r.goes = true
		close(r.goSaid)
	}
	return nil
}

// awaitGo waits until a client says go. Nothing is changed meanwhile.
func (r *Run) awaitGo(ctx context.Context) error {
	hold := orDefault(r.req.Hold, defaultHold)
	ctx, cancel := context.WithTimeoutCause(ctx, hold, launcher.Conflictf("nobody said go within %s", hold))
	defer cancel()
	select {
	case <-r.goSaid:
		return nil
	case <-r.c.closing:
		return errLauncherCloses
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Run) commit() error {
	r.mu.Lock()
	err := r.mayCommit()
	if err != nil || r.over {
		r.mu.Unlock()
		return err
	}
	first := !r.committed
	r.committed = true
	r.mu.Unlock()
	err = r.recordCommit()
	if first {
		close(r.commitSaid)
	}
	return err
}

// mayCommit returns why the swap cannot be committed. The lock is held.
func (r *Run) mayCommit() error {
	switch {
	case !r.saved.AwaitsCommit:
		return launcher.Conflictf("swap %s does not wait for its commit: it was not asked for with until: %s", r.id, launcherapi.UntilHealthy)
	case r.over:
		return r.err
	case r.cancelled:
		return errCancelled
	case r.undoing:
		return launcher.Conflictf("cannot commit swap %s: it is being undone", r.id)
	}
	return nil
}

// recordCommit writes down that the swap is committed. A swap that has no record yet writes
// that with its record; a swap that is over has none.
func (r *Run) recordCommit() error {
	r.c.mu.Lock()
	r.saved.Committed = true
	recorded := r.recorded && !r.saved.Done
	r.c.mu.Unlock()
	if !recorded {
		return nil
	}
	return r.updateRecord(func(*Saved) {})
}

func (r *Run) askUndo() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.saved.AwaitsCommit:
		return launcher.Conflictf("cannot undo swap %s: it was not asked for with until: %s", r.id, launcherapi.UntilHealthy)
	case r.over && r.result.Outcome == launcherapi.OutcomeInterrupted:
		return r.err
	case r.over && r.result.Outcome != launcherapi.OutcomeDone:
		return nil
	case r.over || r.committed:
		return launcher.Conflictf("cannot undo swap %s: it is committed", r.id)
	case !r.begun:
		r.cancelWaiting()
		return nil
	}
	r.undoing, r.undoAsked = true, true
	if r.breakOff != nil {
		r.breakOff(errUndoAsked)
	}
	return nil
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
	if context.Cause(ctx) != errUndoAsked { //nolint:errorlint // the cause itself
		return failure
	}
	return &launcher.SwapError{Phase: asFailed(failure).Phase, Err: errUndoAsked}
}

// awaitsCommit returns the instance that comes in if the swap waits for its commit.
func (r *Run) awaitsCommit() []string { return r.incomingIf(r.saved.AwaitsCommit) }

// awaitCommit waits until a client says commit, and watches the instance that came in meanwhile.
func (r *Run) awaitCommit(ctx context.Context, _ string) error {
	r.mu.Lock()
	committed := r.committed
	r.mu.Unlock()
	if committed {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	lost := make(chan error, 1)
	r.c.tasks.Go(func() { lost <- r.claim.AwaitLoss(ctx) })
	var err error
	select {
	case <-r.commitSaid:
	case <-r.c.closing:
		err = errLauncherCloses
	case err = <-lost:
	}
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.committed: // at this very moment
		return nil
	case r.undoAsked:
		return errUndoAsked
	case !errors.Is(err, errLauncherCloses):
		r.undoing = true
	}
	return err
}
