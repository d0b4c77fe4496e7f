package decide

import (
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// stranded: clients are kept from a requester that nothing serves, before anything else. The rows
// for programs that are ready come before those for labels, status and gate: clients are led to
// these at once.
var stranded = TableOf[Staying]{
	Name:     "stranded",
	Sentence: "No instance serves the requester, and its program, labels, status or gate may lead clients to it",
	Sees:     func(s *seen) *Staying { return s.staying },
	Rows: []RowOf[Staying]{
		whereBound(endedRefuses), whereBound(notHeld), whereBound(notAwakeReady), whereBound(notAwakeStaysReady), holdsForNobody((*Staying).shouldEndHold),
		{"record damaged", "not bound; the record of an instance that is awake, as far as is known, cannot be read, and may be its own: its program carries traffic to that instance, or does not answer and labels, status or gate say that it serves",
			(*Staying).recordDamaged, Tell, (*Staying).recordCannotBeRead},
		{"launcher gone, ready", "not bound, or the launcher Pod has ended, or it is being deleted and the launcher does not answer; the requester is ready, and was not told so in vain a moment ago, unless it carries nothing and nothing shows it any more",
			(*Staying).readyWithoutLauncher, BecomeUnready, say[Staying]("the launcher that served it is gone")},
		{"launcher gone, stays ready", "the same; the requester is ready, though told to become unready, and carries traffic; it is not being unbound, nor was told to unbind in vain a moment ago",
			(*Staying).staysReadyWithoutLauncher, Unbind, func(s *Staying) Step { return s.unbindStubborn("the launcher that served it is gone") }},
		{"not bound, shown", "not bound; labels, status or gate say that it serves",
			(*Staying).isPublishedWithoutRecord, Retract, say[Staying]("it has no server any more")},
		{"provider vanished", "not bound; its program carries traffic all the same",
			(*Staying).forwardsWithoutRecord, DeleteRequester, warn[Staying](LauncherGone, "the launcher that served it is gone")},
		whereBound(RowOf[Bound]{"provider leaving", "bound; the launcher Pod is being deleted or has ended",
			(*Bound).launcherLeaves, DeleteRequester, warn(LauncherGone, "its launcher %s is being deleted or has ended", (*Bound).launcherName)}),
		whereBound(RowOf[Bound]{"died, not noted", "bound; the instance has ended, or, if the requester stays, was deleted; labels or status say that the requester serves, or its gate does, and its program has carried traffic; the launcher Pod does not have it that the instance ended under this requester; if the requester stays, by this attempt",
			(*Bound).endIsToBeNoted, NoteFailure, (*Bound).noteFailure}),
		whereBound(diedToBeKept),
		whereBound(RowOf[Bound]{"died while it served", "bound; the instance has ended or was deleted; labels or status say that the requester serves, or its gate does, and its program has carried traffic; the requester does not stay",
			(*Bound).endsWithItsInstance, DeleteRequester, warn(ServerGone, "instance %s, which served it, %s", (*Bound).instanceID, (*Bound).fate)}),
		whereBound(RowOf[Bound]{"not awake, shown", "bound; the instance is not awake; labels, status or gate say that it serves",
			(*Bound).isPublishedNotAwake, Retract, say("instance %s is %s", (*Bound).instanceID, (*Bound).instanceState)}),
		whereBound(RowOf[Bound]{"not carried, shown", "bound; the requester program does not run, unless it is bound ahead and the launcher answers; or it carries traffic for something else than the record, or is being unbound; or it carries none, and was told to bind in vain, or the launcher does not answer, or it is bound ahead and not compared; labels, status or gate say that it serves",
			(*Bound).isPublishedNotCarried, Retract, say("the requester program carries no traffic to instance %s", (*Bound).instanceID)}),
		whereBound(keptAsItEnded),
	},
}

// The rows of requesters that stay, whether their record is wanted or not.
var (
	notHeld = RowOf[Bound]{"not awake, not held", "bound; the instance is not awake; the requester is ready, though told to become unready, and carries traffic; our finalizer is not on it, as after an uninstallation",
		(*Bound).staysReadyUnheld, AddFinalizer, say[Bound]("its program does not become unready, and its GPUs must stay its own")}
	notAwakeReady = RowOf[Bound]{"not awake, ready", "bound; the instance is not awake; the requester is ready, and was not told so in vain a moment ago, unless it carries nothing and nothing shows it any more",
		(*Bound).isToBecomeUnready, BecomeUnready, say("instance %s, which served it, %s", (*Bound).instanceID, (*Bound).fate)}
	notAwakeStaysReady = RowOf[Bound]{"not awake, stays ready", "bound; the instance is not awake; the requester is ready, though told to become unready, and carries traffic; it is not being unbound, nor was told to unbind in vain a moment ago, unless nothing shows it any more",
		(*Bound).staysReady, Unbind, func(b *Bound) Step {
			return b.unbindStubborn("instance " + b.instanceID() + ", which served it, " + b.fate())
		}}
)

// readyWithoutInstance reports whether the requester is ready and its instance is not awake.
func (b *Bound) readyWithoutInstance() bool {
	return b.instanceKnown() && !b.instanceAwake() && b.IsReady()
}

// staysReadyUnheld reports whether a requester that does not become unready lacks our finalizer.
func (b *Bound) staysReadyUnheld() bool {
	return b.readyWithoutInstance() && b.ignoresUnready() && !b.Requester.Finalizer
}

// isToBecomeUnready reports whether a requester is to be told that its instance is not awake.
func (b *Bound) isToBecomeUnready() bool {
	return b.readyWithoutInstance() && b.shouldBecomeUnready()
}

// staysReady reports whether a requester that does not become unready is to be unbound.
func (b *Bound) staysReady() bool {
	return b.readyWithoutInstance() && b.ignoresUnready() && (b.canUnbind() || !b.isPublished())
}

// shouldBecomeUnready reports whether the requester program is to be told to become unready. If
// that was in vain a moment ago, its clients are kept from it otherwise first.
func (c *Common) shouldBecomeUnready() bool {
	return c.IsReady() && (!c.inVain(BecomeUnready) || !c.ForwardsTraffic() && !c.isPublished())
}

// ignoresUnready reports whether the requester program carries traffic, and does not become
// unready though told to.
func (c *Common) ignoresUnready() bool {
	return c.Troubles[BecomeUnready].Count > 0 && c.ForwardsTraffic()
}

// canUnbind reports whether the requester program is not being unbound, nor was told to unbind
// in vain a moment ago.
func (c *Common) canUnbind() bool { return !c.inVain(Unbind) && !c.Calls.Unbind }

// unbindStubborn keeps clients from a requester that does not become unready.
func (c *Common) unbindStubborn(why string) Step {
	if c.Calls.Unbind {
		return Step{Do: Nothing, Why: "connections of its clients are ending"}
	}
	return Step{Why: why + ", and the requester program refuses to become unready"}
}

// recordDamaged reports whether a record that cannot be read may be that of the requester.
func (s *Staying) recordDamaged() bool {
	return s.isUnbound() && s.Unread != "" && (s.ForwardsTraffic() || s.isPublished())
}

func (s *Staying) recordCannotBeRead() Step {
	step := Step{Why: "the controller leaves it as it is: its record may be the one that cannot be read, of " + s.Unread, Reason: RecordDamaged, Warn: true}
	if s.SPI == nil {
		step.After = s.untilAsked()
	}
	return step
}

// lacksLauncher reports whether nobody is bound to the requester, or nobody knows the launcher to serve.
func (s *Staying) lacksLauncher() bool { return s.isUnbound() || s.Bound.LauncherUnknown() }

// readyWithoutLauncher reports whether a requester is to be told that its launcher is gone.
func (s *Staying) readyWithoutLauncher() bool {
	return s.lacksLauncher() && s.shouldBecomeUnready()
}

// staysReadyWithoutLauncher reports whether a requester that does not become unready is to be
// unbound, since its launcher is gone.
func (s *Staying) staysReadyWithoutLauncher() bool {
	return s.lacksLauncher() && s.IsReady() && s.ignoresUnready() && s.canUnbind()
}

// isPublishedWithoutRecord reports whether a requester is shown that nobody is bound to.
func (s *Staying) isPublishedWithoutRecord() bool { return s.isUnbound() && s.isPublished() }

// forwardsWithoutRecord reports whether a requester carries traffic that nobody is bound to.
func (s *Staying) forwardsWithoutRecord() bool { return s.isUnbound() && s.ForwardsTraffic() }

// launcherLeaves reports whether the launcher of the record is being deleted or has ended.
func (b *Bound) launcherLeaves() bool {
	return b.launcherGone() || b.Launcher.Deleting
}

// endIsToBeNoted reports whether the instance has ended while it served, and whoever has it next
// would not know.
func (b *Bound) endIsToBeNoted() bool {
	ended := b.instanceIn(launcher.Failed, launcher.Stopped) || b.staysAtExit() && b.instanceEndedOrGone()
	return b.instanceKnown() && ended && b.hasServed() && !b.failureRecorded()
}

func (b *Bound) noteFailure() Step {
	return Step{Why: strings.Join([]string{"instance", b.instanceID(), b.fate(), "while it served: whoever has it next is to know"}, " "), Failures: b.failuresNow()}
}

// diedWhileItServed reports whether the instance of a requester that is shown has ended.
func (b *Bound) diedWhileItServed() bool {
	return b.instanceKnown() && b.instanceEndedOrGone() && b.hasServed()
}

// isPublishedNotAwake reports whether a requester is shown whose instance is not awake.
func (b *Bound) isPublishedNotAwake() bool {
	return b.instanceKnown() && !b.instanceAwake() && b.isPublished()
}

// isPublishedNotCarried reports whether a requester is shown whose program carries no traffic to
// its instance.
func (b *Bound) isPublishedNotCarried() bool {
	return b.isPublished() && b.forwardsNothing()
}
