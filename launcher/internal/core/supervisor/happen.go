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

// happen moves an instance along the table of states, and is the one place that
// writes a state. note, which may be nil, records the event's details once the
// table has allowed the event. The lock is held.
func (s *Supervisor) happen(i *instance, event launcher.Event, note func()) error {
	row, err := launcher.Next(i.state, event)
	if err != nil {
		return fmt.Errorf("%s: %w", i.facts.ID, err)
	}
	if event == launcher.EventStopAsked && row.To != row.From {
		i.reason, i.cause = "", "" // both are about the state that the instance leaves
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
		i.timed(string(row.From), took)
		i.slept = i.slept || row.From == launcher.Sleeping && row.To != launcher.Waking
		i.state, i.since = row.To, now
		s.enter(i)
		s.log.Info("instance changed state", "instance", i.facts.ID, "from", row.From, "to", row.To, "event", event, "reason", i.reason)
		s.opts.Observer.Transition(row.From, row.To, i.cause)
		s.opts.Observer.Phase(string(row.From), took)
	}
	s.effect(i, row)
	switch {
	case row.To != row.From:
		if row.From == launcher.Starting {
			s.removeConfig(i.facts.ID)
		}
		s.publish(i, kindOf(row.To))
		crashpoint.At(crashpoint.State(string(row.To)))
	case i.reason != before:
		s.publish(i, launcherapi.EventUpdated)
	}
	return nil
}

// enter does what is the same for every transition into a state. The lock is held.
func (s *Supervisor) enter(i *instance) {
	switch i.state {
	case launcher.Awake:
		i.lastWoken = i.since
	case launcher.Sleeping:
		i.asleepAt = s.opts.Logs.Size(i.facts.LogName)
	case launcher.Stopping, launcher.Failed:
		if i.op != nil {
			i.op.cancel(errors.New(failText(i)))
		}
	case launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopped:
	}
	s.setGate(i)
}

func kindOf(s launcher.State) launcherapi.EventType {
	if s.Ended() {
		return launcherapi.EventStopped
	}
	return launcherapi.EventUpdated
}

// publish writes the instance down, and tells of it. The lock is held.
func (s *Supervisor) publish(i *instance, kind launcherapi.EventType) {
	s.tell(i, kind)
	s.write(i)
}

// tell gives the instance its next revision, tells the watchers, and wakes all that
// wait for a change of it. The lock is held.
func (s *Supervisor) tell(i *instance, kind launcherapi.EventType) {
	i.revision = s.opts.Feed.Append(kind, i.view())
	i.notify()
}

// effect begins the effect of a transition. Nothing here blocks. The lock is held.
func (s *Supervisor) effect(i *instance, row launcher.Transition) {
	switch row.Effect {
	case launcher.PutToSleep:
		op := i.op
		s.spawn(func() { s.putToSleep(i, op) })
	case launcher.WakeUp:
		op := i.op
		s.spawn(func() { s.wakeUp(i, op) })
	case launcher.StopTree:
		grace := s.opts.Limits.StopGrace
		if row.From == launcher.Starting {
			grace = s.opts.Limits.StartingGrace
		}
		s.spawn(func() { s.stopTree(i, grace) })
	case launcher.ClearTree:
		s.spawn(func() { s.clearTree(i) })
	case launcher.ClosePort:
		s.spawn(func() {
			if err := s.closePorts(s.ctx, i); err != nil {
				s.log.Warn("cannot close the ports of an instance", "instance", i.facts.ID, "error", err)
			}
			s.unlease(i.facts.ID)
			s.onReleased(i)
		})
	case launcher.NoEffect:
	}
}

// beginOperation makes op the instance's current operation. The lock is held.
func (s *Supervisor) beginOperation(i *instance, op *operation) {
	op.ctx, op.cancel = context.WithCancelCause(s.ctx)
	op.gate, op.level = i.gate, i.level
	i.op = op
}

// come takes the lock and lets an event of an operation happen, unless the
// operation is stale.
func (s *Supervisor) come(i *instance, op *operation, event launcher.Event, note func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.op != op || op.ctx.Err() != nil {
		return
	}
	op.cancel(nil)
	if err := s.happen(i, event, note); err != nil {
		s.log.Error("an event came in a state that refuses it", "error", err)
	}
}

// onExited: the API server's process has ended.
func (s *Supervisor) onExited(i *instance, exit process.Exit, tail []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.happen(i, launcher.EventExited, func() {
		i.exit = &exit
		if i.state != launcher.Stopping && i.state != launcher.Failed {
			i.explain(exit, tail)
		}
	})
	if err != nil {
		s.log.Error("an exit came in a state that refuses it", "error", err)
	}
}

// explain fills in why an instance ended though nobody asked for it.
func (i *instance) explain(exit process.Exit, tail []string) {
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
	return "ended with an exit code that nobody saw"
}

// onGone: no process of the instance is left, and its device memory is back, or was
// waited for long enough; then late says so.
func (s *Supervisor) onGone(i *instance, late error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.happen(i, launcher.EventGone, func() {
		if late != nil {
			i.reason = join(i.reason, late.Error())
		}
	})
	if err != nil {
		s.log.Error("the end of a process tree came in a state that refuses it", "error", err)
	}
}

// join puts two reasons together; either may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// onReleased: the instance holds nothing any more.
func (s *Supervisor) onReleased(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(i)
}

// release notes that the instance holds nothing any more. The lock is held.
func (s *Supervisor) release(i *instance) {
	i.released = true
	s.meter.Forget(i.facts.ID)
	close(i.over)
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
