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
func (o *Observation) logFrom() int64 {
	switch {
	case o.Instance == nil:
		return 0
	case o.InstanceIn(launcher.Sleeping):
		return o.Instance.AsleepAt
	default:
		return atItsEnd
	}
}

// NewRecord returns the record of a requester that is not bound.
func (o *Observation) NewRecord() podmeta.Binding {
	return podmeta.Binding{
		Instance: o.Requester.Instance, RequesterUID: o.Requester.UID, Namespace: o.Requester.Namespace, Name: o.Requester.Name,
		GPUs: slices.Sorted(slices.Values(o.GPUs())), ServingPort: o.Form.Port, SpecHash: o.Form.Hash(), Generation: o.Form.Generation, Ahead: o.Ahead, New: o.Instance == nil, LogFrom: o.logFrom(), Attempt: 1, Since: o.Now,
		Annotations: o.Form.Annotations, ModelCache: o.modelCache(),
	}
}

// modelCache returns from where a new instance is to have its model: as the requester says, or
// else its namespace, or else the controller's own flag.
func (o *Observation) modelCache() string { return cmp.Or(o.Form.ModelCache, o.ModelCache) }

// attemptRefused reports whether the launcher refused the attempt since the instance that it was
// to make is there, or the one that it was to wake is not.
func (o *Observation) attemptRefused() bool {
	if o.Record.New {
		return o.Attempt.Code == launcherapi.CodeExists
	}
	return o.Attempt.Code == launcherapi.CodeNotFound
}

// renewed returns the record with the next attempt.
func (o *Observation) renewed() podmeta.Binding {
	record := *o.Record
	record.Attempt++
	if len(o.Problems) == 0 {
		record.Annotations, record.ModelCache = o.Form.Annotations, o.modelCache()
	}
	return record
}

// otherAttempt returns the record after an attempt that was refused: what was to be made is
// woken, and what was to be woken is made. The launcher's word counts, which may be newer than
// what its stream has told.
func (o *Observation) otherAttempt() Step {
	record := o.renewed()
	record.New = !o.Record.New
	switch {
	case record.New:
		record.LogFrom = 0
	case o.Instance == nil:
		record.LogFrom = atItsEnd
	default:
		record.LogFrom = o.logFrom()
	}
	return Step{Do: NextAttempt, Why: "the attempt was to find instance " + record.Instance + " otherwise: " + o.Attempt.Failure, Record: record}
}

// NextAttempt returns the record after an attempt that failed. What failed before the requester
// was served counts no more.
func (o *Observation) NextAttempt(failure string) Step {
	record := o.renewed()
	if o.Requester.WaitsSince.After(o.attemptAt()) {
		record.Failures = 0
	}
	record.Failures++
	pause := PauseAfter(FirstPause, record.Failures)
	if record.New = o.Instance == nil; record.New {
		record.LogFrom = 0
	}
	record.Failure, record.RetryAt = failure, o.Now.Add(pause)
	return Step{Do: NextAttempt, Why: failure, Record: record}
}
