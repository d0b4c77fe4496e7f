package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hotseat.dev/hotseat/launcher"
)

// This file has the phases of a swap. When ctx ends, each wait ends with the error of
// ctx.

// Drain begins the sleep of an instance that leaves, and waits until the instance's
// answers in flight have ended or the sleep is over. cut is how many answers were cut. The
// error is [ErrDeleted] if a client has deleted the instance.
func (c *Claim) Drain(ctx context.Context, id string) (cut int, err error) {
	i, err := c.outgoing(id)
	if err != nil {
		return 0, err
	}
	c.s.mu.Lock()
	err = c.s.sleep(i, c.plan.SwapID, launcher.VerbRequest{Level: c.plan.Level, Drain: c.plan.Drain})
	c.s.mu.Unlock()
	if err == nil {
		_, err = c.s.await(ctx, i, func() bool {
			if i.op != nil {
				cut = i.op.cut
			}
			return !i.state.Moving() || i.op != nil && i.op.drained
		})
	}
	return cut, c.orDeleted(ctx, i, err)
}

// Sleep waits until an instance that leaves sleeps. The error is [ErrDeleted] if a client
// has deleted the instance.
func (c *Claim) Sleep(ctx context.Context, id string) error {
	i, err := c.outgoing(id)
	if err != nil {
		return err
	}
	_, err = c.s.awaitState(ctx, i, launcher.Sleeping)
	return c.orDeleted(ctx, i, err)
}

// outgoing returns the instance with that id among those that leave and the victims.
func (c *Claim) outgoing(id string) (*instance, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	i := c.members[id]
	if i == nil {
		return nil, ErrDeleted
	}
	return i, nil
}

// orDeleted replaces err by ErrDeleted if a client has deleted the instance, and waits
// until the instance is forgotten.
func (c *Claim) orDeleted(ctx context.Context, i *instance, err error) error {
	if err == nil {
		return nil
	}
	c.s.mu.Lock()
	deleted := i.deleting || !c.s.isListed(i)
	c.s.mu.Unlock()
	if !deleted {
		return err
	}
	if _, err := c.s.awaitForgotten(ctx, i); err != nil {
		return err
	}
	return ErrDeleted
}

// Evict stops a victim, and waits until the victim is forgotten and its device memory is
// back. A victim that Evict has stopped counts as evicted, even if the wait fails.
//
//	the instance                    effect
//	asleep and claimed              stopped and forgotten: evicted
//	gone, or being stopped          waits until it is released
//	ended by itself                 waits until it is released, and leaves it listed
//	any other                       none: error, code conflict
func (c *Claim) Evict(ctx context.Context, id string) (evicted bool, err error) {
	i, err := c.outgoing(id)
	if errors.Is(err, ErrDeleted) {
		return false, nil
	}
	c.s.mu.Lock()
	var ends bool
	switch {
	case i.state == launcher.Sleeping && i.victim && i.swapID == c.plan.SwapID && c.s.isListed(i):
		err = c.s.stop(i)
		evicted = err == nil
	case i.state == launcher.Stopping || i.state.Ended():
		ends = true
	default:
		err = launcher.Conflictf("cannot evict instance %s: it is %s; a swap evicts only sleeping instances that it has claimed", id, i.state)
	}
	c.s.mu.Unlock()
	switch {
	case err != nil:
	case ends:
		err = c.s.awaitRest(ctx, i)
	default:
		_, err = c.s.awaitForgotten(ctx, i)
	}
	return evicted, err
}

// Start waits until the device memory that the engine needs is free, then creates the new
// instance and starts its engine. The gate stays shut until [Claim.Open].
func (c *Claim) Start(ctx context.Context) error {
	if err := c.s.meter.AwaitFree(ctx, c.plan.Room.Bytes); err != nil {
		return err
	}
	_, err := c.s.start(c.draft, c)
	return err
}

// Healthy waits until the new instance is awake.
func (c *Claim) Healthy(ctx context.Context) error {
	i, err := c.incoming()
	if err != nil {
		return err
	}
	return c.awaitAwake(ctx, i)
}

// awaitAwake waits until the instance that comes in is awake. The error says so if a client
// has deleted it.
func (c *Claim) awaitAwake(ctx context.Context, i *instance) error {
	_, err := c.s.awaitState(ctx, i, launcher.Awake)
	return c.orDeletedIn(i, err)
}

// orDeletedIn returns an error of the instance that comes in, or that a client has deleted it.
func (c *Claim) orDeletedIn(i *instance, err error) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err != nil && (i.deleting || !c.s.isListed(i)) {
		return launcher.Conflictf("instance %s was deleted while the swap brought it in", i.facts.ID)
	}
	return err
}

