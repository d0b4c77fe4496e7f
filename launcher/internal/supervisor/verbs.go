package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Ask says how a verb is to be done.
type Ask struct {
	Level  int           // of a sleep: 1 or 2; 0 means 1, LastLevel the one before
	Drain  time.Duration // negative: the launcher's default
	Limit  time.Duration // for the engine's answer; 0: the launcher's default
	SwapID string        // the swap that asks, if any
}

// LastLevel is the level that an instance slept at last; 1 if it never did.
const LastLevel = -1

// Sleep puts an instance to sleep. It returns once that has begun; the outcome
// is awaited with [Supervisor.AwaitVerb].
//
//	state            effect
//	awake            gate shut, drain, engine's sleep sequence
//	falling_asleep   none: it is on its way
//	sleeping         none, whatever its level
//	any other        error, code conflict
func (s *Supervisor) Sleep(id string, ask Ask) (launcherapi.Instance, error) {
	if ask.Level == 0 {
		ask.Level = 1
	}
	if err := launcherapi.CheckSleepLevel(ask.Level); err != nil && ask.Level != LastLevel {
		return launcherapi.Instance{}, launcher.Invalidf("body.level", "%w", err)
	}
	if ask.Drain < 0 {
		ask.Drain = s.opts.Limits.Drain
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verb(id, ask, launcher.EventSleepAsked, s.opts.Limits.Sleep, func(i *instance) error {
		switch {
		case i.state != launcher.Awake:
		case ask.Level == LastLevel:
			i.level = max(i.level, 1)
		default:
			i.level = ask.Level
		}
		return nil
	})
}

// Wake wakes an instance. It returns once that has begun; the outcome is
// awaited with [Supervisor.AwaitVerb].
//
//	state              effect
//	sleeping           room is checked, then the engine's wake sequence
//	waking, starting   none: it is on its way
//	awake              none
//	any other          error, code conflict
//
// The room that a swap keeps for the instance was checked when the swap was
// admitted; it is not checked again.
func (s *Supervisor) Wake(id string, ask Ask) (launcherapi.Instance, error) {
	if s.hasRoom(id, ask.SwapID) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.verb(id, ask, launcher.EventWakeAsked, s.opts.Limits.Wake, func(*instance) error { return nil })
	}
	memory := s.lockWithMemory(s.gpusOf(id))
	defer s.mu.Unlock()
	return s.verb(id, ask, launcher.EventWakeAsked, s.opts.Limits.Wake, func(i *instance) error {
		if i.state != launcher.Sleeping {
			return nil
		}
		if err := s.notInSwap(i.gpus(), ask.SwapID); err != nil {
			return err
		}
		return ledger.Admit(s.world(memory), i.entry(nil).Want(ask.SwapID))
	})
}

func (s *Supervisor) gpusOf(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.instances[id]; ok {
		return i.gpus()
	}
	return nil
}

// verb lets an asked-for event happen, after check has allowed it. The lock is
// held.
func (s *Supervisor) verb(id string, ask Ask, event launcher.Event, limit time.Duration, check func(*instance) error) (launcherapi.Instance, error) {
	i, ok := s.instances[id]
	if !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	if s.closing {
		return i.view(), launcher.Unavailablef("the launcher is closing")
	}
	row, err := launcher.Next(i.state, event)
	if err != nil {
		return i.view(), launcher.Conflictf("instance %s is %s: %w", id, i.state, err)
	}
	if row.To != row.From && i.swapID != ask.SwapID {
		return i.view(), i.claimedError()
	}
	if row.To != row.From && i.facts.EnginePort == 0 {
		return i.view(), launcher.Conflictf("instance %s cannot be told anything: %s", id, i.reason)
	}
	if err := check(i); err != nil {
		s.refused(err)
		return i.view(), err
	}
	if row.To == row.From {
		return i.view(), nil
	}
	if ask.Limit > 0 {
		limit = ask.Limit
	}
	i.reason, i.cause = "", ""
	i.untime("drain")
	s.beginOperation(i, &operation{drain: ask.Drain, limit: limit})
	err = s.happen(i, event, nil)
	return i.view(), err
}

