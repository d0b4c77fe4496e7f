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

// sameLevel is the level of the instance's last sleep, or 1 if it never slept.
const sameLevel = -1

// Sleep begins to put an instance to sleep; [Supervisor.AwaitState] waits for the
// outcome.
//
//	state            effect
//	awake            gate shut, drain, engine's sleep sequence; a worker that still loads: error, code conflict
//	falling_asleep   none: the sleep goes on
//	sleeping         none, whatever its level
//	any other        error, code conflict
func (s *Supervisor) Sleep(id string, ask launcher.VerbRequest) (launcherapi.Instance, error) {
	if ask.Level == 0 {
		ask.Level = 1
	}
	if err := launcherapi.CheckSleepLevel(ask.Level); err != nil {
		return launcherapi.Instance{}, launcher.Invalidf("body.level", "%w", err)
	}
	if ask.Drain < 0 {
		ask.Drain = s.opts.Limits.Drain
	}
	s.lockWithMemory(s.unconfirmedGPUs(id))
	defer s.mu.Unlock()
	i, err := s.find(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	err = s.sleep(i, "", ask)
	return i.view(), err
}

// sleep is Sleep for a swap or, without a swapID, for a client. The lock is held.
func (s *Supervisor) sleep(i *instance, swapID string, ask launcher.VerbRequest) error {
	return s.verb(i, swapID, ask, launcher.EventSleepAsked, s.opts.Limits.Sleep, func() error {
		if err := i.unconfirmedError(); swapID == "" && err != nil { // the claim of a swap has checked that, and its undo goes on
			return err
		}
		switch {
		case i.state != launcher.Awake:
		case ask.Level == sameLevel:
			i.level = max(i.level, 1)
		default:
			i.level = ask.Level
		}
		if i.sleepUnknown && i.state == launcher.Awake {
			i.level = 2 // the wake sequence of level 2 wakes sleepers of both levels
		}
		return nil
	})
}

// Wake begins to wake an instance; [Supervisor.AwaitState] waits for the outcome.
//
//	state              effect
//	sleeping           room is checked, then the engine's wake sequence
//	waking, starting   none: the wake or start goes on
//	awake              none
//	any other          error, code conflict
func (s *Supervisor) Wake(id string, ask launcher.VerbRequest) (launcherapi.Instance, error) {
	memory := s.lockWithMemory(s.gpusOf(id))
	defer s.mu.Unlock()
	i, err := s.find(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	err = s.wake(i, "", ask, memory)
	return i.view(), err
}

// wake is Wake for a swap or, without a swapID, for a client. The lock is held.
func (s *Supervisor) wake(i *instance, swapID string, ask launcher.VerbRequest, memory devmem.Reading) error {
	return s.verb(i, swapID, ask, launcher.EventWakeAsked, s.opts.Limits.Wake, func() error {
		if i.state != launcher.Sleeping {
			return nil
		}
		if err := s.checkNotInSwap(i.gpus(), swapID); err != nil {
			return err
		}
		return s.wakeRefusal(i, swapID, memory)
	})
}

// wakeRefusal returns why there is no room for a sleeper to wake. It returns nil if there
// is room, or if the instance no longer sleeps. The lock is held.
func (s *Supervisor) wakeRefusal(i *instance, swapID string, memory devmem.Reading) error {
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

// verb applies an event that a swap or, without a swapID, a client asks for, if check
// allows it. The lock is held.
func (s *Supervisor) verb(i *instance, swapID string, ask launcher.VerbRequest, event launcher.Event, limit time.Duration, check func() error) error {
	if s.closing {
		return launcher.Unavailablef("the launcher is closing")
	}
	row, err := launcher.Next(i.state, event)
	if err != nil {
		return launcher.Conflictf("instance %s: %w", i.facts.ID, err)
	}
	if row.To != row.From && i.swapID != swapID {
		return i.claimedError()
	}
	if row.To != row.From && !i.facts.knowsEngine() && !i.isWorker() {
		return launcher.Conflictf("cannot reach the engine of instance %s: %s", i.facts.ID, i.reason)
	}
	if err := check(); err != nil {
		s.countRefusal(err)
		return err
	}
	if row.To == row.From {
		return nil
	}
	if ask.Limit > 0 {
		limit = ask.Limit
	}
	if i.isWorker() {
		limit += ask.Drain // of the entry, which drains before it sleeps
	}
	i.reason, i.cause = "", ""
	i.removeTiming("drain")
	if event == launcher.EventWakeAsked && i.restarts() {
		limit = max(limit, s.opts.Limits.Start)
	}
	same := event == launcher.EventWakeAsked || ask.Level == sameLevel
	s.beginOperation(i, &operation{drain: ask.Drain, limit: limit, levelOnDisk: same && i.level == i.levelOnDisk && !i.restarts()})
	return s.transition(i, event, nil)
}

// stateError returns why the instance is not in the wanted state. The lock is held.
func (i *instance) stateError(want launcher.State) error {
	if i.state == launcher.Stopped || i.state == launcher.Stopping {
		return launcher.Conflictf("instance %s was stopped before it became %s", i.facts.ID, want)
	}
	e := launcher.EngineFailedf("instance %s is %s, not %s: %s", i.facts.ID, i.state, want, i.reason)
	if i.op != nil && errors.Is(i.op.err, context.DeadlineExceeded) || i.cause == causeStartTimeout {
		e = launcher.EngineTimeoutf("instance %s is %s, not %s: %s", i.facts.ID, i.state, want, i.reason)
	}
	if i.op != nil && launcher.CodeOf(i.op.err) == launcherapi.CodeStorage {
		e = launcher.Storagef("instance %s is %s, not %s: %s", i.facts.ID, i.state, want, i.reason)
	}
	e.InstanceID, e.FailureCause, e.LastLogLines = i.facts.ID, i.cause, i.lastLog
	if i.exit != nil {
		e.ExitCode = i.exit.Code
	}
	return e
}

// Delete stops an instance's whole process tree, waits until it is gone and its device
// memory is back, and forgets it. If ctx ends first, Delete returns and the stop goes on.
// If the tree cannot be ended, Delete returns after a while with code engine_timeout, and
// the stop goes on.
//
//	state               effect
//	stopped, failed     leftovers are cleared, then forgotten
//	stopping            the stop goes on, then forgotten
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
	if i.isStartingProcess() {
		return nil // launched stops the instance as soon as the process runs
	}
	return s.transition(i, launcher.EventStopAsked, nil)
}

// isStartingProcess reports whether the process is being started at this moment.
func (i *instance) isStartingProcess() bool {
	return i.state == launcher.Starting && i.tree == nil && !i.startDeferred || i.state == launcher.Waking && i.op.startsProcess
}

// DeleteAll stops and forgets all instances at once.
func (s *Supervisor) DeleteAll(ctx context.Context) ([]launcherapi.Instance, error) {
	s.mu.Lock()
	all := s.sorted()
	s.mu.Unlock()
	stopped := make([]launcherapi.Instance, len(all))
	errs := make([]error, len(all))
	done := make(chan struct{})
	for n, i := range all {
		go func() {
			stopped[n], errs[n] = s.Delete(ctx, i.facts.ID)
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
		case launcher.CodeOf(err) != launcherapi.CodeNotFound: // another call has deleted it
			failed = append(failed, err)
		}
	}
	return out, errors.Join(failed...)
}
