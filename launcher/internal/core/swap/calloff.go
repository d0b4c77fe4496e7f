package swap

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var (
	errCancelled      = launcher.Conflictf("the swap was cancelled while it waited for its turn")
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
	if !known {
		return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap has this Idempotency-Key, or the launcher has forgotten it"}
	}
	return r, cancelled(r, id)
}

// Cancel cancels the swap with that id as CallOff does. The error has the code not_found if no
// swap has the id.
func (c *Coordinator) Cancel(id string) (*Run, error) {
	r, err := c.Get(id)
	if err != nil {
		return nil, err
	}
	if r.isOver() {
		return nil, cancelled(nil, id)
	}
	return r, cancelled(r, id)
}

// cancelled cancels a swap, nil if it is over.
func cancelled(r *Run, id string) error {
	switch {
	case r == nil:
		return launcher.Conflictf("cannot cancel swap %s: it is over", id)
	case !r.cancelWait():
		return launcher.Conflictf("cannot cancel swap %s: it has begun, and continues", id)
	}
	return nil
}

// cancelEarly makes the coordinator refuse any later swap with this key. It forgets the
// oldest such keys. The lock is held.
func (c *Coordinator) cancelEarly(key string) {
	c.cancelledEarly = append(c.cancelledEarly, key)
	if len(c.cancelledEarly) > maxKeys {
		c.cancelledEarly = c.cancelledEarly[1:]
	}
}

// cancelWait cancels the swap and reports whether the swap was still waiting.
func (r *Run) cancelWait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun {
		return false
	}
	r.cancelled = true
	if r.stopWaiting != nil {
		r.stopWaiting(errCancelled)
	}
	return true
}
