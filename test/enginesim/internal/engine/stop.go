package engine

import "context"

// Die ends every request, sleep and wake with ErrDead, from now on.
func (e *Engine) Die() { e.change(func() { e.dead = true }) }

// Stop ends the requests in flight as a sleep would; none is answered any more.
func (e *Engine) Stop() {
	e.change(func() {
		e.paused = pausedNew
		for r := range e.live {
			r.aborted = true
		}
	})
}

// Freeze stops every request in flight where it is, and takes no more.
func (e *Engine) Freeze() { e.change(func() { e.paused = pausedAll }) }

// Reach returns when every worker has answered.
func (e *Engine) Reach() error {
	if e.State().Dead {
		return ErrDead
	}
	return e.opts.Executor.Reach()
}

// Drain waits until no request is in flight.
func (e *Engine) Drain(ctx context.Context) error {
	return e.until(ctx, func() bool { return len(e.live) == 0 })
}
