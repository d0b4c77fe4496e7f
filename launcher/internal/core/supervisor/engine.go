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

// causeStartTimeout marks an instance that was never healthy in time.
const causeStartTimeout = "start_timeout"

// settleLimit bounds the attempt to bring an engine, whose sleep or wake has
// failed, back to where it was.
const settleLimit = 15 * time.Second

// putToSleep drains an instance whose gate is shut, and has its engine sleep.
func (s *Supervisor) putToSleep(i *instance, op *operation) {
	began := time.Now()
	cut := s.drain(i, op)
	drained := time.Now()
	if !s.noteDrain(i, op, drained.Sub(began), cut) {
		return
	}
	crashpoint.At(crashpoint.SleepDrained)
	ctx, stop := s.answerTime(op)
	defer stop()
	before := s.holdsBefore(ctx, i, op)
	err := s.whileItListens(ctx, i, func(ctx context.Context) error { return i.sleepEngine(ctx, op.level) })
	if err != nil {
		s.sleepFailed(i, op, err)
		return
	}
	crashpoint.At(crashpoint.SleepDone)
	residue := s.meter.AwaitFreed(op.ctx, i.facts.ID, i.gpus(), before)
	s.come(i, op, launcher.EventSlept, func() {
		i.timed("sleep", time.Since(drained))
		i.residue = residue
		s.opts.Observer.Phase("engine_sleep", time.Since(drained))
		if i.swapID == "" { // else when the swap is over, which it would slow down
			s.spawn(func() { s.weigh(i, op) })
		}
	})
}

// drain waits until the answers in flight have ended. Those that have not at the
// end of the drain's time are cut, and counted.
func (s *Supervisor) drain(i *instance, op *operation) (cut int) {
	if op.gate == nil {
		return 0 // no port, no requests
	}
	ctx, stop := context.WithTimeout(op.ctx, op.drain)
	defer stop()
	cut, err := op.gate.Drain(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("a drain did not end well", "instance", i.facts.ID, "error", err)
	}
	return cut
}

// sleepEngine has an engine sleep. Only the first time is the engine asked
// afterwards whether it sleeps: vLLM answers when the sleep is done, and an engine
// that answers without sleeping, for want of a sleep mode, does so from the first
// time on. An EngineCore that has just fallen asleep takes as long for that
// question as for the sleep of a small model.
func (i *instance) sleepEngine(ctx context.Context, level int) error {
	if err := i.engine.Sleep(ctx, i.base(), level, !i.sleepChecked.Load()); err != nil {
		return err
	}
	i.sleepChecked.Store(true)
	return nil
}

// wakeEngine has an engine wake, with the same question the first time.
func (i *instance) wakeEngine(ctx context.Context, level int) error {
	if err := i.engine.Wake(ctx, i.base(), level, !i.wakeChecked.Load()); err != nil {
		return err
	}
	i.wakeChecked.Store(true)
	return nil
}

// weigh measures the main memory that a new sleeper holds, and then evicts sleepers
// over budget.
func (s *Supervisor) weigh(i *instance, op *operation) {
	host := s.meter.HostMemory(i.root.PID, i.tree.Pids(), i.facts.Inherited)
	s.mu.Lock()
	if i.op == op && i.state == launcher.Sleeping {
		i.hostBytes = host
		s.write(i)
	}
	s.mu.Unlock()
	s.enforce()
}

// errDeaf says that an engine's server has closed its port.
var errDeaf = errors.New("the engine does not listen any more")

// listenPoll is the time between two looks whether an engine still listens.
const listenPoll = time.Second

// whileItListens does a verb, and calls the verb off when the engine's API server
// closes its port meanwhile. vLLM's does so when the EngineCore has died, and waits
// for ever for an answer of that core (seen with 0.30.0).
func (s *Supervisor) whileItListens(ctx context.Context, i *instance, verb func(context.Context) error) error {
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
			if engine.Refused(i.engine.Ready(ctx, i.base())) {
				cancel(errDeaf)
				return
			}
		}
	})
	err := verb(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errDeaf) {
		return fmt.Errorf("%w: %w", errDeaf, err)
	}
	return err
}

