package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file ends engines that hang while they are awake: they answer /health and nothing
// else. The gate of an instance notices that requests are in flight and nothing comes back.

// hangAnswerLimit bounds the wait for the answer of an engine that may hang.
const hangAnswerLimit = time.Minute

// CheckQuiet finds out in the background whether the engine of an instance hangs, whose
// requests in flight have got nothing for Limits.Hang. An engine that is only busy is left
// alone.
func (s *Supervisor) CheckQuiet(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok || s.closing || i.state != launcher.Awake || i.gate == nil || i.hangChecked {
		return
	}
	i.hangChecked = true
	kind, since := i.fingerprint.kind(), i.since
	s.spawn(func() {
		limit := min(s.opts.Limits.Hang, hangAnswerLimit)
		s.endHung(i, since, limit, s.hangs(i, kind, limit))
	})
}

// hangs reports whether an engine answers no short request within the limit, and has done
// nothing for others meanwhile. An engine does not hang while the disk of the state folder
// stalls, and for Limits.Hang afterwards: it may have waited for that disk, to write its log.
func (s *Supervisor) hangs(i *instance, kind string, limit time.Duration) bool {
	began := time.Now()
	ctx, stop := context.WithTimeout(s.ctx, limit)
	defer stop()
	before := s.progress(i)
	err := s.watchingDisk(ctx, i, func(ctx context.Context) error {
		_, err := s.ask(ctx, i, kind)
		return err
	})
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false // an engine that refuses a request does not hang
	}
	if s.silencedByDisk(i, began, context.DeadlineExceeded) || s.opts.Writes.WellFor() < s.opts.Limits.Hang {
		s.log.Warn("an engine answers nothing, and the disk stalls or did until lately; it is left alone for now", "instance", i.facts.ID)
		return false
	}
	return before == s.progress(i)
}

// progressLimit bounds the wait for the counters of an engine.
const progressLimit = 5 * time.Second

// progress returns what the engine's counters say; empty: it does not tell.
func (s *Supervisor) progress(i *instance) string {
	ctx, stop := context.WithTimeout(s.ctx, progressLimit)
	defer stop()
	progress, err := i.engine.Progress(ctx, i.engineURL(), s.keyOf(i))
	if err != nil {
		return ""
	}
	return progress
}

// endHung ends the engine of an instance that hangs, unless something has come back from it
// since, or the instance has slept.
func (s *Supervisor) endHung(i *instance, since time.Time, limit time.Duration, hangs bool) {
	var tail []string
	if hangs {
		tail = s.tail(i.facts.LogName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.hangChecked = false
	if s.ctx.Err() != nil || !hangs || i.state != launcher.Awake || !i.since.Equal(since) || i.gate == nil {
		return
	}
	quiet, inFlight := i.gate.QuietFor(), i.gate.InFlight()
	if quiet < s.opts.Limits.Hang {
		return
	}
	err := s.transition(i, launcher.EventTimedOut, func() {
		i.cause, i.lastLog = "no_answers", tail
		i.reason = fmt.Sprintf("answers /health and no request: %d requests in flight have got nothing for %s, and a short request got no answer within %s; the launcher has ended it, and a swap to it starts it again",
			inFlight, quiet.Round(time.Second), limit)
	})
	if err != nil {
		s.log.Error("cannot end an instance that hangs", "instance", i.facts.ID, "error", err)
	}
}