// AwaitVerb waits until the instance has reached the wanted state, and says
// why not when it ends up elsewhere: code engine_failed, engine_timeout or
// conflict. When ctx ends first the engine goes on.
func (s *Supervisor) AwaitVerb(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error) {
	view, err := s.Await(ctx, id, Settled)
	if err != nil || view.State == string(want) {
		return view, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return view, launcher.NotFound(id)
	}
	view = i.view()
	if view.State == string(want) {
		return view, nil
	}
	return view, i.failure(want)
}

// failure says why the instance is not in the wanted state. The lock is held.
func (i *instance) failure(want launcher.State) error {
	if i.state == launcher.Stopped || i.state == launcher.Stopping {
		return launcher.Conflictf("instance %s was stopped before it was %s", i.facts.ID, want)
	}
	e := launcher.EngineFailedf("instance %s is %s, not %s: %s", i.facts.ID, i.state, want, i.reason)
	if i.op != nil && errors.Is(i.op.err, context.DeadlineExceeded) || i.cause == causeStartTimeout {
		e = launcher.EngineTimeoutf("instance %s is %s, not %s: %s", i.facts.ID, i.state, want, i.reason)
	}
	e.InstanceID, e.FailureCause, e.LastLogLines = i.facts.ID, i.cause, i.lastLog
	if i.exit != nil {
		e.ExitCode = i.exit.Code
	}
	return e
}

// Delete stops an instance's whole process tree, waits until it is gone and
// its device memory is back, and forgets it. It goes on when ctx ends first, and
// when the tree cannot be ended for long, which is an error of code
// engine_timeout.
//
//	state               effect
//	stopped, failed     what is left is cleared, then forgotten
//	stopping            joins the stop, then forgotten
//	any other           SIGTERM, grace, SIGKILL, then forgotten
func (s *Supervisor) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	i, err := s.stop(id, nil)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.awaitForgotten(ctx, i)
}

// stop begins a Delete. may, which may be nil, refuses it.
func (s *Supervisor) stop(id string, may func(*instance) error) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return nil, launcher.NotFound(id)
	}
	if may != nil {
		if err := may(i); err != nil {
			return nil, err
		}
	}
	i.deleting = true
	if i.released {
		s.forget(i)
		return i, nil
	}
	if i.launching() {
		return i, nil // launch sees it as soon as the process is there
	}
	return i, s.happen(i, launcher.EventStopAsked, nil)
}

// launching says whether the process is being made just now.
func (i *instance) launching() bool {
	return i.state == launcher.Starting && i.tree == nil && !i.waiting
}

// awaitForgotten waits until the instance is forgotten, and shows how it ended.
func (s *Supervisor) awaitForgotten(ctx context.Context, i *instance) (launcherapi.Instance, error) {
	began := time.Now()
	for {
		s.mu.Lock()
		view, changed, forgotten, stuck := i.view(), i.changed, s.instances[i.facts.ID] != i, i.stuck(began)
		s.mu.Unlock()
		if forgotten {
			view.Status = launcherapi.StatusStopped
			if !launcher.State(view.State).Ended() { // it never ran
				view.State = string(launcher.Stopped)
			}
			return view, nil
		}
		if stuck != nil {
			return view, stuck
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return view, fmt.Errorf("instance %s is still %s: %w", i.facts.ID, view.State, context.Cause(ctx))
		}
	}
}

// DeleteAll stops and forgets every instance, all at once.
func (s *Supervisor) DeleteAll(ctx context.Context) ([]launcherapi.Instance, error) {
	all, _ := s.List()
	stopped := make([]launcherapi.Instance, len(all))
	errs := make([]error, len(all))
	done := make(chan struct{})
	for n, i := range all {
		go func() {
			stopped[n], errs[n] = s.Delete(ctx, i.InstanceID)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	var out []launcherapi.Instance
	var failed []error
	for n, err := range errs {
		switch {
		case err == nil:
			out = append(out, stopped[n])
		case launcher.CodeOf(err) != launcherapi.CodeNotFound: // somebody else was quicker
			failed = append(failed, err)
		}
	}
	return out, errors.Join(failed...)
}
