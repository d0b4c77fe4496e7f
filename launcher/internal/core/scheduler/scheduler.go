package scheduler

import (
	"context"
	"errors"
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

// Scheduler keeps the requests for models, and brings the models in.
type Scheduler struct {
	opts  Options
	ctx   context.Context //nolint:containedctx // the life of the scheduler and its actions
	stop  context.CancelFunc
	tasks sync.WaitGroup
	// Each has room for one.
	kick   chan struct{} // something has changed
	wanted chan struct{} // a model that is not awake has got its first request

	mu      sync.Mutex
	closed  bool
	waiting int                // requests of all models
	unmet   bool               // the last decision had models with requests wait
	models  map[string]*demand // by name; those that somebody has asked for or that an action changed
}

// New returns a scheduler. It acts from Run to Close.
func New(o Options) *Scheduler {
	s := &Scheduler{opts: o, kick: make(chan struct{}, 1), wanted: make(chan struct{}, 1), models: map[string]*demand{}}
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
	s.mu.Lock()
	s.closed = true
	for name, d := range s.models {
		s.refuse(d, closing(name))
	}
	s.mu.Unlock()
	s.stop()
	s.tasks.Wait()
}

// Kick tells the scheduler that something has changed. It never blocks.
func (s *Scheduler) Kick() { signal(s.kick) }

// signal sends on a channel that has room for one. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // whoever receives has not seen the signal before
	}
}

// Demand is what the scheduler knows of a model.
type Demand struct {
	Waiting, InFlight int
	Why               string // why requests wait; empty: it is not known, or none does
	Failures          int    // in a row
	Failure           string // the last of those
	HeldBack          bool   // its requests are refused until NotBefore, since it fails again and again
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
	shown := Demand{Waiting: len(d.waiting), InFlight: d.answered, Why: d.why, Failures: d.failures, HeldBack: d.isHeldBack(time.Now()), NotBefore: d.notBefore, Took: d.took}
	if d.failures > 0 {
		shown.Failure = d.cause.Error()
	}
	return shown
}

// After each step is a pause of so many times what the step took, so that looking at what changes
// all the time takes a twentieth of a processor at most. The first request for a model ends the pause.
const (
	pauses       = 20
	betweenSteps = time.Millisecond // the shortest pause
	longestPause = 10 * time.Millisecond
)

// run decides whenever something has changed, or a decision's time has come.
func (s *Scheduler) run() {
	next, pause := time.NewTimer(time.Hour), time.NewTimer(longestPause)
	defer next.Stop()
	defer pause.Stop()
	for {
		select {
		case <-s.wanted:
		case <-s.kick:
		case <-next.C:
		case <-s.ctx.Done():
			return
		}
		next.Stop()
		began := time.Now()
		if at := s.step(); !at.IsZero() {
			next.Reset(max(0, time.Until(at)))
		}
		pause.Reset(min(max(betweenSteps, pauses*time.Since(began)), longestPause))
		select {
		case <-pause.C:
		case <-s.wanted:
			signal(s.kick)
		case <-s.ctx.Done():
			return
		}
	}
}

