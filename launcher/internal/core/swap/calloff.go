package swap

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var (
	errCalledOff  = launcher.Conflictf("the swap was called off while it waited for its turn")
	errNeverComes = launcher.Conflictf("the swap was called off before it came: use a new Idempotency-Key for a new request")
)

// CallOff ends the wait of the swap that came with a key: the swap is refused, and
// has touched nothing. A swap that has begun goes on, and one that is over stays as
// it is: both are errors of code conflict. For a key that no swap has come with,
// the error has code not_found, and a swap that comes with that key later is
// refused: its client's request was slower than the calling off. That is forgotten
// with the launcher: a request that was on its way to it ends with it, too.
func (c *Coordinator) CallOff(key string) (*Run, error) {
	c.mu.Lock()
	k, known := c.keys[key]
	if !known {
		k = &kept{}
		c.callOffEarly(key)
	}
	r, id := k.run, k.saved.Plan.SwapID
	c.mu.Unlock()
	switch {
	case !known:
		return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap came with this Idempotency-Key, or it is forgotten"}
	case r == nil:
		return nil, launcher.Conflictf("swap %s is over", id)
	case !r.callOff():
		return nil, launcher.Conflictf("swap %s has begun, and goes on", r.ID())
	}
	return r, nil
}

// callOffEarly has a swap refused that comes with this key from now on. The oldest
// such keys are forgotten. The lock is held.
func (c *Coordinator) callOffEarly(key string) {
	c.early = append(c.early, key)
	if len(c.early) > keptKeys {
		c.early = c.early[1:]
	}
}

// callOff calls the swap off, and says whether it was still waiting.
func (r *Run) callOff() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun {
		return false
	}
	r.off = true
	if r.giveUp != nil {
		r.giveUp(errCalledOff)
	}
	return true
}
