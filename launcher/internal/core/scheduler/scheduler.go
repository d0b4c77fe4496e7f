package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Fleet is the launcher as the scheduler sees it.
type Fleet interface {
	// Look returns the GPUs and the models with their instances, as they are now. The scheduler
	// fills in what it knows itself: the requests that wait, failures, and what it is doing.
	Look() ([]GPU, []Model)
	// Do carries out an action, and returns when it is over.
	Do(ctx context.Context, a Action) error
}

// Options of a Scheduler.
type Options struct {
	Fleet Fleet
	// MaxWaiting bounds the requests that wait for one model.
	MaxWaiting int
	// Turn and MinResidency are as in a World.
	Turn, MinResidency time.Duration
	Logger             *slog.Logger
}

// FullError says that too many requests wait for a model.
type FullError struct {
	Model   string
	Waiting int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("too many requests wait for the model %s: %d", e.Model, e.Waiting)
}

// NotBroughtInError says why a model is not awake. Its cause has the code of a [launcher.Error],
// if the launcher tried.
type NotBroughtInError struct {
	Model string
	Err   error
	Retry time.Duration // when it is tried again; 0: nothing was tried
}

func (e *NotBroughtInError) Error() string {
	return fmt.Sprintf("the model %s could not be made awake: %v", e.Model, e.Err)
}

func (e *NotBroughtInError) Unwrap() error { return e.Err }

// Scheduler keeps the requests for models, and brings the models in.
type Scheduler struct {
	opts  Options
	ctx   context.Context //nolint:containedctx // the life of the scheduler and its actions
	stop  context.CancelFunc
	tasks sync.WaitGroup
	kick  chan struct{} // has room for one: something has changed

	mu     sync.Mutex
	closed bool
	models map[string]*demand // by name; those that somebody has asked for or that an action changed
}

// demand is what the scheduler knows of a model.
type demand struct {
	awake    bool // when it was last looked at, and no action has begun since
	waiting  []*Ticket
	inFlight int
	lastUsed time.Time
	why      string // why it waits

	acting    bool
	took      time.Duration // the last wake or start
	failures  int           // in a row
	conflicts int           // in a row
	notBefore time.Time
}

// Ticket is one request for a model.
type Ticket struct {
	s        *Scheduler
	model    string
	priority int
	since    time.Time
	ready    chan struct{}

	// The scheduler's lock guards these.
	admitted bool
	err      error
}

// New returns a scheduler. It acts from Run to Close.
func New(o Options) *Scheduler {
	s := &Scheduler{opts: o, kick: make(chan struct{}, 1), models: map[string]*demand{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Run begins to act.
func (s *Scheduler) Run() {
	s.Kick()
	s.tasks.Go(s.run)
}

// Close fails the requests that wait, ends the actions that run, and waits for them.
func (s *Scheduler) Close() {
	s.stop()
	s.tasks.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for name, d := range s.models {
		d.fail(closing(name))
	}
}

func closing(model string) error {
	return &NotBroughtInError{Model: model, Err: launcher.Unavailablef("the launcher is closing")}
}

// Kick tells the scheduler that something has changed. It never blocks.
func (s *Scheduler) Kick() {
	select {
	case s.kick <- struct{}{}:
	default: // it will look anyway
	}
}

func (s *Scheduler) demand(model string) *demand {
	d := s.models[model]
	if d == nil {
		d = &demand{}
		s.models[model] = d
	}
	return d
}

// Enter asks for a model. The error is a *[FullError], or a *[NotBroughtInError] after Close. The caller calls Leave at the end of the
// request.
func (s *Scheduler) Enter(model string, priority int) (*Ticket, error) {
	t := &Ticket{s: s, model: model, priority: priority, since: time.Now(), ready: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closing(model)
	}
	d := s.demand(model)
	if d.awake && len(d.waiting) == 0 {
		d.admit(t)
		return t, nil
	}
	if len(d.waiting) >= s.opts.MaxWaiting {
		return nil, &FullError{Model: model, Waiting: len(d.waiting)}
	}
	d.waiting = append(d.waiting, t)
	s.Kick()
	return t, nil
}

// admit lets a request through. The lock is held.
func (d *demand) admit(t *Ticket) {
	t.admitted = true
	d.inFlight++
	close(t.ready)
}

// fail refuses the requests that wait. The lock is held.
func (d *demand) fail(err error) {
	for _, t := range d.waiting {
		t.err = err
		close(t.ready)
	}
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
	return t.s.demand(t.model).why
}

// Leave ends the request.
func (t *Ticket) Leave() {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.demand(t.model)
	if t.admitted {
		d.inFlight--
		d.lastUsed = time.Now()
	} else if n := slices.Index(d.waiting, t); n >= 0 {
		d.waiting = slices.Delete(d.waiting, n, n+1)
	}
	s.Kick()
}

// Load returns how many requests a model has: those that wait, and those that are answered.
func (s *Scheduler) Load(model string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.models[model]; d != nil {
		return len(d.waiting) + d.inFlight
	}
	return 0
}

// Demand is what the scheduler knows of a model.
type Demand struct {
	Waiting, InFlight int
	Why               string // why requests wait; empty: it is not known, or none does
	Failures          int    // in a row
	NotBefore         time.Time
	Took              time.Duration // the last wake or start
}

// Show returns what the scheduler knows of a model.
func (s *Scheduler) Show(model string) Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.models[model]
	if d == nil {
		return Demand{}
	}
	return Demand{Waiting: len(d.waiting), InFlight: d.inFlight, Why: d.why, Failures: d.failures, NotBefore: d.notBefore, Took: d.took}
}

// run decides whenever something has changed, or a decision's time has come.
func (s *Scheduler) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.kick:
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		timer.Stop()
		if next := s.step(); !next.IsZero() {
			timer.Reset(max(0, time.Until(next)))
		}
	}
}

