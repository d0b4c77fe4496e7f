package launcher

import (
	"context"
	"fmt"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// SwapRun is a swap that has begun. It goes on whether or not a caller waits for it.
type SwapRun interface {
	// ID returns the swap's id.
	ID() string
	// Wait returns when the swap is over. If ctx ends first, the swap goes on. The error
	// of a swap that failed is a *[SwapError].
	Wait(ctx context.Context) (launcherapi.SwapResult, error)
	// Follow calls tell with every step of the swap until the swap is over, beginning
	// with the steps before the call. If tell fails or ctx ends, Follow returns that
	// error and the swap goes on.
	Follow(ctx context.Context, tell func(launcherapi.SwapProgress) error) error
	// Show returns the swap as it is now, without a problem. err is the error of a swap
	// that is over and has failed, as Wait returns it.
	Show() (now launcherapi.Swap, err error)
}

// SwapError is the error of a swap that failed. Result.Outcome says how the swap ended:
// refused, undone, undo_failed or interrupted.
type SwapError struct {
	Phase  string // the phase that failed; empty: the swap had not begun
	Result launcherapi.SwapResult
	Err    error
	Undo   error // what could not be undone, or not in time; nil: nothing
}

func (e *SwapError) Error() string {
	switch {
	case e.Result.Outcome == launcherapi.OutcomeRefused || e.Result.Outcome == launcherapi.OutcomeInterrupted:
		return e.Err.Error()
	case e.Undo != nil:
		return fmt.Sprintf("the swap failed in phase %s: %v; the launcher could not undo it: %v", e.Phase, e.Err, e.Undo)
	}
	return fmt.Sprintf("the swap failed in phase %s: %v", e.Phase, e.Err)
}

func (e *SwapError) Unwrap() error { return e.Err }
