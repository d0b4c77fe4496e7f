package supervisor

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file ends a sleep or a wake that is under way before its time.

var errCutShort = errors.New("its swap is being undone")

// cutShort ends the wait for an engine's answer to a sleep or a wake that is
// under way, as if its time were over: the engine is brought back to where it
// was. The lock is held.
func (s *Supervisor) cutShort(i *instance) {
	if i.op == nil || i.state != launcher.FallingAsleep && i.state != launcher.Waking {
		return
	}
	i.op.cutShort = true
	if i.op.giveUp != nil {
		i.op.giveUp(errCutShort)
	}
}

// callOff takes back a sleep that is still draining: the gate opens again and
// no answer is cut. A sleep that has gone further goes on to its end. The lock is
// held.
func (s *Supervisor) callOff(i *instance) {
	if i.state != launcher.FallingAsleep || i.op == nil || i.op.drained {
		return
	}
	i.op = nil // the operation's goroutine sees that when the open gate has ended the drain
	i.reason = "its sleep was called off"
	if err := s.happen(i, launcher.EventSleepRefused, nil); err != nil {
		s.log.Error("cannot call a sleep off", "error", err)
	}
}

// answerTime bounds the wait for the engine's answer.
func (s *Supervisor) answerTime(op *operation) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, giveUp := context.WithCancelCause(op.ctx)
	op.asked, op.giveUp = time.Now(), giveUp
	if op.cutShort {
		giveUp(errCutShort)
	}
	ctx, stop := context.WithTimeout(ctx, op.limit)
	return ctx, func() { stop(); giveUp(nil) }
}

// patience is how long an engine that did not fall asleep may take to wake before
// it is given up: an engine whose sleep was cut short may only be slow, and gets
// the whole time of the sleep.
func (s *Supervisor) patience(op *operation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !op.cutShort {
		return settleLimit
	}
	return max(settleLimit, op.limit-time.Since(op.asked))
}
