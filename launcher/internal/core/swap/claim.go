package swap

import (
	"context"

	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Claim is what a swap owns from its admission to its end; [supervisor.Claim] behind
// it. The methods are the phases of a swap, and their undoing. An id names an
// instance of the plan; a method without an id is for the instance that comes in.
// Each wait ends early when ctx does, with the error of ctx.
type Claim interface {
	Plan() ledger.Plan

	// Drain begins the sleep of an instance that leaves, and waits for the instance's
	// answers in flight; cut says how many were cut. The error is
	// supervisor.ErrDeleted when somebody has deleted the instance.
	Drain(ctx context.Context, id string) (cut int, err error)
	// Sleep waits until an instance that leaves sleeps; errors as of Drain.
	Sleep(ctx context.Context, id string) error
	// Evict ends a victim. evicted is false without an error when the victim has
	// ended or was deleted otherwise.
	Evict(ctx context.Context, id string) (evicted bool, err error)
	// Wake wakes the instance that comes in, whose gate stays shut.
	Wake(ctx context.Context) error
	// Start makes the instance that comes in, whose gate stays shut.
	Start(ctx context.Context) error
	// Healthy waits until the instance that was made is awake.
	Healthy(ctx context.Context) error
	// Canary asks the engine for one token.
	Canary(ctx context.Context) error
	// Open opens the gate.
	Open()
	// Stop ends an instance that has left.
	Stop(ctx context.Context, id string) error

	// SendBack removes the instance that came in if the swap made it, or else puts
	// that instance back to sleep.
	SendBack(ctx context.Context) error
	// BringBack wakes an instance that leaves or has left. The error says in which
	// state the instance is.
	BringBack(ctx context.Context, id string) error

	// Settle waits until no instance of a swap that is taken up is on its way to
	// another state.
	Settle(ctx context.Context)
	// Show shows the instance that comes in, nil when there is none, and the
	// instances that leave.
	Show() (in *launcherapi.Instance, out []launcherapi.Instance)
	// Release gives everything back.
	Release()
	// BreakOff gives everything back but the instances, which stay claimed for the
	// next life of the launcher.
	BreakOff()
}
