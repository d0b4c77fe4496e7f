package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file ends engines whose process runs while nothing listens at their address: the file
// of the socket was removed, or the API server has closed it. A process does not open its
// socket a second time, so no client reaches such an engine any more.

// causeNotListening is the cause of an instance that was ended for that.
const causeNotListening = "not_listening"

// listenLimit returns how long an engine may refuse connections before it is ended. It is not
// longer than an engine that hangs is asked.
func (s *Supervisor) listenLimit() time.Duration {
	if s.opts.Limits.Hang == 0 {
		return hangAnswerLimit
	}
	return min(s.opts.Limits.Hang, hangAnswerLimit)
}

// listensAt says where the engine should listen.
func (f *facts) listensAt() string {
	if f.EngineSocket != "" {
		return "its socket " + f.EngineSocket
	}
	return fmt.Sprintf("its port %d", f.EnginePort)
}

// refusing says that nothing listens, and what the launcher does about it.
func (s *Supervisor) refusing(i *instance) string {
	return fmt.Sprintf("its process runs, and nothing listens at %s; the launcher ends it if nothing listens there for %s", i.facts.listensAt(), s.listenLimit())
}

// answering says that nothing listens, and why the launcher does not end the engine yet.
func (s *Supervisor) answering(i *instance) string {
	return fmt.Sprintf("its process runs, and nothing listens at %s; the launcher ends it when the answers in flight have ended, after %s at the latest", i.facts.listensAt(), s.opts.Limits.Drain)
}

// refused says that nothing listened for as long as that.
func refused(i *instance, lasted time.Duration) string {
	return fmt.Sprintf("its process ran, and nothing listened at %s for %s; the launcher has ended it, and a swap to it starts it again", i.facts.listensAt(), lasted.Round(time.Second))
}

// CheckListens finds out in the background whether an engine listens that has refused the
// connection of a request. It ends the engine if nothing listens for the whole limit.
func (s *Supervisor) CheckListens(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok || s.closing || i.state != launcher.Awake || i.listenChecked {
		return
	}
	i.listenChecked = true
	since := i.since
	s.spawn(func() {
		ctx, stop := context.WithCancel(s.ctx)
		defer stop()
		var lasted time.Duration
		_ = s.watchingDisk(ctx, i, func(ctx context.Context) error {
			lasted = s.refusesFor(ctx, i, since, s.listenLimit())
			return nil
		})
		s.endUnreachable(i, since, lasted)
	})
}

// refusesFor returns for how long nothing has listened at an engine's address, once that is
// the whole limit, in which the disk of the state folder did not stall; 0: the engine listens
// again. It does not ask at once: the launcher may have a connection to the engine from before,
// and keeps an idle one for less than listenPoll.
//
// An engine may answer on open connections while it refuses new ones. It then gets
// Limits.Drain more, as long as answers get before a sleep cuts them. It gets no more than
// that, because each new request is refused meanwhile.
func (s *Supervisor) refusesFor(ctx context.Context, i *instance, since time.Time, limit time.Duration) time.Duration {
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	var due time.Time // when the limit was over
	for began := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0
		}
		if !s.refuses(i) || !s.noteRefuses(i, since) {
			return 0
		}
		if time.Since(began) < limit || s.opts.Writes.WellFor() < limit {
			continue
		}
		if due.IsZero() {
			due = time.Now()
		}
		if time.Since(due) >= s.opts.Limits.Drain || !s.noteAnswers(i, since, limit) {
			return time.Since(began)
		}
	}
}

// noteAnswers reports whether an engine that refuses connections still answers requests in
// flight: something has come back within the limit. It publishes once that the engine does.
func (s *Supervisor) noteAnswers(i *instance, since time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state != launcher.Awake || !i.since.Equal(since) || i.gate == nil || i.gate.InFlight() == 0 || i.gate.QuietFor() >= limit {
		return false
	}
	if answering := s.answering(i); i.unreachable != answering {
		i.unreachable = answering
		s.log.Warn("an engine refuses connections, and still answers requests in flight", "instance", i.facts.ID, "address", i.facts.listensAt())
		s.publish(i, launcherapi.EventUpdated)
	}
	return true
}

// refuses asks once whether nothing listens at the engine's address.
func (s *Supervisor) refuses(i *instance) bool {
	ctx, stop := context.WithTimeout(s.ctx, progressLimit)
	defer stop()
	return engine.Refused(i.engine.Ready(ctx, i.engineURL()))
}

// noteRefuses publishes once that nothing listens. It returns false if the instance has been
// anything but awake since then.
func (s *Supervisor) noteRefuses(i *instance, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state != launcher.Awake || !i.since.Equal(since) {
		return false
	}
	if i.unreachable == "" {
		i.unreachable = s.refusing(i)
		s.log.Warn("an engine refuses connections", "instance", i.facts.ID, "address", i.facts.listensAt())
		s.publish(i, launcherapi.EventUpdated)
	}
	return true
}

// endUnreachable ends the engine of an instance that has refused connections for so long,
// unless the instance has slept since. 0: the engine listens.
func (s *Supervisor) endUnreachable(i *instance, since time.Time, lasted time.Duration) {
	refuses := lasted > 0
	var tail []string
	if refuses {
		tail = s.tail(i.facts.LogName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.listenChecked = false
	if s.ctx.Err() != nil || i.state != launcher.Awake || !i.since.Equal(since) {
		return
	}
	if !refuses {
		if i.unreachable != "" {
			i.unreachable = ""
			s.publish(i, launcherapi.EventUpdated)
		}
		return
	}
	err := s.transition(i, launcher.EventTimedOut, func() {
		i.cause, i.lastLog, i.reason = causeNotListening, tail, refused(i, lasted)
	})
	if err != nil {
		s.log.Error("cannot end an instance that refuses connections", "instance", i.facts.ID, "error", err)
	}
}

// wasAwake reports whether a record says that its instance is awake, or that an earlier
// launcher found it awake and out of reach: it starts, and has done so before. A new instance
// that loads has all the time of a start.
func (v *SavedInstance) wasAwake() bool {
	return v.State == launcher.Awake || v.State == launcher.Starting &&
		slices.ContainsFunc(v.Timings, func(p launcherapi.PhaseTime) bool { return p.Name == string(launcher.Starting) })
}
