package supervisor

import (
	"context"
	"errors"
	"fmt"

	"hotseat.dev/hotseat/launcher"
)

// This file takes over the swaps of an earlier launcher, and undoes the phases of a swap. A swap undoes only what it did: the methods move
// only instances of the claim, and only those that the swap has moved.

// Reclaim claims again what a swap of an earlier launcher owned: the instances whose
// records name the swap, and the id of a new one. It also claims an instance without a
// record whose id the plan names: no other call could have taken that id. It leaves
// alone an instance that another swap has claimed.
func (s *Supervisor) Reclaim(plan launcher.Plan) *Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Claim{s: s, plan: plan, owns: true, members: map[string]*instance{}, stopped: map[string]bool{}}
	s.claims[plan.SwapID] = c
	_ = c.findInstances(func(*instance) error { return nil }) // nobody is refused
	if i, ok := s.instances[plan.In]; ok && plan.CreatesIn() {
		c.in = i
	}
	if c.in != nil && !c.belongsToSwap(c.in) {
		c.in = nil
	}
	for id, i := range c.members {
		if !c.belongsToSwap(i) {
			delete(c.members, id)
		}
	}
	c.markInstances()
	for _, i := range c.all() {
		s.publishSwapID(i)
	}
	return c
}

// belongsToSwap reports whether an instance that the launcher has recovered belongs to
// the claim. The lock is held.
func (c *Claim) belongsToSwap(i *instance) bool {
	made := c.plan.CreatesIn() && i.facts.ID == c.plan.In
	if made && i.foundUnrecorded && !i.state.Ended() {
		i.facts.MadeBy = c.plan.SwapID
	}
	if made {
		return i.facts.MadeBy == c.plan.SwapID
	}
	return i.swapID == c.plan.SwapID || i.swapID == "" && i.foundUnrecorded
}

// Settle waits until no instance that the swap moves is changing its state.
func (c *Claim) Settle(ctx context.Context) {
	for _, id := range append([]string{c.plan.In}, c.plan.Out...) {
		c.s.mu.Lock()
		i := c.instanceOf(id)
		c.s.mu.Unlock()
		if i == nil {
			continue
		}
		if err := c.s.awaitRest(ctx, i); err != nil {
			c.s.log.Warn("an instance of an interrupted swap reaches no stable state", "swap", c.plan.SwapID, "instance", i.facts.ID, "error", err)
		}
	}
}

// SendBack removes the instance that came in if the swap created it; otherwise it puts the
// instance back to sleep. An instance that the swap has started again stays listed as ended:
// it was so before. SendBack waits until the instance's device memory is free.
func (c *Claim) SendBack(ctx context.Context) error {
	c.s.mu.Lock()
	c.room = nil
	i := c.in
	if i == nil || !c.s.isListed(i) {
		c.s.mu.Unlock()
		return nil // the instance was never created, or a client has deleted it
	}
	var err error
	again := c.plan.CreatesIn() && i.facts.StartedAgain
	switch {
	case again:
		err = c.s.endAgain(i)
	case c.plan.CreatesIn():
		err = c.s.stop(i)
	default:
		c.s.cutShort(i)
	}
	c.s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case again:
		return c.s.awaitRest(ctx, i)
	case c.plan.CreatesIn():
		_, err = c.s.awaitForgotten(ctx, i)
		return err
	}
	if err := c.s.awaitRest(ctx, i); err != nil {
		return err
	}
	c.s.mu.Lock()
	awake := i.state == launcher.Awake
	if awake {
		err = c.s.sleep(i, c.plan.SwapID, launcher.VerbRequest{Level: sameLevel})
	}
	c.s.mu.Unlock()
	if err == nil && awake {
		_, err = c.s.awaitState(ctx, i, launcher.Sleeping)
	}
	return err
}

// endAgain ends an instance that had ended before a swap started it again. The lock is held.
func (s *Supervisor) endAgain(i *instance) error {
	switch {
	case i.state.Ended() || i.state == launcher.Stopping:
		return nil
	case i.isStartingProcess():
		i.endWanted = true
		return nil
	}
	return s.transition(i, launcher.EventStopAsked, func() { i.reason = "the swap that started it again was undone" })
}

// BringBack wakes an instance that leaves or has left, once other instances have given
// back enough device memory. The error names the instance's state. It is an [ErrDeleted]
// if a client has deleted the instance.
func (c *Claim) BringBack(ctx context.Context, id string) error {
	i, err := c.outgoing(id)
	if err == nil {
		err = c.wakeAgain(ctx, i)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	switch {
	case i == nil || !c.s.isListed(i):
		return fmt.Errorf("%s is gone: %w", id, ErrDeleted)
	case i.state == launcher.Awake:
		return nil
	}
	return fmt.Errorf("%s is %s: %w", id, i.state, err)
}

func (c *Claim) wakeAgain(ctx context.Context, i *instance) error {
	c.s.mu.Lock()
	c.room = nil
	c.s.cancelDrain(i)
	c.s.cutShort(i)
	c.s.mu.Unlock()
	if err := c.s.awaitRest(ctx, i); err != nil {
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
	err := c.s.wake(i, c.plan.SwapID, launcher.VerbRequest{}, memory)
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = c.s.awaitState(ctx, i, launcher.Awake)
	return err
}

// awaitRoom waits until there is room for a sleeper to wake: other instances may still be
// giving back their memory. It waits for at most the memory timeout. The error is the
// ledger's last refusal.
func (c *Claim) awaitRoom(ctx context.Context, i *instance) error {
	var refusal error
	c.s.meter.PollUntil(ctx, func() bool {
		memory := c.s.lockWithMemory(i.gpus())
		defer c.s.mu.Unlock()
		refusal = c.s.wakeRefusal(i, c.plan.SwapID, memory)
		return refusal == nil
	})
	return refusal
}
