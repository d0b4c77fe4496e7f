package decide

import (
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// stranded: clients are kept from a requester that nothing serves, before anything else.
var stranded = Table{
	Name:     "stranded",
	Sentence: "No instance serves the requester, and its program, labels, status or gate may lead clients to it",
	Rows: []Row{
		notHeld, notAwakeReady, notAwakeStaysReady, holdsForNobody,
		{"record damaged", "not bound; the record of an instance that is awake, as far as is known, cannot be read, and may be its own: its program carries traffic to that instance, or does not answer and labels, status or gate say that it serves",
			(*Observation).recordDamaged, Tell, recordCannotBeRead},
		{"launcher gone, ready", "not bound, or the launcher Pod has ended, or it is being deleted and the launcher does not answer; the requester is ready, and was not told so in vain a moment ago, unless it carries nothing and nothing shows it any more",
			(*Observation).readyWithoutLauncher, BecomeUnready, say("the launcher that served it is gone")},
		{"launcher gone, stays ready", "the same; the requester is ready, though told to become unready, and carries traffic; it is not being unbound, nor was told to unbind in vain a moment ago",
			(*Observation).staysReadyWithoutLauncher, Unbind, unbindStubborn("the launcher that served it is gone")},
		{"not bound, shown", "not bound; labels, status or gate say that it serves",
			(*Observation).isPublishedWithoutRecord, Retract, say("nobody is bound to it any more")},
		{"provider vanished", "not bound; its program carries traffic all the same",
			(*Observation).forwardsWithoutRecord, DeleteRequester, warn(LauncherGone, "the launcher that served it is gone")},
		{"provider leaving", "bound; the launcher Pod is being deleted or has ended",
			(*Observation).launcherLeaves, DeleteRequester, warn(LauncherGone, "its launcher %s is being deleted or has ended", launcherName)},
		{"died, not noted", "bound; the instance has ended; labels or status say that the requester serves, or its gate does, and its program has carried traffic; the launcher Pod does not have it that the instance ended under this requester",
			(*Observation).endIsToBeNoted, NoteFailure, noteFailure},
		{"died while it served", "bound; the instance has ended or was deleted; labels or status say that the requester serves, or its gate does, and its program has carried traffic",
			(*Observation).diedWhileItServed, DeleteRequester, warn(ServerGone, "instance %s, which served it, %s", instanceID, fate)},
		{"not awake, shown", "bound; the instance is not awake; labels, status or gate say that it serves",
			(*Observation).isPublishedNotAwake, Retract, say("instance %s is %s", instanceID, instanceState)},
		{"not carried, shown", "bound; the requester program does not run, unless it is bound ahead and the launcher answers; or it carries traffic for something else than the record, or is being unbound; or it carries none, and was told to bind in vain, or the launcher does not answer, or it is bound ahead and not compared; labels, status or gate say that it serves",
			(*Observation).isPublishedNotCarried, Retract, say("the requester program carries no traffic to instance %s", instanceID)},
	},
}

// The rows of requesters that stay, whether their record is wanted or not.
var (
	notHeld = Row{"not awake, not held", "bound; the instance is not awake; the requester is ready, though told to become unready, and carries traffic; our finalizer is not on it, as after an uninstallation",
		(*Observation).staysReadyUnheld, AddFinalizer, say("its program does not become unready, and its GPUs must stay its own")}
	notAwakeReady = Row{"not awake, ready", "bound; the instance is not awake; the requester is ready, and was not told so in vain a moment ago, unless it carries nothing and nothing shows it any more",
		(*Observation).isToBecomeUnready, BecomeUnready, say("instance %s, which served it, %s", instanceID, fate)}
	notAwakeStaysReady = Row{"not awake, stays ready", "bound; the instance is not awake; the requester is ready, though told to become unready, and carries traffic; it is not being unbound, nor was told to unbind in vain a moment ago, unless nothing shows it any more",
		(*Observation).staysReady, Unbind, unbindStubborn("instance %s, which served it, %s", instanceID, fate)}
	holdsForNobody = Row{"holds for nobody", "its program holds connections for a binding that does not come: it is not bound, or its record is unwanted or has another attempt; the program was not told so in vain a moment ago",
		(*Observation).shouldEndHold, EndHold, say("its program holds connections for a binding that does not come")}
)

// readyWithoutInstance reports whether the requester is ready and its instance is not awake.
func (o *Observation) readyWithoutInstance() bool {
	return o.instanceKnown() && !o.instanceAwake() && o.IsReady()
}

// staysReadyUnheld reports whether a requester that does not become unready lacks our finalizer.
func (o *Observation) staysReadyUnheld() bool {
	return o.readyWithoutInstance() && o.ignoresUnready() && !o.Requester.Finalizer
}

// isToBecomeUnready reports whether a requester is to be told that its instance is not awake.
func (o *Observation) isToBecomeUnready() bool {
	return o.readyWithoutInstance() && o.shouldBecomeUnready()
}

// staysReady reports whether a requester that does not become unready is to be unbound.
func (o *Observation) staysReady() bool {
	return o.readyWithoutInstance() && o.ignoresUnready() && (o.canUnbind() || !o.isPublished())
}

// shouldBecomeUnready reports whether the requester program is to be told to become unready. If
// that was in vain a moment ago, its clients are kept from it otherwise first.
func (o *Observation) shouldBecomeUnready() bool {
	return o.IsReady() && (!o.inVain(BecomeUnready) || !o.ForwardsTraffic() && !o.isPublished())
}

// ignoresUnready reports whether the requester program carries traffic, and does not become
// unready though told to.
func (o *Observation) ignoresUnready() bool {
	return o.Troubles[BecomeUnready].Count > 0 && o.ForwardsTraffic()
}

// canUnbind reports whether the requester program is not being unbound, nor was told to unbind
// in vain a moment ago.
func (o *Observation) canUnbind() bool { return !o.inVain(Unbind) && !o.Calls.Unbind }

// unbindStubborn keeps clients from a requester that does not become unready.
func unbindStubborn(format string, args ...words) func(*Observation) Step {
	unbind := say(format+", and the requester program refuses to become unready", args...)
	return func(o *Observation) Step {
		if o.Calls.Unbind {
			return Step{Do: Nothing, Why: "connections of its clients are ending"}
		}
		return unbind(o)
	}
}

// recordDamaged reports whether a record that cannot be read may be that of the requester.
func (o *Observation) recordDamaged() bool {
	return o.Unread != "" && (o.ForwardsTraffic() || o.isPublished())
}

func recordCannotBeRead(o *Observation) Step {
	step := warn(RecordDamaged, "the controller leaves it as it is: its record may be the one that cannot be read, of %s", func(o *Observation) string { return o.Unread })(o)
	if o.SPI == nil {
		step.After = o.untilAsked()
	}
	return step
}

// lacksLauncher reports whether nobody is bound to the requester, or nobody knows the launcher to serve.
func (o *Observation) lacksLauncher() bool { return o.Record == nil || o.LauncherUnknown() }

// readyWithoutLauncher reports whether a requester is to be told that its launcher is gone.
func (o *Observation) readyWithoutLauncher() bool {
	return o.lacksLauncher() && o.shouldBecomeUnready()
}

// staysReadyWithoutLauncher reports whether a requester that does not become unready is to be
// unbound, since its launcher is gone.
func (o *Observation) staysReadyWithoutLauncher() bool {
	return o.lacksLauncher() && o.IsReady() && o.ignoresUnready() && o.canUnbind()
}

// isPublishedWithoutRecord reports whether a requester is shown that nobody is bound to.
func (o *Observation) isPublishedWithoutRecord() bool { return o.Record == nil && o.isPublished() }

// forwardsWithoutRecord reports whether a requester carries traffic that nobody is bound to.
func (o *Observation) forwardsWithoutRecord() bool { return o.Record == nil && o.ForwardsTraffic() }

// launcherLeaves reports whether the launcher of the record is being deleted or has ended.
func (o *Observation) launcherLeaves() bool {
	return o.Record != nil && (o.launcherGone() || o.Launcher.Deleting)
}

// endIsToBeNoted reports whether the instance has ended while it served, and whoever has it next
// would not know.
func (o *Observation) endIsToBeNoted() bool {
	return o.instanceKnown() && o.InstanceIn(launcher.Failed, launcher.Stopped) && o.hasServed() && !o.failureRecorded()
}

func noteFailure(o *Observation) Step {
	return Step{Why: strings.Join([]string{"instance", instanceID(o), fate(o), "while it served: whoever has it next is to know"}, " "), Failures: o.failuresNow()}
}

// diedWhileItServed reports whether the instance of a requester that is shown has ended.
func (o *Observation) diedWhileItServed() bool {
	return o.instanceKnown() && o.instanceEndedOrGone() && o.hasServed()
}

// isPublishedNotAwake reports whether a requester is shown whose instance is not awake.
func (o *Observation) isPublishedNotAwake() bool {
	return o.instanceKnown() && !o.instanceAwake() && o.isPublished()
}

// isPublishedNotCarried reports whether a requester is shown whose program carries no traffic to
// its instance.
func (o *Observation) isPublishedNotCarried() bool {
	return o.Record != nil && o.isPublished() && o.forwardsNothing()
}
