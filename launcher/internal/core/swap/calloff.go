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
	switch {
	case !known:
		return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap has this Idempotency-Key, or the launcher has forgotten it"}
	case r == nil:
		return nil, launcher.Conflictf("cannot cancel swap %s: it is over", id)
	case !r.cancelWait():
		return nil, launcher.Conflictf("cannot cancel swap %s: it has begun, and continues", r.ID())
	}
	return r, nil
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