// noteDrain notes the end of a drain, and says whether the sleep goes on.
func (s *Supervisor) noteDrain(i *instance, op *operation, took time.Duration, cut int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.op != op || op.ctx.Err() != nil {
		op.cancel(nil)
		return false
	}
	op.cut, op.drained = cut, true
	i.timed("drain", took)
	i.notify()
	s.opts.Observer.Phase("drain", took)
	if cut > 0 {
		s.opts.Observer.Cut(cut)
		s.log.Warn("answers in flight were cut: the drain ran out of time", "instance", i.facts.ID, "requests", cut)
	}
	return true
}

// comeback says how to bring an engine back to where it was after its sleep or wake
// has failed.
type comeback struct {
	failed  string // says what the engine did not do
	cause   string
	do      func(ctx context.Context, base string, level int, check bool) error
	lost    string // says that the engine could not be brought back either
	refused launcher.Event
}

// sleepFailed makes sure that an engine whose sleep has failed is awake: a sleep
// that was only slow must not be completed after the gate is open again.
func (s *Supervisor) sleepFailed(i *instance, op *operation, why error) {
	s.comeBack(i, op, why, s.patience(op), comeback{
		failed: "did not fall asleep", cause: "sleep_failed", do: i.engine.Wake,
		lost: "it could not be brought back", refused: launcher.EventSleepRefused,
	})
}

// wakeFailed makes sure that an engine whose wake has failed sleeps, so that its
// device memory is free for the instance that was there before.
func (s *Supervisor) wakeFailed(i *instance, op *operation, why error) {
	s.comeBack(i, op, why, settleLimit, comeback{
		failed: "did not wake", cause: "wake_failed", do: i.engine.Sleep,
		lost: "it could not be put back to sleep", refused: launcher.EventWakeRefused,
	})
}

// comeBack brings an engine back within a limit. When that fails the engine is
// given up, unless the engine is dying: then its exit is the event to come.
func (s *Supervisor) comeBack(i *instance, op *operation, why error, limit time.Duration, c comeback) {
	if op.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithTimeout(op.ctx, limit)
	defer stop()
	why = fmt.Errorf("%s: %w", c.failed, why)
	err := c.do(ctx, i.base(), op.level, true)
	switch {
	case err == nil:
		s.come(i, op, c.refused, func() {
			op.err, i.reason, i.cause = why, why.Error(), c.cause
		})
	case died(ctx, i, err):
	default:
		s.come(i, op, launcher.EventTimedOut, func() {
			op.err, i.cause, i.lastLog = why, c.cause, s.tail(i.facts.LogName)
			i.reason = fmt.Sprintf("%v; and %s: %v", why, c.lost, err)
		})
	}
}

// wakeUp has the engine wake.
func (s *Supervisor) wakeUp(i *instance, op *operation) {
	began := time.Now()
	ctx, stop := s.answerTime(op)
	defer stop()
	err := s.whileItListens(ctx, i, func(ctx context.Context) error { return i.wakeEngine(ctx, op.level) })
	if err != nil {
		s.wakeFailed(i, op, err)
		return
	}
	crashpoint.At(crashpoint.WakeDone)
	measured := s.held(i)
	s.come(i, op, launcher.EventWoke, func() {
		i.timed("wake", time.Since(began))
		i.hostBytes, i.unheard = 0, false
		if len(measured) > 0 {
			i.awakeBytes = measured
		}
		s.opts.Observer.Phase("engine_wake", time.Since(began))
	})
}

// died says whether an engine that gave an error at once, rather than no answer, is
// dying: the exit of the API server, which may come a few seconds after that of its
// EngineCore, then tells more than the error.
func died(ctx context.Context, i *instance, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	select {
	case <-i.tree.Done():
		return true
	case <-ctx.Done():
		return false
	}
}