// step looks at the fleet, lets requests through, and begins what is to be done. It returns when
// to do so again at the latest; zero: after a change.
func (s *Scheduler) step() time.Time {
	gpus, models := s.opts.Fleet.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return time.Time{}
	}
	there := map[string]bool{}
	for n := range models {
		there[models[n].Name] = true
		s.fillIn(&models[n])
	}
	models = append(models, s.forget(there)...)
	decision := Decide(World{Now: time.Now(), GPUs: gpus, Models: models, Turn: s.opts.Turn, MinResidency: s.opts.MinResidency})
	s.unmet = false
	for _, w := range decision.Waits {
		d := s.demand(w.Model)
		d.why, d.hopeless, s.unmet = w.Reason, w.Hopeless, s.unmet || w.Row != rowPreload
		if w.Hopeless {
			s.refuse(d, &NotBroughtInError{Model: w.Model, Err: &launcher.Error{Code: w.code(), Detail: w.Reason}})
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
	if d.acting != nil {
		m.Busy = true
		if isNew := m.State == "" || m.State.Ended(); isNew && d.acting.Model == m.Name && d.acting.Kind == Start { // the fleet does not show the new instance yet
			m.On = d.acting.GPUs
		}
	}
	d.on = m.On
	d.see(m)
	d.limit, d.awake = m.Concurrency, m.State == launcher.Awake && !m.Busy
	d.renewWhy(m)
	s.admit(d)
	if now := time.Now(); d.isHeldBack(now) {
		s.refuse(d, d.failure(m.Name, now))
	}
	m.InFlight = max(m.InFlight, d.answered)
	m.NotBefore, m.Return, m.Repeats = d.notBefore, d.took, d.repeats
	for _, used := range []time.Time{d.lastUsed, d.awakeSince} {
		if used.After(m.LastUsed) {
			m.LastUsed = used
		}
	}
	d.ask(m)
}

// forget forgets the models that are not there any more. It returns those whose GPUs an action
// still changes. The lock is held.
func (s *Scheduler) forget(there map[string]bool) (changing []Model) {
	for name, d := range s.models {
		if there[name] {
			continue
		}
		d.awake = false
		s.refuse(d, &NotBroughtInError{Model: name, Err: &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "it was removed while the request waited"}})
		switch {
		case d.acting != nil:
			changing = append(changing, Model{Name: name, Busy: true, On: slices.Concat(d.on, d.acting.GPUs)})
		case d.answered == 0:
			delete(s.models, name)
		}
	}
	return changing
}

// begin begins an action. The lock is held.
func (s *Scheduler) begin(a Action) {
	d := s.demand(a.Model)
	for _, name := range append([]string{a.Model}, a.Out...) {
		s.demand(name).acting, s.demand(name).awake = &a, false
		s.demand(name).why = "it falls asleep, since it is the turn of " + a.Model
	}
	d.why, d.hopeless = a.reason(), false
	s.opts.Logger.Info("the front door changes what is awake", "action", a.Kind, "why", a.Row, "model", a.Model, "gpus", a.GPUs, "out", a.Out, "waiting", len(d.waiting))
	s.tasks.Go(func() {
		began := time.Now()
		err := s.opts.Fleet.Do(s.ctx, a)
		s.finish(a, time.Since(began), err)
	})
}

// finish notes the end of an action.
func (s *Scheduler) finish(a Action, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.Kick()
	for _, name := range append([]string{a.Model}, a.Out...) {
		s.demand(name).acting = nil
	}
	d, now := s.demand(a.Model), time.Now()
	d.why = ""
	_, leaverFailed := errors.AsType[*LeaverFailedError](err)
	comesIn := a.Kind == Start || a.Kind == Wake
	switch {
	case err == nil && comesIn:
		d.conflicts, d.took, d.awakeSince, d.wasAwake = 0, took, now, true
		d.awake = true // the requests need not wait for the next look
		s.admit(d)
	case err == nil:
		d.conflicts = 0
	case s.ctx.Err() != nil:
	case leaverFailed && d.conflicts < mostConflicts:
		d.conflicts++ // and its requests get the GPUs before that model comes back
	case isConflict(err) && d.conflicts < mostConflicts:
		d.conflicts++
		d.notBefore = now.Add(afterConflict)
	case !comesIn:
		d.conflicts, d.notBefore = 0, now.Add(afterRefusal)
	default:
		d.conflicts = 0
		d.failed(now, err)
		s.refuse(d, d.failure(a.Model, now))
	}
	if err != nil {
		s.opts.Logger.Warn("the front door could not change what is awake", "action", a.Kind, "model", a.Model, "error", err)
	}
}

// isConflict reports whether somebody else got there first, or an engine that has ended still holds
// memory, so that another look may find a way.
func isConflict(err error) bool {
	e, ok := errors.AsType[*launcher.Error](err)
	switch {
	case !ok:
		return false
	case e.Code == launcherapi.CodeConflict, e.Code == launcherapi.CodeExists:
		return true
	}
	return e.Fit != nil && slices.ContainsFunc(e.Fit.Holders, func(h launcherapi.GPUHolder) bool { return h.Bytes > 0 && launcher.State(h.State).Ended() })
}
