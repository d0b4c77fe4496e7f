package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// transition applies an event to an instance by the state table. It is the only function
// that writes a state. note records the event's details once the table has allowed the
// event; it may be nil. The lock is held.
func (s *Supervisor) transition(i *instance, event launcher.Event, note func()) error {
	row, err := launcher.Next(i.state, event)
	if err != nil {
		return fmt.Errorf("%s: %w", i.facts.ID, err)
	}
	if event == launcher.EventStopAsked && row.To != row.From {
		i.reason, i.cause = "", "" // both describe the state that the instance leaves
	}
	before := i.reason
	if note != nil {
		note()
		i.reason = i.secrets.Hide(i.reason) // engines may repeat their secrets in errors
		i.lastLog = i.secrets.HideIn(i.lastLog)
	}
	if row.To != row.From {
		now := time.Now()
		took := now.Sub(i.since)
		i.addTiming(string(row.From), took)
		i.asleepBeforeEnd = i.asleepBeforeEnd || row.From == launcher.Sleeping && row.To != launcher.Waking
		i.state, i.since, i.unreachable = row.To, now, ""
		s.enter(i)
		s.log.Info("instance changed state", "instance", i.facts.ID, "from", row.From, "to", row.To, "event", event, "reason", i.reason)
		s.opts.Observer.Transition(row.From, row.To, i.cause)
		s.opts.Observer.Phase(string(row.From), took)
	}
	s.beginEffect(i, row)
	switch {
	case row.To != row.From:
		s.publish(i, eventTypeOf(row.To))
		if i.facts.mayReadConfig(row.From) && !i.facts.mayReadConfig(row.To) {
			s.records.Then(func() { s.removeConfig(i.facts.ID) }) // before a later instance of that id is recorded, and makes its own
		}
		if point := crashpoint.State(string(row.To)); crashpoint.Armed(point) {
			s.records.Then(func() { crashpoint.At(point) })
		}
	case i.reason != before:
		s.publish(i, launcherapi.EventUpdated)
	}
	return nil
}

// enter does what every transition into a state needs. The lock is held.
func (s *Supervisor) enter(i *instance) {
	switch i.state {
	case launcher.Awake:
		i.lastWoken = i.since
	case launcher.Stopping, launcher.Failed:
		if i.op != nil {
			i.op.cancel(errors.New(failText(i)))
		}
	case launcher.Starting, launcher.FallingAsleep, launcher.Sleeping, launcher.Waking, launcher.Stopped:
	}
	s.setGate(i)
}

func eventTypeOf(s launcher.State) launcherapi.EventType {
	if s.Ended() {
		return launcherapi.EventStopped
	}
	return launcherapi.EventUpdated
}

// publish saves the instance and notifies the watchers. The lock is held.
func (s *Supervisor) publish(i *instance, kind launcherapi.EventType) {
	s.notifyWatchers(i, kind)
	s.write(i)
}

// notifyWatchers gives the instance its next revision, sends it to the watchers, and
// wakes all goroutines that wait for its change. The lock is held.
func (s *Supervisor) notifyWatchers(i *instance, kind launcherapi.EventType) {
	i.revision, i.announced = s.opts.Feed.Append(kind, i.view()), true
	i.notify()
}

// beginEffect begins the effect of a transition and does not block. The lock is held.
func (s *Supervisor) beginEffect(i *instance, row launcher.Transition) {
	switch row.Effect {
	case launcher.PutToSleep:
		op := i.op
		s.spawn(func() { s.putToSleep(i, op) })
	case launcher.WakeUp:
		op := i.op
		s.spawn(func() { s.wakeUp(i, op) })
	case launcher.StopTree:
		grace := s.stopGrace(i, row.From)
		s.spawn(func() { s.stopTree(i, grace) })
	case launcher.ClearTree:
		s.spawn(func() { s.clearTree(i) })
	case launcher.ClosePort:
		s.spawn(func() {
			if err := s.closePorts(s.ctx, i); err != nil {
				s.log.Warn("cannot close the ports of an instance", "instance", i.facts.ID, "error", err)
			}
			s.unlease(i.facts.ID, i, nil)
			s.endLeasedPorts(i)
			if i.restarts() {
				s.removeSaved(i.facts.ID)
			}
			s.onReleased(i)
		})
	case launcher.NoEffect:
	}
}

