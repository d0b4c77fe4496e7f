package swap

import (
	"context"

	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Claim is what a swap owns from its admission to its end; [supervisor.Claim] behind
// it. Its methods are the phases of a swap, and their undoing. Ids are those of the
// plan. A wait ends early when ctx does.
type Claim interface {
	Plan() ledger.Plan

	// Drain begins the sleep of one that leaves, and waits for its answers in
	// flight; cut says how many were cut. Sleep waits until it sleeps. Both give
	// supervisor.ErrDeleted when somebody has deleted it.
	Drain(ctx context.Context, id string) (cut int, err error)
	Sleep(ctx context.Context, id string) error
	// Evict ends a victim; not evicted without an error: somebody else was quicker.
	Evict(ctx context.Context, id string) (evicted bool, err error)
	// Wake wakes the one that comes in. Start makes it, and Healthy waits until it is
	// awake. Canary asks it for one token. Open opens its gate.
	Wake(ctx context.Context) error
	Start(ctx context.Context) error
	Healthy(ctx context.Context) error
	Canary(ctx context.Context) error
	Open()
	// Stop ends one that has left.
	Stop(ctx context.Context, id string) error

	// SendBack removes the one that came in, or puts it back to sleep. BringBack wakes
	// one that leaves or has left; the error says how it is left.
	SendBack(ctx context.Context) error
	BringBack(ctx context.Context, id string) error

	// Settle waits until nobody moves, after an earlier life of the launcher died.
	Settle(ctx context.Context)
	// Show shows the one that comes in, nil when there is none, and those that leave.
	Show() (in *launcherapi.Instance, out []launcherapi.Instance)
	// Release gives everything back. BreakOff leaves the instances claimed, for the
	// next life of the launcher.
	Release()
	BreakOff()
}
