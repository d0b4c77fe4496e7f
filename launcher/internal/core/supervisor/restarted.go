package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file puts engines to sleep that cannot sleep in their process, and wakes them: the
// process saves its conversations and is ended, and is started again. While it sleeps, such an
// instance has no process and holds no memory. An exit of the process on the way is no failure
// of the instance: it sleeps then.

// restarts reports whether the instance has no process while it sleeps.
func (i *instance) restarts() bool { return !isInPlace(i.engine) }

func isInPlace(eng engine.Engine) bool {
	_, restarted := eng.(engine.Restarted)
	return !restarted
}

// expectsExit reports whether the exit of the instance's process is handled by its sleep or
// wake. The lock is held.
func (i *instance) expectsExit() bool {
	return i.op != nil && i.op.ownsProcess && i.op.ctx.Err() == nil && (i.state == launcher.FallingAsleep || i.state == launcher.Waking)
}

// endToSleep has the engine of a drained instance save its conversations, and ends it.
func (s *Supervisor) endToSleep(i *instance, op *operation) {
	began := time.Now()
	s.mu.Lock()
	op.ownsProcess = true
	s.mu.Unlock()
	s.save(i, op)
	gone, late := s.endProcess(i, op, s.opts.Limits.StopGrace)
	if !gone {
		return
	}
	crashpoint.At(crashpoint.SleepDone)
	s.endOperation(i, op, launcher.EventSlept, func() {
		i.addTiming("sleep", time.Since(began))
		i.withoutProcess()
		s.meter.Forget(i.facts.ID)
		if late != nil {
			i.reason = late.Error()
		}
		s.opts.Observer.Phase("engine_sleep", time.Since(began))
	})
}

// withoutProcess notes that the instance's process is gone. The lock is held.
func (i *instance) withoutProcess() {
	i.tree, i.exitHandled, i.root, i.residue, i.hostBytes = nil, nil, process.ID{}, map[string]uint64{}, 0
}

// save has an engine save its conversations, if it falls asleep at level 1. If it cannot, the
// instance begins without them when it wakes. If the sleep is resumed and the engine is ending
// already, the conversations that the earlier launcher has saved stay.
func (s *Supervisor) save(i *instance, op *operation) {
	id := i.facts.ID
	if op.level != 1 {
		s.removeSaved(id)
		return
	}
	ctx, stop := s.boundAnswer(op)
	defer stop()
	err := i.engine.(engine.Restarted).Save(ctx, i.engineURL(), s.saveDir(id), s.keyOf(i)) //nolint:forcetypeassert // endToSleep is for those alone
	if err != nil && (!op.resumed || !engine.Refused(err)) {
		s.removeSaved(id)
		s.note(i, "the conversations of an instance were not saved", "its conversations were not saved, and are computed again after its wake: ", err)
	}
}

// keyOf returns the API key of an instance.
func (s *Supervisor) keyOf(i *instance) engine.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return i.apiKey
}

// note logs a message about an instance, and writes a line with the reason into its log.
func (s *Supervisor) note(i *instance, message, line string, why error) {
	s.mu.Lock()
	text, name := i.secrets.Hide(why.Error()), i.facts.LogName
	s.mu.Unlock()
	s.log.Warn(message, "instance", i.facts.ID, "error", text)
	if err := boundedCall(s, "write to the log "+name, func() error { return s.opts.Logs.Note(name, line+text) }, nil); err != nil {
		s.log.Warn("cannot write to the log of an instance", "instance", i.facts.ID, "error", err)
	}
}

// endProcess ends the process of an instance on its way to sleep, and waits until its device
// memory is back; late says that it did not come back in time. If the process does not end in
// the time of the operation, the instance fails. gone is false then, and if the operation is
// over.
func (s *Supervisor) endProcess(i *instance, op *operation, grace time.Duration) (gone bool, late error) {
	limit := op.limit + grace
	ctx, stop := context.WithTimeout(op.ctx, limit)
	defer stop()
	s.mu.Lock()
	tree, handled := i.tree, i.exitHandled
	s.mu.Unlock()
	if tree == nil {
		return op.ctx.Err() == nil, nil
	}
	held, gone := s.endUntilGone(ctx, i, grace, func(ctx context.Context) error { return tree.Stop(ctx, grace) })
	if gone {
		late = s.meter.AwaitReturned(op.ctx, held)
		<-handled
		return op.ctx.Err() == nil, late
	}
	s.endOperation(i, op, launcher.EventTimedOut, func() {
		op.err = fmt.Errorf("its process did not end within %s", limit)
		i.reason, i.cause = op.err.Error(), "sleep_failed"
	})
	return false, nil
}