// stopGrace returns the time between SIGTERM and SIGKILL of an instance whose stop begins in a
// state. A worker does not end by SIGTERM, and has no answers in flight.
func (s *Supervisor) stopGrace(i *instance, from launcher.State) time.Duration {
	if from == launcher.Starting || i.isWorker() {
		return s.opts.Limits.StartingGrace
	}
	return s.opts.Limits.StopGrace
}

// beginOperation makes op the instance's current operation. The lock is held.
func (s *Supervisor) beginOperation(i *instance, op *operation) {
	op.ctx, op.cancel = context.WithCancelCause(s.ctx)
	op.gate, op.level = i.gate, i.level
	i.op = op
}

// endOperation ends an operation with an event, unless the operation is stale.
func (s *Supervisor) endOperation(i *instance, op *operation, event launcher.Event, note func()) {
	var logged int64
	asleep := event == launcher.EventSlept || event == launcher.EventWakeRefused
	if asleep {
		logged = s.logSize(i.facts.LogName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.op != op || op.ctx.Err() != nil {
		return
	}
	op.cancel(nil)
	if err := s.transition(i, event, func() {
		if note != nil {
			note()
		}
		if asleep {
			i.asleepAt = logged
		}
	}); err != nil {
		s.log.Error("an event came in a state that does not allow it", "error", err)
		return
	}
	if asleep && i.swapID == "" && !i.restarts() { // in a swap the measurement waits for its end, and delays nothing
		s.spawn(func() { s.measureHostBytes(i, op) })
	}
}

// onExited handles the exit of the API server's process.
func (s *Supervisor) onExited(i *instance, exit process.Exit, tail []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.expectsExit() {
		return
	}
	err := s.transition(i, launcher.EventExited, func() {
		i.exit = &exit
		if i.state != launcher.Stopping && i.state != launcher.Failed {
			i.explainExit(exit, tail)
		}
	})
	if err != nil {
		s.log.Error("an exit came in a state that does not allow it", "error", err)
	}
}

// explainExit records why an instance ended without a request.
func (i *instance) explainExit(exit process.Exit, tail []string) {
	cause := i.engine.Diagnose(engine.Exit{Code: exit.Code, Signal: int(exit.Signal), OOMKilled: exit.OOMKilled}, tail)
	i.cause, i.lastLog = string(cause.Code), lastOf(tail, shownLines)
	i.reason = fmt.Sprintf("%s while %s: %s", exitText(exit), i.state, cause.Message)
}

func exitText(exit process.Exit) string {
	switch {
	case exit.Signal != 0:
		return fmt.Sprintf("ended by signal %d (%s)", int(exit.Signal), exit.Signal)
	case exit.Code != nil:
		return fmt.Sprintf("ended with exit code %d", *exit.Code)
	}
	return "ended with an unknown exit code"
}

// onGone handles the end of a process tree. The device memory is back, or late says that
// the wait for it timed out.
func (s *Supervisor) onGone(i *instance, late error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.transition(i, launcher.EventGone, func() {
		if late != nil {
			i.reason = join(i.reason, late.Error())
		}
	})
	if err != nil {
		s.log.Error("the end of a process tree came in a state that does not allow it", "error", err)
	}
}

// join joins two reasons; either may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// onReleased is release for a caller that does not hold the lock.
func (s *Supervisor) onReleased(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(i)
}

// release records that the instance holds nothing any more. The lock is held.
func (s *Supervisor) release(i *instance) {
	i.released = true
	s.meter.Forget(i.facts.ID)
	close(i.whenReleased)
	if i.deleting {
		s.forget(i)
		return
	}
	s.publish(i, launcherapi.EventUpdated)
}

// forget takes the instance off the list. The lock is held.
func (s *Supervisor) forget(i *instance) {
	delete(s.instances, i.facts.ID)
	s.publish(i, launcherapi.EventDeleted)
}
