package swap

import (
	"context"
	"errors"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var errLauncherCloses = launcher.Unavailablef("the launcher is closing; it continues a swap that had begun when it is back")

// awaitAdmission waits until the swap is admitted and may begin, or is cancelled. The error is a
// SwapError.
func (r *Run) awaitAdmission(ctx context.Context) (release func(), err error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.mu.Lock()
	r.stopWaiting = giveUp
	if r.cancelled {
		giveUp(errCancelled)
	}
	r.mu.Unlock()
	release, err = r.admitAndHold(ctx)
	r.mu.Lock()
	off, phase := r.cancelled, r.view.Phase
	r.begun = !off
	r.mu.Unlock()
	if !off {
		return release, err
	}
	if err == nil { // cancelled after that
		r.claim.Release()
		release()
	}
	return nil, &launcher.SwapError{Phase: phase, Err: errCancelled}
}

// admitAndHold admits the swap and, if the request asks for that, waits for go.
func (r *Run) admitAndHold(ctx context.Context) (release func(), err error) {
	err = r.phase(launcherapi.PhaseAdmit, "", func() (err error) {
		release, err = r.admit(ctx)
		return err
	})
	if err != nil || !r.req.Prepare || r.req.DryRun {
		return release, err
	}
	if err = r.phase(launcherapi.PhaseGo, "", func() error { return r.awaitGo(ctx) }); err != nil {
		r.claim.Release()
		release()
	}
	return release, err
}

// admit takes the swap's turn, waits until no instance on its GPUs moves, and claims
// what the swap needs. It changes nothing before it succeeds.
func (r *Run) admit(ctx context.Context) (release func(), err error) {
	keys := slices.Clone(r.gpus)
	for {
		for _, g := range r.c.opts.Supervisor.Neighbours(keys) {
			keys = withKey(keys, g)
		}
		r.updateView(keys)
		turn, err := r.c.opts.Turns.Take(ctx, r.ID(), keys)
		if err != nil {
			return nil, err
		}
		if err = r.claimOnceSettled(ctx, turn, keys); err == nil {
			return turn.Release, nil
		}
		turn.Release()
		wider, ok := errors.AsType[*ledger.MoreGPUsError](err)
		if !ok && (errors.Is(err, supervisor.ErrOutdated) || r.inHasChanged()) {
			if err = r.readInAgain(); err == nil {
				keys = slices.Clone(r.gpus)
				continue
			}
		}
		if !ok {
			return nil, err
		}
		for _, g := range wider.GPUs {
			keys = withKey(keys, g)
		}
	}
}

func withKey(keys []string, key string) []string {
	if slices.Contains(keys, key) {
		return keys
	}
	return append(keys, key)
}

// claimOnceSettled claims as soon as no instance is changing its state, and those that
// leave have been awake for min_residency. While the swap waits for min_residency,
// swaps that need not wait may take their turn.
func (r *Run) claimOnceSettled(ctx context.Context, turn *gpuqueue.Turn, keys []string) error {
	ask := supervisor.ClaimRequest{Plan: r.saved.Plan, GPUs: r.gpus, Draft: r.draft, DryRun: r.req.DryRun, Keep: r.req.Prepare || r.saved.NeedsCommit}
	ask.Plan.GPUs = slices.Clone(keys)
	for {
		if r.c.isClosing() {
			return errLauncherCloses
		}
		claim, err := r.c.opts.Supervisor.Claim(ask)
		if err == nil && ctx.Err() != nil { // the claim took long
			claim.Release()
			return context.Cause(ctx)
		}
		if err == nil {
			r.claim, r.saved.Plan = claim, claim.Plan()
			return nil
		}
		moving, isMoving := errors.AsType[*ledger.MovingError](err)
		soon, isSoon := errors.AsType[*ledger.MinResidencyError](err)
		switch {
		case isMoving:
			err = r.c.opts.Supervisor.AwaitRest(ctx, moving.InstanceID)
		case isSoon:
			err = turn.Aside(ctx, func(ctx context.Context) error { return r.awaitResidency(ctx, soon) })
		}
		if err != nil {
			return err
		}
	}
}

// awaitResidency waits until an instance has been awake for min_residency or is no
// longer awake.
func (r *Run) awaitResidency(ctx context.Context, soon *ledger.MinResidencyError) error {
	enough, stop := context.WithTimeout(ctx, soon.Wait)
	defer stop()
	_, _ = r.c.opts.Supervisor.Await(enough, soon.InstanceID, func(i launcherapi.Instance) bool { // an error means that the instance is gone, or that the time is over
		return i.State != string(launcher.Awake)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
