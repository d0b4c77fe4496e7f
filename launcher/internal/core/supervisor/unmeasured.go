package supervisor

import (
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file measures sleepers whose wake failed while the driver of a GPU did not answer. Until
// the driver answers, the launcher has only the engine's word that all of it sleeps, and the
// ledger charges the instance as if it were awake.

// measureAsleepLater has an instance that goes back to sleep measured once the drivers of its
// GPUs answer.
func (s *Supervisor) measureAsleepLater(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !i.unmeasured {
		i.unmeasured = true
		s.spawn(func() { s.checkOnceAsleepMeasured(i) })
	}
}

// checkOnceAsleepMeasured waits until the drivers of an instance's GPUs answer and no swap has
// claimed the instance. It then ends the engine if the instance sleeps and holds more device
// memory than it may.
func (s *Supervisor) checkOnceAsleepMeasured(i *instance) {
	for s.awaitDrivers(i) {
		var state launcher.State
		var since time.Time
		var before memorySample
		if _, err := s.await(s.ctx, i, func() bool {
			state, since, before.held = i.state, i.since, i.mostAsleep()
			return state == launcher.Sleeping && i.swapID == "" || state == launcher.Awake || state == launcher.Stopping || state.Ended()
		}); err != nil || state == launcher.Stopping || state.Ended() {
			return
		}
		var now memorySample
		var more error
		if state == launcher.Sleeping {
			now, more = s.awaitNoMore(s.ctx, freedLate, i, before)
			if !now.isOfAll(i) {
				continue
			}
		}
		if s.endIfMore(i, since, now, more) {
			return
		}
	}
}

// endIfMore ends the engine of a sleeper if more is not nil. Otherwise it records that the
// instance was measured, or is awake. It returns false if the instance has changed its state
// since then, or a swap has claimed it.
func (s *Supervisor) endIfMore(i *instance, since time.Time, now memorySample, more error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asleep := i.state == launcher.Sleeping
	if !i.since.Equal(since) || asleep && i.swapID != "" {
		return false
	}
	i.unmeasured = false
	if more == nil {
		if asleep && len(now.held) > 0 {
			i.residue = now.held
		}
		s.publish(i, launcherapi.EventUpdated)
		return true
	}
	if err := s.transition(i, launcher.EventTimedOut, func() {
		i.cause = "wake_failed"
		i.reason = fmt.Sprintf("its wake failed while the driver of a GPU did not answer, and now the driver answers: %v; the launcher has ended it, and a swap to it starts it again", more)
	}); err != nil {
		s.log.Error("cannot end an instance that sleeps in part", "error", err)
	}
	return true
}

// driverPoll is the time between two questions to a driver that does not answer.
const driverPoll = time.Second

// awaitDrivers waits for at least driverPoll, and until the drivers of an instance's GPUs answer.
// It returns false if the instance is released first.
func (s *Supervisor) awaitDrivers(i *instance) bool {
	tick := time.NewTicker(driverPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-i.whenReleased:
			return false
		case <-s.ctx.Done():
			return false
		}
		if s.areReadable(i.gpus()) {
			return true
		}
	}
}

// areReadable reports whether the memory of all these GPUs can be read. Other than a sample,
// it logs nothing.
func (s *Supervisor) areReadable(uuids []string) bool {
	return !slices.ContainsFunc(uuids, func(uuid string) bool {
		_, err := s.opts.GPUs.Memory(uuid)
		return err != nil
	})
}
