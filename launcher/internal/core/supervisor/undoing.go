package supervisor

import (
	"context"
	"errors"
	"fmt"

	"hotseat.dev/hotseat/launcher"
)

// This file undoes the phases of a swap, and begins a swap that an earlier life of
// the launcher left. A swap undoes only what it did: the methods move the instances
// of the claim alone, and leave those alone that the swap has not moved.

// Settle waits until no instance that the swap moves is on its way to another state.
func (c *Claim) Settle(ctx context.Context) {
	for _, id := range append([]string{c.plan.In}, c.plan.Out...) {
		c.s.mu.Lock()
		i := c.handle(id)
		c.s.mu.Unlock()
		if i == nil {
			continue
		}
		if err := c.s.atRest(ctx, i); err != nil {
			c.s.log.Warn("an instance of an interrupted swap does not settle", "swap", c.plan.SwapID, "instance", i.facts.ID, "error", err)
		}
	}
}

// SendBack removes the instance that the swap has made, or puts the one that existed
// back to sleep, and waits until its device memory is free for whoever was there.
func (c *Claim) SendBack(ctx context.Context) error {
	c.s.mu.Lock()
	c.room = nil
	i := c.in
	if i == nil || !c.s.lists(i) {
		c.s.mu.Unlock()
		return nil // the instance was never made, or somebody has deleted it
	}
	var err error
	if c.plan.CreatesIn() {
		err = c.s.stop(i)
	} else {
		c.s.cutShort(i)
	}
	c.s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case c.plan.CreatesIn():
		_, err = c.s.awaitForgotten(ctx, i)
		return err
	}
	if err := c.s.atRest(ctx, i); err != nil {
		return err
	}
	c.s.mu.Lock()
	awake := i.state == launcher.Awake
	if awake {
		err = c.s.sleep(i, c.plan.SwapID, Ask{Level: lastLevel})
	}
	c.s.mu.Unlock()
	if err == nil && awake {
		_, err = c.s.awaitVerb(ctx, i, launcher.Sleeping)
	}
	return err
}

// BringBack wakes an instance that leaves or has left, once the device memory is
// free that other instances give back. The error says in which state the instance
// is, and is an [ErrDeleted] when somebody has deleted the instance.
func (c *Claim) BringBack(ctx context.Context, id string) error {
	i, err := c.leaving(id)
	if err == nil {
		err = c.wakeAgain(ctx, i)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	switch {
	case i == nil || !c.s.lists(i):
		return fmt.Errorf("%s is gone: %w", id, ErrDeleted)
	case i.state == launcher.Awake:
		return nil
	}
	return fmt.Errorf("%s is %s: %w", id, i.state, err)
}

func (c *Claim) wakeAgain(ctx context.Context, i *instance) error {
	c.s.mu.Lock()
	c.room = nil
	c.s.callOff(i)
	c.s.cutShort(i)
	c.s.mu.Unlock()
	if err := c.s.atRest(ctx, i); err != nil {
		return err
	}
	c.s.mu.Lock()
	state, reason := i.state, i.reason
	c.s.mu.Unlock()
	switch {
	case state == launcher.Awake:
		return nil
	case state.Ended():
		return errors.New(reason)
	}
	if err := c.awaitRoom(ctx, i); err != nil {
		return err
	}
	memory := c.s.lockWithMemory(i.gpus())
	err := c.s.wake(i, c.plan.SwapID, Ask{}, memory)
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = c.s.awaitVerb(ctx, i, launcher.Awake)
	return err
}

// awaitRoom waits until there is room for a sleeper to wake, since other instances
// may still be giving back their memory, and for at most the time that this may
// take. The error is the ledger's last refusal.
func (c *Claim) awaitRoom(ctx context.Context, i *instance) error {
	var refusal error
	c.s.meter.PollUntil(ctx, func() bool {
		memory := c.s.lockWithMemory(i.gpus())
		defer c.s.mu.Unlock()
		refusal = c.s.refusal(i, c.plan.SwapID, memory)
		return refusal == nil
	})
	return refusal
}
