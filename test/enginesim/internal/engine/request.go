package engine

import (
	"context"
	"errors"
	"time"
)

// ErrAborted is what a request gets that a sleep or a pause cut short.
var ErrAborted = errors.New("aborted")

// Request is one request in flight.
type Request struct {
	e       *Engine
	aborted bool
	running bool
	garbled bool
}

// Begin queues a request, which takes the workers to answer: while one of them
// hangs, so does this. The caller ends the request.
func (e *Engine) Begin() (*Request, error) {
	if e.State().Dead {
		return nil, ErrDead
	}
	r := &Request{e: e}
	e.change(func() { e.live[r] = struct{}{} })
	if err := e.opts.Executor.Reach(); err != nil {
		r.End()
		return nil, err
	}
	return r, nil
}

// End takes the request away.
func (r *Request) End() {
	r.e.change(func() {
		delete(r.e.live, r)
		if r.running {
			r.e.running--
		}
	})
}

// Step waits until the request may have its next token, and then for the time
// that making it takes. Errors are ErrAborted, ErrDead or ctx's.
func (r *Request) Step(ctx context.Context, d time.Duration) error {
	if err := r.admit(ctx); err != nil {
		return err
	}
	return r.pace(ctx, d)
}

// admit waits for a slot and for the scheduler.
func (r *Request) admit(ctx context.Context) error {
	e := r.e
	err := e.until(ctx, func() bool {
		switch {
		case r.aborted:
			return true
		case e.mute:
			return false
		case r.running:
			return e.paused != pausedAll
		case e.paused == unpaused && e.running < e.opts.Slots:
			r.running = true
			e.running++
			r.garbled = e.garbled
			return true
		}
		return false
	})
	if err == nil && r.isAborted() {
		return ErrAborted
	}
	return err
}

// pace waits for d; an abort or a death of the engine ends it early.
func (r *Request) pace(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := r.e.until(over, func() bool { return r.aborted })
	switch {
	case err == nil:
		return ErrAborted
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return err
}

func (r *Request) isAborted() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.aborted
}

// Garbled says whether the weights were not loaded when the request began to
// run, so that its answer is nonsense.
func (r *Request) Garbled() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.garbled
}
