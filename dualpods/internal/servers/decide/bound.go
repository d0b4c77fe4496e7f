package decide

import (
	"fmt"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Bound is a requester with a record, which is on the Pod of its launcher.
type Bound struct {
	Launched
	Record   *podmeta.Binding      // not nil
	Instance *launcherapi.Instance // of the record; nil: it is not there, or not known
	Attempt  Attempt
	Failures *podmeta.Failures // of the instance; nil: none

	// NextInstance and NextAttempt are those of the record's change.
	NextInstance *launcherapi.Instance
	NextAttempt  Attempt
}

// Bound returns the requester with its record; nil: it is not bound.
func (o *Observation) Bound() *Bound {
	l := o.launched()
	if l == nil || o.Record == nil {
		return nil
	}
	return &Bound{Launched: *l, Record: o.Record, Instance: o.Instance, Attempt: o.Attempt, Failures: o.Failures, NextInstance: o.NextInstance, NextAttempt: o.NextAttempt}
}

// bound returns what of a larger value, as of an [Asking], the rows of several tables read.
func (b *Bound) bound() *Bound { return b }

// RecordUnwanted reports whether the instance of the record is to sleep: no requester wants it any
// more, or it is not what the requester would be bound to.
func (o *Observation) RecordUnwanted() bool {
	b := o.Bound()
	return b != nil && (b.IsLeaving() || b.recordChanged())
}

// recordChanged reports whether the record is not what the requester would be bound to.
func (b *Bound) recordChanged() bool {
	return b.gpusChanged() || b.seatChanged() || !b.isKept() && (b.specChangedBeforeServing() || b.launcherRestartedBeforeServing())
}

// seatChanged reports whether a seat was given another model than that of the record, or none. Unlike an
// edit, this also ends a record that is served.
func (b *Bound) seatChanged() bool {
	return b.Requester.Seat && b.Record.ChangedBy != b.Requester.Assigned
}

// launcherRestartedBeforeServing reports whether the launcher's container has ended under a
// requester that is not served yet. It waits for the next launcher, as it did for this one.
func (b *Bound) launcherRestartedBeforeServing() bool {
	return b.launcherContainerEnded() && !b.launcherGone() && !b.Launcher.Deleting && !b.IsReady() && !b.isPublished()
}

// specChangedBeforeServing reports whether what was asked for has changed while the requester
// is not served. A requester that is served goes on with what it has, to the end of that, and so does
// one whose record is being changed.
func (b *Bound) specChangedBeforeServing() bool {
	serves := b.instanceAwake() && (b.Requester.Shown || b.ForwardsTraffic())
	died := b.instanceEndedOrGone() && (b.IsReady() || b.isPublished())
	return b.Record.Change == nil && !serves && !died && b.instanceKnown() && len(b.Problems) == 0 && !b.specUnchanged()
}

// specUnchanged reports whether the record is of what is asked for now.
func (b *Bound) specUnchanged() bool {
	launcher := b.Form.LauncherConfig == "" || b.Form.LauncherConfig == b.Launcher.Config
	return launcher && b.Form.Hash() == b.Record.SpecHash && b.Form.Port == b.Record.ServingPort
}

// gpusChanged reports whether the record is not of the GPUs that the requester has.
func (b *Bound) gpusChanged() bool {
	if b.Record.Ahead && b.Kubelet != nil && len(b.Kubelet.GPUs) > 0 && !b.Kubelet.Early && !SameSet(b.Kubelet.GPUs, b.Record.GPUs) {
		return true
	}
	return b.SPI != nil && b.SPI.Wrong == "" && !SameSet(b.SPI.GPUs, b.Record.GPUs)
}

// isToBeCompared reports whether the record was written by the kubelet's word, and the requester
// program has not carried traffic by it.
func (b *Bound) isToBeCompared() bool { return b.Record.Ahead && !b.ForwardsTraffic() }

// instanceIn reports whether the instance is there, in one of these states.
func (b *Bound) instanceIn(states ...launcher.State) bool {
	return b.Instance != nil && slices.Contains(states, stateOf(b.Instance))
}

// instanceAwake reports whether the instance is awake.
func (b *Bound) instanceAwake() bool { return b.instanceIn(launcher.Awake) }

// absentOrAsleep reports whether nothing of the instance is to be waited for.
func (b *Bound) absentOrAsleep() bool {
	return b.Instance == nil || b.instanceIn(launcher.Sleeping)
}

// instanceEndedOrGone reports whether the instance has ended or was deleted.
func (b *Bound) instanceEndedOrGone() bool { return endedOrGone(b.Instance) }

// instanceKnown reports whether it is known what the instance of the record is: its launcher
// tells, or the launcher's container has ended, and the instance with it.
func (b *Bound) instanceKnown() bool { return b.Launcher.Connected || b.Launcher.Ended }

// mayBeAwake reports whether the instance is awake, as far as is known.
func (b *Bound) mayBeAwake() bool {
	return !b.launcherContainerEnded() && (!b.instanceKnown() || b.instanceAwake())
}

// Binding returns the name of the binding that the requester program is to have. One of an earlier
// attempt will do: the instance was the record's all the time, so a model that was put to sleep
// by hand is served again without an end to its clients' connections.
func (b *Bound) Binding() string {
	if b.SPI != nil && b.SPI.Proxy.State == requesterapi.StateBound && b.Record.HasKey(b.SPI.Proxy.Binding) {
		return b.SPI.Proxy.Binding
	}
	return b.Record.SwapKey()
}

func (b *Bound) instanceID() string { return b.Record.Instance }

func (b *Bound) instanceState() string {
	if b.Instance == nil {
		return "not there"
	}
	return b.Instance.State
}

// fate says how an instance came to serve no more.
func (b *Bound) fate() string {
	switch {
	case b.Launcher.Ended:
		return "ended with the container of its launcher " + b.Launcher.Name
	case b.Instance == nil:
		return "was deleted"
	case b.Instance.Reason != "":
		return fmt.Sprintf("is %s (%s)", b.Instance.State, b.Instance.Reason)
	}
	return "is " + b.Instance.State
}
