package decide

import (
	"cmp"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// atItsEnd has a log begin at the end that it has.
const atItsEnd = -1

// logFrom returns where the log of an instance begins that is there already: what it said before
// it fell asleep is of others.
func logFrom(i *launcherapi.Instance) int64 {
	switch {
	case i == nil:
		return 0
	case stateOf(i) == launcher.Sleeping:
		return i.AsleepAt
	default:
		return atItsEnd
	}
}

// newRecord returns the record of a requester that is not bound.
func (r *Recording) newRecord() podmeta.Binding {
	return podmeta.Binding{
		Instance: r.Requester.Instance, RequesterUID: r.Requester.UID, Namespace: r.Requester.Namespace, Name: r.Requester.Name,
		GPUs: slices.Sorted(slices.Values(r.GPUs())), ServingPort: r.Form.Port, SpecHash: r.Form.Hash(), Generation: r.Form.Generation, Ahead: r.Ahead, New: r.Instance == nil, LogFrom: logFrom(r.Instance), Attempt: 1, Since: r.Now, ChangedBy: cmp.Or(r.Requester.SwapTo.ID(), r.Requester.Assigned),
		Annotations: r.Form.Annotations, ModelCache: cmp.Or(r.Form.ModelCache, r.ModelCache),
	}
}

// attemptRefused reports whether the launcher refused the attempt since the instance that it was
// to make is there, or the one that it was to wake is not.
func (s *Swapping) attemptRefused() bool {
	if s.Record.New {
		return s.Attempt.Code == launcherapi.CodeExists
	}
	return s.Attempt.Code == launcherapi.CodeNotFound
}

// renewed returns the record with the next attempt.
func (s *Swapping) renewed() podmeta.Binding {
	record := *s.Record
	record.Attempt++
	record.Kept, record.Invalid = "", false
	if len(s.Problems) == 0 {
		record.Annotations, record.ModelCache = s.Form.Annotations, cmp.Or(s.Form.ModelCache, s.ModelCache)
	}
	return record
}

// otherAttempt returns the record after an attempt that was refused: what was to be made is
// woken, and what was to be woken is made. The launcher's word counts, which may be newer than
// what its stream has told.
func (s *Swapping) otherAttempt() Step {
	record := s.renewed()
	record.New = !s.Record.New
	switch {
	case record.New:
		record.LogFrom = 0
	case s.Instance == nil:
		record.LogFrom = atItsEnd
	default:
		record.LogFrom = logFrom(s.Instance)
	}
	return Step{Do: NextAttempt, Why: "the attempt was to find instance " + record.Instance + " otherwise: " + s.Attempt.Failure, Record: record}
}

// nextAttempt returns the record after an attempt that failed. What failed before the requester
// was served counts no more.
func (s *Swapping) nextAttempt(failure string) Step {
	record := s.renewed()
	if s.Requester.WaitsSince.After(s.attemptAt()) {
		record.Failures = 0
	}
	record.Failures++
	pause := PauseAfter(FirstPause, record.Failures)
	if record.New = s.Instance == nil; record.New {
		record.LogFrom = 0
	}
	record.Failure, record.Invalid, record.RetryAt = failure, s.Attempt.Invalid, s.Now.Add(pause)
	return Step{Do: NextAttempt, Why: failure, Record: record}
}