// startToWake starts the engine of an instance that sleeps without a process, and gives it back
// its conversations.
func (s *Supervisor) startToWake(i *instance, op *operation) {
	s.awaitRecordIfWell(i)
	began := time.Now()
	ctx, stop := s.boundAnswer(op)
	defer stop()
	err := s.startAgain(i, op)
	if err == nil {
		err = s.awaitHealthy(ctx, i)
	}
	if err != nil {
		s.endStarted(i, op, err)
		return
	}
	took := time.Since(began)
	crashpoint.At(crashpoint.WakeDone)
	if !s.compareWoken(ctx, i, op, func(why error) { s.endStarted(i, op, why) }) {
		return
	}
	if op.level == 1 { // after the comparison, whose question takes the place of a conversation
		s.restore(ctx, i)
	}
	if exit := s.handOver(i, op); exit != nil {
		s.endStarted(i, op, exit)
		return
	}
	measured := s.heldBytes(i)
	s.endOperation(i, op, launcher.EventWoke, func() {
		i.addTiming("wake", took)
		s.addCanaryTiming(i, op.compared)
		if len(measured) > 0 {
			i.awakeBytes = measured
		}
		s.opts.Observer.Phase("engine_wake", took)
	})
}

// handOver ends the time in which the wake handles the exit of the process. The error says that the
// process has ended before.
func (s *Supervisor) handOver(i *instance, op *operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.op != op || op.ctx.Err() != nil {
		return nil
	}
	select {
	case <-i.tree.Done():
		return exitedError{i.tree.Exit()}
	default:
	}
	op.ownsProcess = false
	return nil
}

// startAgain starts the process of an instance that wakes. If an earlier launcher has started
// it, it does nothing.
func (s *Supervisor) startAgain(i *instance, op *operation) error {
	s.mu.Lock()
	started := i.tree != nil
	s.mu.Unlock()
	if started {
		return nil
	}
	d, err := s.draftOf(i)
	if err != nil {
		return err
	}
	output, err := s.reopenLog(i)
	if err != nil {
		return err
	}
	defer output.Close() // the child has its own copy
	s.mu.Lock()
	if i.op != op || op.ctx.Err() != nil {
		s.mu.Unlock()
		return context.Canceled
	}
	op.startsProcess = true
	s.mu.Unlock()
	tree, _, err := s.startProcess(i, d, output, true)
	crashpoint.At(crashpoint.StartSpawned)
	s.mu.Lock()
	defer s.mu.Unlock()
	op.startsProcess = false
	if err == nil {
		i.tree, i.root, op.ownsProcess = tree, tree.ID(), true
		s.meter.Follow(i.facts.ID, i.root.PID)
		s.watchExit(i)
		s.publish(i, launcherapi.EventUpdated)
	}
	if i.deleting {
		return errors.Join(err, s.transition(i, launcher.EventStopAsked, nil))
	}
	return err
}

// draftOf returns how the process of an instance is started: as it was at first or, after a
// restart of the launcher, as its request says.
func (s *Supervisor) draftOf(i *instance) (*Draft, error) {
	s.mu.Lock()
	d := i.draft
	s.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d, err := s.Draft(launcher.CreateRequest{ID: i.facts.ID, Spec: i.facts.Spec})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.draft, i.apiKey, i.keyForgotten, i.secrets = d, d.plan.APIKey, false, d.secrets
	return d, nil
}

// reopenLog opens the log of an instance for another process of it, or makes a new log if
// somebody has removed it.
func (s *Supervisor) reopenLog(i *instance) (*os.File, error) {
	name := i.facts.LogName
	output, err := bounded(s, "open the log "+name, func() (*os.File, error) { return s.opts.Logs.Reopen(name) }, closeLate)
	if !errors.Is(err, fs.ErrNotExist) {
		return output, err
	}
	output, name, err = s.createLog(i.facts.ID)
	if err == nil {
		s.mu.Lock()
		i.facts.LogName = name
		s.mu.Unlock()
	}
	return output, err
}