// step looks at the fleet, lets requests through, and begins what is to be done. It returns when
// to do so again at the latest; zero: after a change.
func (s *Scheduler) step() time.Time {
	gpus, models := s.opts.Fleet.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[string]bool{}
	for n := range models {
		there[models[n].Name] = true
		s.fillIn(&models[n])
	}
	s.forget(there)
	decision := Decide(World{Now: time.Now(), GPUs: gpus, Models: models, Turn: s.opts.Turn, MinResidency: s.opts.MinResidency})
	for _, w := range decision.Waits {
		d := s.demand(w.Model)
		d.why = w.Reason
		if w.Hopeless {
			d.fail(&NotBroughtInError{Model: w.Model, Err: &launcher.Error{Code: launcherapi.CodeDoesNotFit, Detail: w.Reason}})
		}
	}
	for _, a := range decision.Actions {
		s.begin(a)
	}
	return decision.Next
}

// fillIn fills in what the scheduler knows of a model, and lets its requests through if it is
// awake. The lock is held.
func (s *Scheduler) fillIn(m *Model) {
	d := s.demand(m.Name)
	m.Busy = m.Busy || d.acting
	d.awake = m.State == launcher.Awake && !m.Busy
	if d.awake {
		for _, t := range d.waiting {
			d.admit(t)
		}
		d.waiting, d.why = nil, ""
	}
	m.InFlight = max(m.InFlight, d.inFlight)
	m.NotBefore, m.Return = d.notBefore, d.took
	if d.lastUsed.After(m.LastUsed) {
		m.LastUsed = d.lastUsed
	}
	m.Waiting = len(d.waiting)
	if !d.awake && d.inFlight > 0 && m.Held > 0 { // they were let through just before it fell asleep
		m.Waiting, m.WaitingSince = m.Waiting+min(d.inFlight, m.Held), m.Since
	}
	for _, t := range d.waiting {
		m.Priority = max(m.Priority, t.priority)
		if m.WaitingSince.IsZero() || t.since.Before(m.WaitingSince) {
			m.WaitingSince = t.since
		}
	}
}

// forget forgets the models that are not there any more. The lock is held.
func (s *Scheduler) forget(there map[string]bool) {
	for name, d := range s.models {
		if there[name] {
			continue
		}
		d.awake = false
		d.fail(&NotBroughtInError{Model: name, Err: launcher.NotFound(name)})
		if d.inFlight == 0 && !d.acting {
			delete(s.models, name)
		}
	}
}

// begin begins an action. The lock is held.
func (s *Scheduler) begin(a Action) {
	d := s.demand(a.Model)
	for _, name := range append([]string{a.Model}, a.Out...) {
		s.demand(name).acting, s.demand(name).awake = true, false
	}
	s.opts.Logger.Info("the front door changes what is awake", "action", a.Kind, "model", a.Model, "gpus", a.GPUs, "out", a.Out, "waiting", len(d.waiting))
	s.tasks.Go(func() {
		began := time.Now()
		err := s.opts.Fleet.Do(s.ctx, a)
		s.finish(a, time.Since(began), err)
	})
}

// How long a model that failed is left alone: longer from failure to failure.
const (
	shortestBackOff = time.Second
	longestBackOff  = time.Minute
	// afterConflict is the pause after somebody else got there first.
	afterConflict = 200 * time.Millisecond
	mostConflicts = 25
)

// finish notes the end of an action.
func (s *Scheduler) finish(a Action, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.Kick()
	for _, name := range append([]string{a.Model}, a.Out...) {
		s.demand(name).acting = false
	}
	d := s.demand(a.Model)
	if err == nil {
		d.failures, d.conflicts, d.notBefore = 0, 0, time.Time{}
		if a.Kind == Start || a.Kind == Wake {
			d.took = took
		}
		return
	}
	s.opts.Logger.Warn("the front door could not change what is awake", "action", a.Kind, "model", a.Model, "error", err)
	if s.ctx.Err() != nil {
		return
	}
	if isConflict(err) && d.conflicts < mostConflicts {
		d.conflicts++
		d.notBefore = time.Now().Add(afterConflict)
		return
	}
	wait := shortestBackOff << min(d.failures, 10)
	d.failures++
	d.conflicts = 0
	d.notBefore = time.Now().Add(min(wait, longestBackOff))
	d.fail(&NotBroughtInError{Model: a.Model, Err: err, Retry: min(wait, longestBackOff)})
}

// isConflict reports whether somebody else got there first, so that another look may find a way.
func isConflict(err error) bool {
	code := launcher.CodeOf(err)
	return code == launcherapi.CodeConflict || code == launcherapi.CodeExists
}
