package decide

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/spec/podmeta"
)

// This file decides about requesters that stay when their instance ends while it serves, as their
// annotation hotseat.dev/on-exit says.

// The rows for these requesters.
var (
	endedRefuses = RowOf[Bound]{"ended, refuses", "bound; the requester says `hotseat.dev/on-exit: Restart`; its instance ended while it served by this attempt; its program stays ready and carries traffic, and has refused five times to unbind",
		(*Bound).neverUnbindsToRestart, DeleteRequester, warn(RequesterRefuses, "instance %s, which served it, %s, and its program does not unbind", (*Bound).instanceID, (*Bound).fate)}
	diedToBeKept = RowOf[Bound]{"died, to be kept", "the same; the requester says `hotseat.dev/on-exit: Keep`, and its record does not say how the instance ended",
		(*Bound).isToBeKept, KeepEnded, (*Bound).keep}
	keptAsItEnded = RowOf[Bound]{"kept as it ended", "bound; the instance is not awake; the requester says `hotseat.dev/on-exit: Keep`, and its record says how the instance ended",
		(*Bound).isKept, Tell, warn(ServerGone, "instance %s, which served it, %s: nothing starts it again, since hotseat.dev/on-exit is Keep; delete the Pod, or change %s", (*Bound).instanceID, func(b *Bound) string { return b.Record.Kept }, (*Bound).ruleOfExit)}
	restartInPlace = RowOf[Swapping]{"ended, restarts", "the instance has ended or was deleted; the requester says `hotseat.dev/on-exit: Restart`, and the failures on the launcher Pod say that the instance ended while it served by this attempt",
		(*Swapping).isToRestart, NextAttempt, (*Swapping).restart}
)

// ruleOfExit says what to change so that the instance would be started again. Of Pods of a ModelServing its
// controller writes the annotation.
func (b *Bound) ruleOfExit() string {
	if b.Requester.Serving != "" {
		return "recoveryPolicy of ModelServing " + b.Requester.Serving + " to RoleRecreate"
	}
	return "the annotation to Restart"
}

// staysAtExit reports whether the requester stays when its instance ends.
func (b *Bound) staysAtExit() bool {
	return b.Requester.OnExit == podmeta.OnExitRestart || b.Requester.OnExit == podmeta.OnExitKeep
}

// endsWithItsInstance reports whether the requester is to be deleted, since its instance has ended.
func (b *Bound) endsWithItsInstance() bool { return b.diedWhileItServed() && !b.staysAtExit() }

// isToBeKept reports whether the record is to say how the instance ended.
func (b *Bound) isToBeKept() bool {
	return b.diedWhileItServed() && b.Requester.OnExit == podmeta.OnExitKeep && b.Record.Kept == ""
}

func (b *Bound) keep() Step {
	record := *b.Record
	record.Kept = b.fate()
	return Step{Why: fmt.Sprintf("instance %s %s while it served, and the requester says that nothing is started again", b.instanceID(), b.fate()), Record: record}
}

// isKept reports whether nothing is started again for the requester.
func (b *Bound) isKept() bool {
	return b.Requester.OnExit == podmeta.OnExitKeep && b.Record.Kept != "" && b.Record.Change == nil && b.instanceKnown() && !b.instanceAwake()
}

// isToRestart reports whether the instance has ended while it served by this attempt, and is to be
// started again for the same requester.
func (b *Bound) isToRestart() bool {
	return b.Requester.OnExit == podmeta.OnExitRestart && b.instanceKnown() && b.instanceEndedOrGone() && b.failureRecorded()
}

// neverUnbindsToRestart reports whether the program leads its clients to an instance that has ended, and
// does not stop.
func (b *Bound) neverUnbindsToRestart() bool {
	return b.isToRestart() && b.IsReady() && b.ignoresUnready() && b.Troubles[Unbind].Count >= enoughUnbinds
}

// restart returns the record with the attempt that starts the instance again. The row "leftover" deletes
// the rest of the instance before the swap is asked for.
func (s *Swapping) restart() Step {
	record := s.renewed()
	record.New, record.LogFrom = true, 0
	record.Failures, record.Failure, record.RetryAt = 0, "", time.Time{}
	why := fmt.Sprintf("instance %s %s while it served, and is started again for the same requester", s.instanceID(), s.fate())
	return Step{Why: why, Record: notBefore(record, s.Failures, s.Now)}
}
