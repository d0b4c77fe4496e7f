package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file keeps engines that do not answer while the disk of the state folder stalls: they
// may be waiting for that disk, to write their logs, and go on once it answers.

const (
	// stallLimit is how long an engine that does not answer is kept for a disk that stalls.
	stallLimit = 10 * time.Minute
	// diskCheck is the time between two writes by which a disk that stalls is noticed.
	diskCheck = statedir.Patience / 2
)

// patiently makes a call that an engine has to answer within a limit. If it has not, and the
// disk stalled meanwhile, patiently makes the call again once the disk answers, with the whole
// limit. It waits for the disk for at most stallLimit in all, and the reason of the instance
// says so. ctx has no deadline.
func (s *Supervisor) patiently(ctx context.Context, i *instance, limit time.Duration, call func(context.Context) error) error {
	var until time.Time // zero: the disk was not waited for yet
	for {
		began := time.Now()
		limited, stop := context.WithTimeout(ctx, limit)
		err := s.watchingDisk(limited, i, call)
		stop()
		if ctx.Err() != nil || !s.silencedByDisk(i, began, err) {
			return err
		}
		if until.IsZero() {
			until = time.Now().Add(stallLimit)
		}
		if !s.awaitDisk(ctx, i, err, until) {
			return err
		}
	}
}

// watchingDisk makes a call. Meanwhile it has the record of the instance written now and then:
// nobody would notice a disk that stalls and to which nothing is written.
func (s *Supervisor) watchingDisk(ctx context.Context, i *instance, call func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.spawn(func() {
		tick := time.NewTicker(diskCheck)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.repeatRecord(i)
			case <-ctx.Done():
				return
			}
		}
	})
	return call(ctx)
}

// repeatRecord writes the record of an instance again.
func (s *Supervisor) repeatRecord(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isListed(i) {
		s.records.Repeat(i.facts.ID, s.saved(i))
	}
}

// silencedByDisk reports whether err, of a call to an engine, may come of a disk that has
// stalled since the call began: the engine did not answer in time, or was not asked since its
// record could not be written.
func (s *Supervisor) silencedByDisk(i *instance, began time.Time, err error) bool {
	if isUnwritten(err) {
		return true
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	s.repeatRecord(i)
	return s.opts.Writes.StalledAfter(began)
}

// isUnwritten reports whether an act waited for a record that a disk which stalls did not
// write.
func isUnwritten(err error) bool {
	_, stalls := errors.AsType[*statedir.StallError](err)
	return stalls
}

// awaitDisk waits until the disk answers, and says so, with what err of a call to the engine
// tells, in the reason of the instance. It returns false if the disk does not answer until
// then, or ctx ends first.
func (s *Supervisor) awaitDisk(ctx context.Context, i *instance, err error, until time.Time) bool {
	since, answers := s.opts.Writes.UnderWay()
	if answers == nil {
		return time.Now().Before(until)
	}
	said, why, next := "an engine does not answer while the disk stalls; it is asked again when the disk answers",
		"does not answer, and may be waiting for the disk, to write its log", "asks it again when the disk answers, and ends it"
	if isUnwritten(err) { // only backToSleep waits for a record
		said, why, next = "an engine is put back to sleep when its record is written; the disk stalls",
			"waits for its record to be written before it is put back to sleep", "ends it"
	}
	s.log.Warn(said, "instance", i.facts.ID, "since", since)
	s.noteAwaitsDisk(i, fmt.Sprintf("%s: %v; the launcher %s if that takes longer than %s", why, &statedir.StallError{Since: since}, next, stallLimit))
	defer s.noteAwaitsDisk(i, "")
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-answers:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// noteAwaitsDisk publishes why the launcher waits for the disk before it judges the engine of
// an instance; empty: it does not wait any more.
func (s *Supervisor) noteAwaitsDisk(i *instance, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.awaitsDisk == why || !s.isListed(i) {
		return
	}
	i.awaitsDisk = why
	s.publish(i, launcherapi.EventUpdated)
}
