package supervisor

import (
	"context"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file waits until engines that start are healthy.

// awaitReady waits until the engine is healthy. If that takes too long, in which time that the
// disk stalls does not count, it ends the instance.
func (s *Supervisor) awaitReady(i *instance, op *operation) {
	grown, unwatch := s.watchLog(i.facts.LogName)
	defer unwatch()
	var unsaid error
	err := s.patiently(op.ctx, i, op.limit, func(ctx context.Context) (err error) {
		unsaid, err = s.pollReady(ctx, i, op, grown)
		return err
	})
	if err == nil {
		return
	}
	tail, refuses := s.tail(i.facts.LogName), op.resumed && s.refuses(i)
	s.endOperation(i, op, launcher.EventTimedOut, func() {
		i.cause, i.lastLog = causeStartTimeout, tail
		i.reason = fmt.Sprintf("did not become healthy within %s (start_timeout)", op.limit)
		if refuses && i.unreachable != "" {
			i.cause, i.reason = causeNotListening, refused(i, op.limit)
		}
		if unsaid != nil {
			i.reason = fmt.Sprintf("is healthy, but did not say within %s whether it is asleep (start_timeout): %v", op.limit, unsaid)
		}
	})
}

// pollReady polls the engine's health, less and less often while nothing happens, and ends the
// operation when the engine is healthy. When the engine writes to its log, pollReady polls at
// once: engines log just before they are ready. An engine that an earlier launcher has started
// may be asleep. pollReady asks such an engine, and the instance keeps its state until the
// engine has answered. If ctx ends first, unsaid is why a healthy engine did not say that.
func (s *Supervisor) pollReady(ctx context.Context, i *instance, op *operation, grown <-chan struct{}) (unsaid, err error) {
	wait := shortestPoll
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if i.engine.Ready(ctx, i.engineURL()) == nil {
			s.noteCompiled(i)
			measured, asleep := s.heldBytes(i), false
			if op.resumed {
				asleep, unsaid = i.isSleeping(ctx)
			}
			switch {
			case unsaid != nil: // asked again
			case asleep:
				s.endOperation(i, op, launcher.EventSlept, func() { i.residue = measured })
				return nil, nil
			default:
				taken, took := s.takeFingerprint(ctx, i, op)
				s.endOperation(i, op, launcher.EventReady, func() {
					i.awakeBytes, i.fingerprint = measured, taken
					s.addCanaryTiming(i, took)
				})
				return nil, nil
			}
		}
		select {
		case <-grown:
			wait = shortestPoll
		case <-timer.C:
			wait = min(wait*5/4, longestPoll)
		case <-ctx.Done():
			return unsaid, ctx.Err()
		}
		timer.Reset(wait)
	}
}

// Bounds of the time between two polls of an engine's health.
const (
	shortestPoll = 5 * time.Millisecond
	longestPoll  = 100 * time.Millisecond
)
