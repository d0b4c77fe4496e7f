package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
)

// causeStartTimeout is the cause of an instance that was not healthy in time.
const causeStartTimeout = "start_timeout"

// settleLimit bounds the rollback of an engine whose sleep or wake has failed.
const settleLimit = 15 * time.Second

// putToSleep drains an instance whose gate is shut, and puts its engine to sleep, once that
// is recorded.
func (s *Supervisor) putToSleep(i *instance, op *operation) {
	var worker memorySample // of a worker, whose entry may be told at this moment
	if i.isWorker() {
		worker = s.sample(i)
	}
	// Only the record tells at which level the engine sleeps. That of a resumed sleep does so already.
	if err := s.awaitLevel(i, op); err != nil && !op.resumed {
		s.endOperation(i, op, launcher.EventSleepRefused, func() {
			op.err, i.reason, i.cause = err, "was not put to sleep: "+err.Error(), "sleep_failed"
		})
		return
	}
	began := time.Now()
	cut := s.drain(i, op)
	drained := time.Now()
	if !s.noteDrain(i, op, drained.Sub(began), cut) {
		return
	}
	crashpoint.At(crashpoint.SleepDrained)
	switch {
	case i.isWorker():
		s.seeAsleep(i, op, worker)
		return
	case i.restarts():
		s.endToSleep(i, op)
		return
	}
	ctx, stop := s.boundAnswer(op)
	defer stop()
	before := s.bytesBeforeSleep(ctx, i, op)
	err := s.whileListening(ctx, i, func(ctx context.Context) error { return i.sleepEngine(ctx, op.level) })
	if err != nil {
		s.sleepFailed(i, op, before, err)
		return
	}
	crashpoint.At(crashpoint.SleepDone)
	residue := s.meter.AwaitFreed(op.ctx, i.facts.ID, i.gpus(), before)
	s.endOperation(i, op, launcher.EventSlept, func() {
		i.addTiming("sleep", time.Since(drained))
		i.residue = residue
		s.opts.Observer.Phase("engine_sleep", time.Since(drained))
	})
}

