package scheduler

import (
	"fmt"
	"slices"
	"time"
)

// FullError says that too many requests wait for a model.
type FullError struct {
	Model   string
	Waiting int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("too many requests wait for the model %s: %d; ask again later, or raise --max-held-requests", e.Model, e.Waiting)
}

// Ticket is one request for a model.
type Ticket struct {
	s     *Scheduler
	model string
	since time.Time
	ready chan struct{}

	// The scheduler's lock guards these.
	admitted bool
	err      error
}

// Enter asks for a model. The error is a *[FullError], or a *[NotBroughtInError] if the model is
// held back or the scheduler was closed. The caller calls Leave at the end of the request.
func (s *Scheduler) Enter(model string) (*Ticket, error) {
	t := &Ticket{s: s, model: model, since: time.Now(), ready: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closing(model)
	}
	d := s.demand(model)
	switch {
	case d.hasRoom() && len(d.waiting) == 0:
		d.letThrough(t)
		return t, nil
	case !d.awake && d.isHeldBack(t.since):
		return nil, d.failure(model, t.since)
	case len(d.waiting) >= s.opts.MaxWaiting:
		return nil, &FullError{Model: model, Waiting: len(d.waiting)}
	}
	d.waiting = append(d.waiting, t)
	s.waiting++
	if !d.awake && len(d.waiting) == 1 {
		signal(s.wanted)
	}
	return t, nil
}

// hasRoom reports whether the model answers another request at once.
func (d *demand) hasRoom() bool { return d.awake && (d.limit == 0 || d.answered < d.limit) }

// letThrough lets a request through. The lock is held.
func (d *demand) letThrough(t *Ticket) {
	t.admitted = true
	if d.answered == 0 && !d.lastUsed.Before(d.awakeSince) && !d.lastUsed.IsZero() && t.since.Sub(d.lastUsed) < lingers {
		d.repeats = true
	}
	d.answered++
	close(t.ready)
}

// admit lets as many requests through as the model answers at once. The lock is held.
func (s *Scheduler) admit(d *demand) {
	n := 0
	for ; n < len(d.waiting) && d.hasRoom(); n++ {
		d.letThrough(d.waiting[n])
	}
	d.waiting = slices.Delete(d.waiting, 0, n)
	s.waiting -= n
}

// refuse fails the requests that wait. The lock is held.
func (s *Scheduler) refuse(d *demand, err error) {
	for _, t := range d.waiting {
		t.err = err
		close(t.ready)
	}
	s.waiting -= len(d.waiting)
	d.waiting = nil
}

// Ready is closed once the model is awake, or the request has failed.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Err returns why the request has failed; nil: its model is awake. It is for use after Ready.
func (t *Ticket) Err() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.err
}

// Why says why the model is not awake yet; empty: it is not known.
func (t *Ticket) Why() string {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if d := t.s.models[t.model]; d != nil {
		return d.why
	}
	return ""
}

// Again has a request that was let through wait again, since its model is not awake any more. It
// keeps its place by the time at which it came.
func (t *Ticket) Again() {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.admitted, t.ready = false, make(chan struct{})
	d := s.models[t.model]
	if s.closed || d == nil { // a model that has requests is not forgotten
		t.err = closing(t.model)
		close(t.ready)
		return
	}
	d.answered--
	d.awake = false // until the next look
	n := 0
	for n < len(d.waiting) && d.waiting[n].since.Before(t.since) {
		n++
	}
	d.waiting = slices.Insert(d.waiting, n, t)
	s.waiting++
	s.Kick()
}

// Leave ends the request. A place that becomes free goes to the next one that waits.
func (t *Ticket) Leave() {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.models[t.model]
	if d == nil { // it was forgotten
		return
	}
	if t.admitted {
		d.answered--
		d.lastUsed = time.Now()
		s.admit(d)
	} else if n := slices.Index(d.waiting, t); n >= 0 {
		d.waiting = slices.Delete(d.waiting, n, n+1)
		s.waiting--
	}
	if s.isWaitedFor() && d.answered == 0 { // another model may get the GPUs
		s.Kick()
	}
}

// isWaitedFor reports whether requests wait, here or at the gate of a model. The lock is held.
func (s *Scheduler) isWaitedFor() bool { return s.waiting > 0 || s.unmet }
