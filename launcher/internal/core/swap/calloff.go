package swap

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var (
	errCancelled      = launcher.Conflictf("the swap was cancelled while it waited")
	errCancelledEarly = launcher.Conflictf("the swap was cancelled before it arrived; use a new Idempotency-Key for a new request")
)

// CallOff cancels the swap with that idempotency key while it waits for its turn. The
// swap is then refused and has changed nothing.
//
//	swap with that key   effect
//	waiting              cancelled
//	begun                none: error, code conflict
//	over                 none: error, code conflict
//	no such swap         error, code not_found; a later swap with that key is refused
//
// In the last case the client's request was slower than its cancellation. The launcher
// forgets these keys when it ends: a request on its way to it fails then too.
func (c *Coordinator) CallOff(key string) (*Run, error) {
	c.mu.Lock()
	k, known := c.keys[key]
	if !known {
		k = &rememberedKey{}
		c.cancelEarly(key)
	}
	r, id := k.run, k.saved.Plan.SwapID
	c.mu.Unlock()
	switch {
	case !known:
		return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap has this Idempotency-Key, or the launcher has forgotten it"}
	case r == nil:
		return nil, errOver(id)
	}
	return r, r.cancel()
}

// Cancel cancels the swap with that id as CallOff does. It does nothing to a swap that was
// cancelled before. The error has the code not_found if no swap has the id.
func (c *Coordinator) Cancel(id string) (*Run, error) {
	r, err := c.Get(id)
	if err != nil {
		return nil, err
	}
	return r, r.cancel()
}

func errOver(id string) error { return launcher.Conflictf("cannot cancel swap %s: it is over", id) }

// cancelEarly makes the coordinator refuse any later swap with this key. It forgets the
// oldest such keys. The lock is held.
func (c *Coordinator) cancelEarly(key string) {
	c.cancelledEarly = append(c.cancelledEarly, key)
	if len(c.cancelledEarly) > maxKeys {
		c.cancelledEarly = c.cancelledEarly[1:]
	}
}

// cancel cancels the swap if it waits for its turn.
func (r *Run) cancel() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cancelled:
		return nil
	case r.over:
		return errOver(r.id)
	case r.begun:
		return launcher.Conflictf("cannot cancel swap %s: it has begun, and continues", r.id)
	}
	r.cancelWaiting()
	return nil
}

// cancelWaiting cancels a swap that waits. The lock is held.
func (r *Run) cancelWaiting() {
	r.cancelled = true
	if r.stopWaiting != nil {
		r.stopWaiting(errCancelled)
	}
}