// awaitLevel waits until the record names the level at which an engine is to sleep: nothing
// else tells the next launcher.
func (s *Supervisor) awaitLevel(i *instance, op *operation) error {
	if op.levelOnDisk {
		return nil
	}
	err := s.awaitRecord(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.levelOnDisk = op.level
	if err != nil {
		i.levelOnDisk = 0
	}
	return err
}

// drain waits until the answers in flight have ended. It cuts and counts those that have
// not ended when the drain's time is over.
func (s *Supervisor) drain(i *instance, op *operation) (cut int) {
	if op.gate == nil {
		return 0 // no port, no requests
	}
	ctx, stop := context.WithTimeout(op.ctx, op.drain)
	defer stop()
	cut, err := op.gate.Drain(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("a drain failed", "instance", i.facts.ID, "error", err)
	}
	return cut
}

// sleepEngine tells an engine to sleep. Only the first time does it check afterwards
// that the engine sleeps. vLLM answers when the sleep is done; an engine without a sleep
// mode would answer without sleeping already the first time. For an EngineCore that has
// just fallen asleep, the check takes as long as the sleep of a small model.
func (i *instance) sleepEngine(ctx context.Context, level int) error {
	if err := i.inPlace().Sleep(ctx, i.engineURL(), level, !i.sleepChecked.Load()); err != nil {
		return err
	}
	i.sleepChecked.Store(true)
	return nil
}

// wakeEngine tells an engine to wake, with the same check the first time.
func (i *instance) wakeEngine(ctx context.Context, level int) error {
	if err := i.inPlace().Wake(ctx, i.engineURL(), level, !i.wakeChecked.Load()); err != nil {
		return err
	}
	i.wakeChecked.Store(true)
	return nil
}

// measureHostBytes measures the main memory that a new sleeper holds, or one whose wake has
// failed, and then evicts sleepers over budget.
func (s *Supervisor) measureHostBytes(i *instance, op *operation) {
	host := s.meter.HostMemory(i.root.PID, i.tree.Pids(), i.facts.Inherited)
	s.mu.Lock()
	if i.op == op && i.state == launcher.Sleeping {
		i.hostBytes = host
		s.write(i)
	}
	s.mu.Unlock()
	s.enforceBudgets()
}

// errPortClosed reports that an engine's API server has closed its port.
var errPortClosed = errors.New("the engine no longer listens")

// listenPoll is the time between two checks that an engine still listens.
const listenPoll = time.Second

// whileListening runs a verb, and cancels it if the engine's API server closes its port
// meanwhile. When the EngineCore has died, vLLM's API server closes its port and waits
// for ever for that core's answer (seen with 0.30.0).
func (s *Supervisor) whileListening(ctx context.Context, i *instance, verb func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.spawn(func() {
		tick := time.NewTicker(listenPoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if engine.Refused(i.engine.Ready(ctx, i.engineURL())) {
				cancel(errPortClosed)
				return
			}
		}
	})
	err := verb(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errPortClosed) {
		return fmt.Errorf("%w: %w", errPortClosed, err)
	}
	return err
}

// noteDrain records the end of a drain, and reports whether the sleep goes on.
func (s *Supervisor) noteDrain(i *instance, op *operation, took time.Duration, cut int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.op != op || op.ctx.Err() != nil {
		op.cancel(nil)
		return false
	}
	op.cut, op.drained = cut, true
	i.addTiming("drain", took)
	i.notify()
	s.opts.Observer.Phase("drain", took)
	if cut > 0 {
		s.opts.Observer.Cut(cut)
		s.log.Warn("cut answers in flight, since the drain ran out of time", "instance", i.facts.ID, "requests", cut)
	}
	return true
}

// rollback says how to bring an engine back to its earlier state after its sleep or wake
// has failed.
type rollback struct {
	failed  string // says what the engine did not do
	cause   string
	do      func(ctx context.Context) error
	lost    string // says that the rollback failed too
	refused launcher.Event
}

// sleepFailed makes sure that an engine whose sleep has failed is awake: a slow sleep
// must not complete after the gate is open again.
func (s *Supervisor) sleepFailed(i *instance, op *operation, before map[string]uint64, why error) {
	s.rollBack(i, op, why, s.wakeAgainLimit(op), rollback{
		failed: "did not fall asleep", cause: "sleep_failed",
		do:   func(ctx context.Context) error { return s.wakeAgain(ctx, i, op, before) },
		lost: "it could not be brought back", refused: launcher.EventSleepRefused,
	})
}

// wakeFailed makes sure that an engine whose wake has failed sleeps, so that its device
// memory is free for the instance that was awake before.
func (s *Supervisor) wakeFailed(i *instance, op *operation, before memorySample, known bool, why error) {
	s.rollBack(i, op, why, settleLimit, rollback{
		failed: "did not wake", cause: "wake_failed",
		do:   func(ctx context.Context) error { return s.backToSleep(ctx, i, op, before, known) },
		lost: "it could not be put back to sleep", refused: launcher.EventWakeRefused,
	})
}

// rollBack brings an engine back to its earlier state within a limit, in which time that the
// disk stalls does not count. If that fails, the engine is killed, unless it is already dying:
// then its exit is the next event.
func (s *Supervisor) rollBack(i *instance, op *operation, why error, limit time.Duration, c rollback) {
	if op.ctx.Err() != nil {
		return
	}
	why = fmt.Errorf("%s: %w", c.failed, why)
	dying := false
	err := s.patiently(op.ctx, i, limit, func(ctx context.Context) error {
		err := c.do(ctx)
		dying = err != nil && diesSoon(ctx, i, err)
		return err
	})
	switch {
	case err == nil:
		s.endOperation(i, op, c.refused, func() {
			op.err, i.reason, i.cause = why, why.Error(), c.cause
		})
	case dying:
	default:
		tail := s.tail(i.facts.LogName)
		s.endOperation(i, op, launcher.EventTimedOut, func() {
			op.err, i.cause, i.lastLog = why, c.cause, tail
			i.reason = fmt.Sprintf("%v; and %s: %v", why, c.lost, err)
		})
	}
}

// wakeUp wakes the engine.
func (s *Supervisor) wakeUp(i *instance, op *operation) {
	if i.isWorker() {
		before := s.sample(i) // the entry may be told at this moment
		s.awaitRecordIfWell(i)
		s.seeAwake(i, op, before)
		return
	}
	if i.restarts() {
		s.startToWake(i, op)
		return
	}
	s.awaitRecordIfWell(i)
	before, known := s.sampleAsleep(i, op)
	began := time.Now()
	ctx, stop := s.boundAnswer(op)
	defer stop()
	err := s.whileListening(ctx, i, func(ctx context.Context) error { return i.wakeEngine(ctx, op.level) })
	if err != nil {
		s.wakeFailed(i, op, before, known, err)
		return
	}
	took := time.Since(began)
	crashpoint.At(crashpoint.WakeDone)
	if !s.compareWoken(ctx, i, op, func(why error) { s.wakeFailed(i, op, before, known, why) }) {
		return
	}
	measured := s.heldBytes(i)
	s.endOperation(i, op, launcher.EventWoke, func() {
		i.addTiming("wake", took)
		s.addCanaryTiming(i, op.compared)
		i.hostBytes, i.sleepUnknown = 0, false
		if len(measured) > 0 {
			i.awakeBytes = measured
		}
		s.opts.Observer.Phase("engine_wake", took)
	})
}

// dyingLimit is how long an engine that refuses a request may take to exit by itself. The API
// server exits up to 4.3 s after its EngineCore (vLLM 0.30.0).
const dyingLimit = 5 * time.Second

// diesSoon waits for the exit of an engine that answered with an error, and reports whether it
// comes: the exit then says more than the error.
func diesSoon(ctx context.Context, i *instance, err error) bool {
	_, holdsMore := errors.AsType[holdsMoreError](err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errWrongAnswer) || holdsMore || isUnwritten(err) {
		return false
	}
	ctx, stop := context.WithTimeout(ctx, dyingLimit)
	defer stop()
	select {
	case <-i.tree.Done():
		return true
	case <-ctx.Done():
		return false
	}
}