// Wake waits until the device memory that the instance needs is free, wakes the instance
// that comes in, and waits until its engine has woken. The gate stays shut until
// [Claim.Open]. Wake does not check the room: the swap's admission has checked it.
func (c *Claim) Wake(ctx context.Context) error {
	i, err := c.incoming()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	want, residue := i.entry(nil).Want("").Bytes, i.residue
	c.s.mu.Unlock()
	if err := c.s.meter.AwaitRoom(ctx, i.facts.ID, want, residue); err != nil {
		return err
	}
	c.s.mu.Lock()
	i.gateHeldShut = true
	c.s.setGate(i)
	err = c.s.verb(i, c.plan.SwapID, launcher.VerbRequest{}, launcher.EventWakeAsked, c.s.opts.Limits.Wake, func() error { return nil })
	if err == nil {
		c.room = nil // from now on the ledger counts the instance itself
		c.compares = c.s.isCompared(i)
	}
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	return c.awaitWoken(ctx, i)
}

// awaitWoken waits until the engine of the instance that comes in has woken. Unless its
// answers are compared then, the instance is awake.
func (c *Claim) awaitWoken(ctx context.Context, i *instance) error {
	woken := false
	_, err := c.s.await(ctx, i, func() bool {
		woken = c.compares && i.op != nil && i.op.woken
		return woken || !i.state.Moving()
	})
	if err == nil && woken {
		return nil
	}
	return c.awaitAwake(ctx, i)
}

// Compares reports whether Wake leaves a comparison of the engine's answers under way, for
// which Canary waits.
func (c *Claim) Compares() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.compares
}

// incoming returns the instance that comes in. If there is none, the error has code
// not_found.
func (c *Claim) incoming() (*instance, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in == nil {
		return nil, launcher.NotFound(c.plan.In)
	}
	return c.in, nil
}

// Canary asks the engine of the instance that comes in for one answer. If the answers of the
// engine are being compared after its wake, it waits for that instead.
func (c *Claim) Canary(ctx context.Context) error {
	i, err := c.incoming()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	compares, forgotten, kind := c.compares, i.keyForgotten, i.fingerprint.kind()
	c.s.mu.Unlock()
	switch {
	case compares:
		return c.awaitAwake(ctx, i)
	case i.isWorker():
		return nil // the entry answers for it
	}
	_, err = c.s.ask(ctx, i, kind)
	switch {
	case err == nil:
		return nil
	case forgotten && isUnauthorized(err):
		c.s.log.Warn("skipped the canary: the launcher was restarted and does not know the API key of the instance; its API server answers", "instance", c.plan.In, "error", err)
		return nil
	case ctx.Err() != nil: // the cause says why the swap ended the wait
		return fmt.Errorf("the canary got no answer: %w", context.Cause(ctx))
	}
	return launcher.EngineFailedf("the canary got no answer: %w", err)
}

// Check returns an error if an instance that leaves has ended, or the one that comes in has ended
// or was deleted, since the claim was made.
func (c *Claim) Check() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, id := range c.plan.Parties() {
		i := c.instanceOf(id)
		deleted := i == nil || i.deleting || !c.s.isListed(i)
		switch {
		case slices.Contains(c.plan.Evict, id):
		case deleted && id == c.plan.In:
			return launcher.Conflictf("instance %s was deleted while the swap was held", id)
		case !deleted && i.state.Ended():
			return launcher.Conflictf("instance %s has ended while the swap was held: %s; ask for the swap again", id, i.reason)
		}
	}
	return nil
}

// AwaitLoss waits until the instance that came in is not awake any more. The error says why, or
// is the cause of ctx.
func (c *Claim) AwaitLoss(ctx context.Context) error {
	i, err := c.incoming()
	if err != nil {
		return err
	}
	var lost error
	_, err = c.s.await(ctx, i, func() bool {
		if i.state == launcher.Awake {
			return false
		}
		lost = i.stateError(launcher.Awake)
		return true
	})
	if err == nil {
		err = lost
	}
	return c.orDeletedIn(i, err)
}

// Open lets requests through to the instance that came in. committed: a client has committed the
// swap, so that the server of a worker answers.
func (c *Claim) Open(committed bool) {
	c.measureWorker(committed)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in == nil || !c.s.isListed(c.in) {
		return
	}
	c.in.gateHeldShut = false
	c.s.setGate(c.in)
	c.s.write(c.in)
}

// Stop stops an instance that has left, and waits until it is forgotten. It leaves alone
// an instance that a client has deleted.
func (c *Claim) Stop(ctx context.Context, id string) error {
	i, err := c.outgoing(id)
	if err != nil {
		return nil //nolint:nilerr // a client has deleted it
	}
	c.s.mu.Lock()
	there := c.s.isListed(i) && i.swapID == c.plan.SwapID
	if there {
		c.stopped[id] = true
		err = c.s.stop(i)
	}
	c.s.mu.Unlock()
	if err == nil && there {
		_, err = c.s.awaitForgotten(ctx, i)
	}
	return err
}
