package supervisor

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file ends a running sleep or wake early.

var errCutShort = errors.New("the launcher is undoing its swap")

// cutShort ends the wait for an engine's answer to a running sleep or wake, as if it had
// timed out. The engine is then rolled back to its earlier state. The lock is held.
func (s *Supervisor) cutShort(i *instance) {
	if i.op == nil || i.state != launcher.FallingAsleep && i.state != launcher.Waking {
		return
	}
	i.op.cutShort = true
	if i.op.stopWaiting != nil {
		i.op.stopWaiting(errCutShort)
	}
}

// cancelDrain cancels a sleep that is still draining: the gate opens again and no answer
// is cut. A sleep that has drained goes on. The lock is held.
func (s *Supervisor) cancelDrain(i *instance) {
	if i.state != launcher.FallingAsleep || i.op == nil || i.op.drained {
		return
	}
	i.op = nil // the operation's goroutine notices that when the open gate has ended the drain
	i.reason = "its sleep was cancelled"
	if err := s.transition(i, launcher.EventSleepRefused, nil); err != nil {
		s.log.Error("cannot cancel a sleep", "error", err)
	}
}

// boundAnswer returns the context that bounds the wait for the engine's answer.
func (s *Supervisor) boundAnswer(op *operation) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, giveUp := context.WithCancelCause(op.ctx)
	op.askedAt, op.stopWaiting = time.Now(), giveUp
	if op.cutShort {
		giveUp(errCutShort)
	}
	ctx, stop := context.WithTimeout(ctx, op.limit)
	return ctx, func() { stop(); giveUp(nil) }
}

// wakeAgainLimit returns how long an engine that did not fall asleep may take to wake
// before it is killed. An engine whose sleep was cut short may only be slow, so it gets
// the rest of the sleep's time.
func (s *Supervisor) wakeAgainLimit(op *operation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !op.cutShort {
		return settleLimit
	}
	return max(settleLimit, op.limit-time.Since(op.askedAt))
}
