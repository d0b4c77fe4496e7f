package swap

import (
	"context"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Claim is what a swap owns from its admission to its end; [supervisor.Claim]
// implements it. The methods are the phases of a swap and their undo. An id names an
// instance of the plan; a method without an id acts on the instance that comes in.
// When ctx ends, each wait ends with the error of ctx.
type Claim interface {
	Plan() launcher.Plan
	// Publish tells watchers which swap has claimed the instances.
	Publish()

	// Drain begins the sleep of an instance that leaves, and waits for the instance's
	// answers in flight; cut is how many were cut. The error is
	// supervisor.ErrDeleted if a client has deleted the instance.
	Drain(ctx context.Context, id string) (cut int, err error)
	// Sleep waits until an instance that leaves sleeps. It returns the errors of Drain.
	Sleep(ctx context.Context, id string) error
	// Evict stops a victim. If the victim has already ended or a client has deleted it,
	// evicted is false and there is no error.
	Evict(ctx context.Context, id string) (evicted bool, err error)
	// Wake wakes the engine of the instance that comes in, whose gate stays shut.
	Wake(ctx context.Context) error
	// Compares reports whether the engine's answers are being compared after Wake. Canary
	// then waits for the outcome.
	Compares() bool
	// Start creates the instance that comes in, whose gate stays shut.
	Start(ctx context.Context) error
	// Healthy waits until the created instance is awake.
	Healthy(ctx context.Context) error
	// Canary asks the engine for one answer.
	Canary(ctx context.Context) error
	// Check returns an error if an instance that leaves has ended, or the one that comes in has
	// ended or was deleted, since the claim was made.
	Check() error
	// AwaitLoss waits until the instance that came in is not awake any more, and returns why.
	AwaitLoss(ctx context.Context) error
	// Open opens the gate; committed: a client has committed the swap.
	Open(committed bool)
	// Stop stops an instance that has left.
	Stop(ctx context.Context, id string) error

	// SendBack removes the instance that came in if the swap created it; otherwise it
	// puts the instance back to sleep.
	SendBack(ctx context.Context) error
	// BringBack wakes an instance that leaves or has left. The error names the
	// instance's state.
	BringBack(ctx context.Context, id string) error

	// Settle waits until no instance of a recovered swap is changing its state.
	Settle(ctx context.Context)
	// Show returns the instance that comes in, nil if there is none, and the instances
	// that leave.
	Show() (in *launcherapi.Instance, out []launcherapi.Instance)
	// Release gives everything back.
	Release()
	// BreakOff gives everything back but the instances: these stay claimed for the next
	// launcher.
	BreakOff()
}
