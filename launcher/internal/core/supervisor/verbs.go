package supervisor

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/machine/devmem"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Ask says how a verb is to be done.
type Ask struct {
	Level int           // of the sleep: 1 or 2; 0 means 1
	Drain time.Duration // negative: the launcher's default
	Limit time.Duration // for the answer of the engine; 0: the launcher's default
}

// lastLevel asks for the level of the instance's last sleep; 1 for one that never
// slept.
const lastLevel = -1

// Sleep begins to put an instance to sleep; [Supervisor.AwaitVerb] waits for the
// outcome.
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
	if err := launcherapi.CheckSleepLevel(ask.Level); err != nil {
		return launcherapi.Instance{}, launcher.Invalidf("body.level", "%w", err)
	}
	if ask.Drain < 0 {
		ask.Drain = s.opts.Limits.Drain
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	err = s.sleep(i, "", ask)
	return i.view(), err
}

// sleep is Sleep asked for by a swap, or without a swapID by a client. The lock is
// held.
func (s *Supervisor) sleep(i *instance, swapID string, ask Ask) error {
	return s.verb(i, swapID, ask, launcher.EventSleepAsked, s.opts.Limits.Sleep, func() error {
		switch {
		case i.state != launcher.Awake:
		case ask.Level == lastLevel:
			i.level = max(i.level, 1)
		default:
			i.level = ask.Level
		}
		if i.unheard && i.state == launcher.Awake {
			i.level = 2 // the wake sequence of level 2 wakes sleepers of both levels
		}
		return nil
	})
}

// Wake begins to wake an instance; [Supervisor.AwaitVerb] waits for the outcome.
//
//	state              effect
//	sleeping           room is checked, then the engine's wake sequence
//	waking, starting   none: it is on its way
//	awake              none
//	any other          error, code conflict
func (s *Supervisor) Wake(id string, ask Ask) (launcherapi.Instance, error) {
	memory := s.lockWithMemory(s.gpusOf(id))
	defer s.mu.Unlock()
	i, err := s.find(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	err = s.wake(i, "", ask, memory)
	return i.view(), err
}

// wake is Wake asked for by a swap, or without a swapID by a client. The lock is
// held.
func (s *Supervisor) wake(i *instance, swapID string, ask Ask, memory devmem.Reading) error {
	return s.verb(i, swapID, ask, launcher.EventWakeAsked, s.opts.Limits.Wake, func() error {
		if i.state != launcher.Sleeping {
			return nil
		}
		if err := s.notInSwap(i.gpus(), swapID); err != nil {
			return err
		}
		return s.refusal(i, swapID, memory)
	})
}

// refusal says why there is no room for a sleeper to wake; nil: there is room, or
// the instance sleeps no more. The lock is held.
func (s *Supervisor) refusal(i *instance, swapID string, memory devmem.Reading) error {
	if i.state != launcher.Sleeping {
		return nil
	}
	return ledger.Admit(s.world(memory), i.entry(nil).Want(swapID))
}

func (s *Supervisor) gpusOf(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.instances[id]; ok {
		return i.gpus()
	}
	return nil
}

// verb lets an event happen that a client or a swap asks for, after check has
// allowed the event. swapID is the swap that asks; empty: a client does. The lock
// is held.
func (s *Supervisor) verb(i *instance, swapID string, ask Ask, event launcher.Event, limit time.Duration, check func() error) error {
	if s.closing {
		return launcher.Unavailablef("the launcher is closing")
	}
	row, err := launcher.Next(i.state, event)
	if err != nil {
		return launcher.Conflictf("instance %s is %s: %w", i.facts.ID, i.state, err)
	}
	if row.To != row.From && i.swapID != swapID {
		return i.claimedError()
	}
	if row.To != row.From && i.facts.EnginePort == 0 {
		return launcher.Conflictf("instance %s cannot be told anything: %s", i.facts.ID, i.reason)
	}
	if err := check(); err != nil {
		s.refused(err)
		return err
	}
	if row.To == row.From {
		return nil
	}
	if ask.Limit > 0 {
		limit = ask.Limit
	}
	i.reason, i.cause = "", ""
	i.untime("drain")
	s.beginOperation(i, &operation{drain: ask.Drain, limit: limit})
	return s.happen(i, event, nil)
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

// Delete stops an instance's whole process tree, waits until it is gone and its
// device memory is back, and forgets it. When ctx ends first, or when the tree
// cannot be ended for long (an error of code engine_timeout), the end of the
// instance goes on after Delete has returned.
//
//	state               effect
//	stopped, failed     what is left is cleared, then forgotten
//	stopping            joins the stop, then forgotten
//	any other           SIGTERM, grace, SIGKILL, then forgotten
func (s *Supervisor) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	s.mu.Lock()
	i, err := s.find(id)
	if err == nil {
		err = s.stop(i)
	}
	s.mu.Unlock()
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.awaitForgotten(ctx, i)
}

// stop begins a Delete. The lock is held.
func (s *Supervisor) stop(i *instance) error {
	i.deleting = true
	if i.released {
		s.forget(i)
		return nil
	}
	if i.launching() {
		return nil // launched stops the instance as soon as the process is there
	}
	return s.happen(i, launcher.EventStopAsked, nil)
}

// launching says whether the process is being made just now.
func (i *instance) launching() bool {
	return i.state == launcher.Starting && i.tree == nil && !i.waiting
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
		case launcher.CodeOf(err) != launcherapi.CodeNotFound: // somebody else has deleted it
			failed = append(failed, err)
		}
	}
	return out, errors.Join(failed...)
}