func closeLate(f *os.File, err error) {
	if err == nil {
		_ = f.Close() // nothing was written to it
	}
}

// awaitHealthy waits until the engine of an instance is healthy. The error says why its process
// has ended before.
func (s *Supervisor) awaitHealthy(ctx context.Context, i *instance) error {
	s.mu.Lock()
	tree, log := i.tree, i.facts.LogName
	s.mu.Unlock()
	grown, unwatch := s.watchLog(log)
	defer unwatch()
	healthy := false
	err := s.pollHealth(ctx, i, grown, tree.Done(), func() bool {
		healthy = true
		return true
	})
	switch {
	case healthy:
		return nil
	case err != nil:
		return fmt.Errorf("it did not become healthy in time: %w", context.Cause(ctx))
	}
	return exitedError{tree.Exit()}
}

// exitedError is the end of a process that was to become healthy.
type exitedError struct{ exit process.Exit }

func (e exitedError) Error() string { return exitText(e.exit) }

// restore has a started engine read its conversations.
func (s *Supervisor) restore(ctx context.Context, i *instance) {
	err := i.engine.(engine.Restarted).Restore(ctx, i.engineURL(), s.saveDir(i.facts.ID), s.keyOf(i)) //nolint:forcetypeassert // startToWake is for those alone
	if err != nil {
		s.note(i, "the conversations of an instance could not be restored", "its conversations are computed again, since they could not be restored: ", err)
	}
}

// endStarted ends the process of an instance that did not wake. The instance sleeps then, as
// before.
func (s *Supervisor) endStarted(i *instance, op *operation, why error) {
	tail := s.longTail(i.facts.LogName)
	gone, late := s.endProcess(i, op, 0)
	if !gone {
		return
	}
	s.endOperation(i, op, launcher.EventWakeRefused, func() {
		i.cause, i.lastLog = "wake_failed", lastOf(tail, shownLines)
		if exited, ok := errors.AsType[exitedError](why); ok {
			i.explainExit(exited.exit, tail)
			why = errors.New(i.reason)
		}
		op.err = fmt.Errorf("did not wake: %w", why)
		i.reason = op.err.Error()
		if late != nil {
			i.reason = join(i.reason, late.Error())
		}
		i.withoutProcess()
		s.meter.Forget(i.facts.ID)
	})
}

// recoverAsleep lists an instance whose process is gone, as that of a sleeper should be. It
// sleeps or, if an earlier launcher was waking it, is started.
func (s *Supervisor) recoverAsleep(i *instance) {
	if i.state != launcher.Waking {
		i.state, i.since = launcher.Sleeping, cmp.Or(i.since, time.Now())
	}
	i.withoutProcess()
	if i.facts.EngineSocket != "" && s.opts.Sockets != nil { // the state folder may have been renamed
		if path, err := s.opts.Sockets.Plan(i.facts.ID, engine.Plan{TakesSocket: true}); err == nil {
			i.facts.EngineSocket = path
		}
	}
	if err := s.reopen(i); err != nil {
		s.log.Error("cannot open the ports of a sleeper again", "instance", i.facts.ID, "error", err)
		i.portTaken = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances[i.facts.ID] = i
	s.log.Info("found a sleeper without a process", "instance", i.facts.ID, "state", i.state)
	if secrets.Missing(i.facts.Spec) {
		err := s.transition(i, launcher.EventExited, func() {
			i.reason = "the launcher was restarted while the instance slept without a process, and does not keep the secrets of its request; create it again"
		})
		if err != nil {
			s.log.Error("cannot end a sleeper", "instance", i.facts.ID, "error", err)
		}
		return
	}
	s.resume(i)
	s.publish(i, launcherapi.EventUpdated)
}

// mayBeAsleep reports whether an instance sleeps if its process is gone.
func (i *instance) mayBeAsleep(doubted bool) bool {
	switch i.state {
	case launcher.FallingAsleep, launcher.Sleeping, launcher.Waking:
		return i.restarts()
	case launcher.Awake: // it may have fallen asleep since, if its record is stale
		return i.restarts() && doubted
	case launcher.Starting, launcher.Stopping, launcher.Stopped, launcher.Failed:
	}
	return false
}
