package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// This file is the phases of a swap, forward. Every wait of a method ends early
// when ctx does, with the error of ctx.

// Drain begins the sleep of an instance that leaves, and returns when the instance's
// answers in flight have ended, or when the sleep has come to an end early. cut says how many answers
// were cut. The error is [ErrDeleted] when somebody has deleted the instance.
func (c *Claim) Drain(ctx context.Context, id string) (cut int, err error) {
	i, err := c.leaving(id)
	if err != nil {
		return 0, err
	}
	c.s.mu.Lock()
	err = c.s.sleep(i, c.plan.SwapID, Ask{Level: c.plan.Level, Drain: c.plan.Drain})
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

// Sleep waits until an instance that leaves sleeps. The error is [ErrDeleted] when somebody
// has deleted the instance.
func (c *Claim) Sleep(ctx context.Context, id string) error {
	i, err := c.leaving(id)
	if err != nil {
		return err
	}
	_, err = c.s.awaitVerb(ctx, i, launcher.Sleeping)
	return c.orDeleted(ctx, i, err)
}

// leaving is the instance of that id among those that leave and the victims.
func (c *Claim) leaving(id string) (*instance, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	i := c.members[id]
	if i == nil {
		return nil, ErrDeleted
	}
	return i, nil
}

// orDeleted gives ErrDeleted for an error that came because somebody has deleted the
// instance, once the instance is forgotten.
func (c *Claim) orDeleted(ctx context.Context, i *instance, err error) error {
	if err == nil {
		return nil
	}
	c.s.mu.Lock()
	deleted := i.deleting || !c.s.lists(i)
	c.s.mu.Unlock()
	if !deleted {
		return err
	}
	if _, err := c.s.awaitForgotten(ctx, i); err != nil {
		return err
	}
	return ErrDeleted
}

// Evict ends a victim, and waits until the victim is forgotten and its device memory
// is back. A victim that was told to stop is evicted, also where the wait fails.
//
//	the instance                    effect
//	asleep, and the claim's         stopped and forgotten: evicted
//	gone, or being stopped          waits until it holds nothing: somebody else was quicker
//	ended by itself                 waits until it holds nothing, and leaves it listed
//	any other                       error, code conflict: it is left alone
func (c *Claim) Evict(ctx context.Context, id string) (evicted bool, err error) {
	i, err := c.leaving(id)
	if errors.Is(err, ErrDeleted) {
		return false, nil
	}
	c.s.mu.Lock()
	var ends bool
	switch {
	case i.state == launcher.Sleeping && i.victim && i.swapID == c.plan.SwapID && c.s.lists(i):
		err = c.s.stop(i)
		evicted = err == nil
	case i.state == launcher.Stopping || i.state.Ended():
		ends = true
	default:
		err = launcher.Conflictf("instance %s is %s and cannot be evicted: only a sleeper that the swap has claimed can", id, i.state)
	}
	c.s.mu.Unlock()
	switch {
	case err != nil:
	case ends:
		err = c.s.atRest(ctx, i)
	default:
		_, err = c.s.awaitForgotten(ctx, i)
	}
	return evicted, err
}

// Start makes the new instance and starts the engine, once the device memory is free
// that the engine needs. The gate stays shut until [Claim.Open].
func (c *Claim) Start(ctx context.Context) error {
	if err := c.s.meter.AwaitFree(ctx, c.plan.Room.Bytes); err != nil {
		return err
	}
	_, err := c.s.start(c.draft, c)
	return err
}

// Healthy waits until the new instance is awake.
func (c *Claim) Healthy(ctx context.Context) error {
	i, err := c.coming()
	if err == nil {
		_, err = c.s.awaitVerb(ctx, i, launcher.Awake)
	}
	return err
}

// Wake wakes the instance that comes in, once the device memory is free that the
// instance needs, and waits until the instance is awake. The gate stays shut until
// [Claim.Open]. The room was checked when the swap was admitted, and is not checked
// again.
func (c *Claim) Wake(ctx context.Context) error {
	i, err := c.coming()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	missing := i.missing()
	c.s.mu.Unlock()
	if err := c.s.meter.AwaitFree(ctx, missing); err != nil {
		return err
	}
	c.s.mu.Lock()
	i.holdGate = true
	c.s.setGate(i)
	err = c.s.verb(i, c.plan.SwapID, Ask{}, launcher.EventWakeAsked, c.s.opts.Limits.Wake, func() error { return nil })
	if err == nil {
		c.room = nil // from now on the ledger counts the instance itself
	}
	c.s.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = c.s.awaitVerb(ctx, i, launcher.Awake)
	return err
}

// missing is the device memory that a sleeper needs beyond its residue, by GPU. The
// lock is held.
func (i *instance) missing() map[string]uint64 {
	out := map[string]uint64{}
	for uuid, bytes := range i.entry(nil).Want("").Bytes {
		out[uuid] = bytes - min(bytes, i.residue[uuid])
	}
	return out
}

// coming is the instance that comes in; an error of code not_found when there is
// none.
func (c *Claim) coming() (*instance, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in == nil {
		return nil, launcher.NotFound(c.plan.In)
	}
	return c.in, nil
}

// Canary asks the engine of the instance that comes in for one token.
func (c *Claim) Canary(ctx context.Context) error {
	i, err := c.coming()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	model := slices.Concat(i.facts.ServedNames, []string{i.facts.Model})[0]
	base, key, forgotten := i.base(), i.apiKey, i.keyForgotten
	c.s.mu.Unlock()
	err = i.engine.Canary(ctx, base, model, key)
	status, ok := errors.AsType[*engine.StatusError](err)
	switch {
	case err == nil:
		return nil
	case forgotten && ok && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		c.s.log.Warn("the canary could not be asked: the launcher was started anew and does not know the key of the instance; its API server answers", "instance", c.plan.In, "error", err)
		return nil
	case ctx.Err() != nil: // the cause is why the swap gives up
		return fmt.Errorf("the canary got no token: %w", context.Cause(ctx))
	}
	return launcher.EngineFailedf("the canary got no token: %w", err)
}

// Open lets requests through to the instance that came in.
func (c *Claim) Open() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in == nil || !c.s.lists(c.in) {
		return
	}
	c.in.holdGate = false
	c.s.setGate(c.in)
	c.s.write(c.in)
}

// Stop ends an instance that has left, and waits until the instance is forgotten. An
// instance that somebody else has deleted is left alone.
func (c *Claim) Stop(ctx context.Context, id string) error {
	i, err := c.leaving(id)
	if err != nil {
		return nil //nolint:nilerr // somebody has deleted it
	}
	c.s.mu.Lock()
	there := c.s.lists(i) && i.swapID == c.plan.SwapID
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
