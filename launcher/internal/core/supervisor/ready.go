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

// pollReady waits until the engine is healthy, and ends the operation then. An engine that an
// earlier launcher has started may be asleep. pollReady asks such an engine, and the instance keeps
// its state until the engine has answered. If ctx ends first, unsaid is why a healthy engine did not
// say that.
func (s *Supervisor) pollReady(ctx context.Context, i *instance, op *operation, grown <-chan struct{}) (unsaid, err error) {
	err = s.pollHealth(ctx, i, grown, nil, func() bool {
		s.noteCompiled(i)
		measured, asleep := s.heldBytes(i), false
		if op.resumed {
			asleep, unsaid = i.isSleeping(ctx)
		}
		switch {
		case unsaid != nil: // asked again
			return false
		case asleep:
			s.endOperation(i, op, launcher.EventSlept, func() { i.residue = measured })
		default:
			taken, took := s.takeFingerprint(ctx, i, op)
			s.endOperation(i, op, launcher.EventReady, func() {
				i.awakeBytes, i.fingerprint = measured, taken
				s.addCanaryTiming(i, took)
			})
		}
		return true
	})
	return unsaid, err
}

// pollHealth asks the engine whether it is healthy, less and less often while nothing happens, until
// it is and enough says that this is enough. When the engine writes to its log, pollHealth asks at
// once: engines log just before they are ready. It returns early, without an error, once ended is
// closed, and with the error of ctx.
func (s *Supervisor) pollHealth(ctx context.Context, i *instance, grown, ended <-chan struct{}, enough func() bool) error {
	wait := shortestPoll
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for i.engine.Ready(ctx, i.engineURL()) != nil || !enough() {
		select {
		case <-grown:
			wait = shortestPoll
		case <-timer.C:
			wait = min(wait*5/4, longestPoll)
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Reset(wait)
	}
	return nil
}

// Bounds of the time between two polls of an engine's health.
const (
	shortestPoll = 5 * time.Millisecond
	longestPoll  = 100 * time.Millisecond
)
