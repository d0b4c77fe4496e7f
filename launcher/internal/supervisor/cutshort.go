package supervisor

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
)

// This file is how a swap that has no time left gets the instances back that
// it moves.

var errCutShort = errors.New("its swap is being undone")

// CutShort ends the wait for an engine's answer to a sleep or a wake that is
// under way, as if its time were over: the engine is brought back to where it
// was.
func (s *Supervisor) CutShort(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok || i.op == nil || i.state != launcher.FallingAsleep && i.state != launcher.Waking {
		return
	}
	i.op.cutShort = true
	if i.op.giveUp != nil {
		i.op.giveUp(errCutShort)
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

// patience is how long an engine that did not fall asleep may take to wake
// before it is given up: where the sleep was cut short it may only be slow, and
// has its whole time.
func (s *Supervisor) patience(op *operation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !op.cutShort {
		return settleLimit
	}
	return max(settleLimit, op.limit-time.Since(op.asked))
}

// AwaitRoom waits until there is room for a sleeper to wake: until the memory
// that others are giving back is free, for at most the time that it may take.
// The error is what the ledger refuses it for in the end.
func (s *Supervisor) AwaitRoom(ctx context.Context, id, swapID string) error {
	var refusal error
	s.meter.PollUntil(ctx, func() bool {
		memory := s.lockWithMemory(s.gpusOf(id))
		defer s.mu.Unlock()
		refusal = nil
		if i, ok := s.instances[id]; ok && i.state == launcher.Sleeping {
			refusal = ledger.Admit(s.world(memory), i.entry(nil).Want(swapID))
		}
		return refusal == nil
	})
	return refusal
}
