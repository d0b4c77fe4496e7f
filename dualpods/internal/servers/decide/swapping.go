package decide

import (
	"fmt"

	"hotseat.dev/hotseat/launcher"
)

// swapping: the launcher was asked to wake or to start the instance.
var swapping = Table{
	Name:     "swapping",
	Sentence: "The swap of the record was asked for, and is not over, or the instance is not awake",
	Of:       (*Observation).isInItsSwap,
	Rows: []Row{
		backingOff,
		{"not holding", "the swap is not over; the Pod lists our readiness gate; the requester program can hold connections, carries no traffic, does not hold for the attempt, and was not told to hold in vain a moment ago",
			(*Observation).shouldHold, Hold, say("instance %s is on its way: clients that come too early are to wait for it", instanceID)},
		{"swap under way", "the swap is not over",
			(*Observation).swapUnderWay, Nothing, say("the launcher has a swap under way for it; instance %s is %s", instanceID, instanceState)},
		{"attempt outdated", "the launcher refused the attempt, since what it was to make is there, or what it was to wake is not",
			(*Observation).attemptRefused, NextAttempt, (*Observation).otherAttempt},
		{"room being made", "the attempt came to nothing for want of device memory; a sleeper of another launcher is being deleted for it",
			(*Observation).roomIsBeingMade, Nothing, say("a sleeper of another launcher is being evicted")},
		{"room made", "the attempt came to nothing for want of device memory; all who were to be deleted for it are gone, or the attempt is an earlier process's, which may have had them deleted",
			(*Observation).roomIsMade, NextAttempt, tryInTheRoom},
		{"room taken elsewhere", "the attempt came to nothing for want of device memory; sleepers of other launchers of the node hold what is missing",
			(*Observation).roomIsTakenElsewhere, Evict, evictForRoom},
		{"swap failed", "the attempt came to nothing",
			(*Observation).swapFailed, NextAttempt, func(o *Observation) Step { return o.NextAttempt(o.Attempt.Failure) }},
		{"not awake any more", "the instance sleeps, has ended or was deleted, after its attempt",
			(*Observation).restsAgain, NextAttempt, func(o *Observation) Step {
				return o.NextAttempt(fmt.Sprintf("instance %s %s after its swap", instanceID(o), fate(o)))
			}},
		moving,
	},
}

// isInItsSwap reports whether the swap of the record was asked for, and has not made the
// instance awake.
func (o *Observation) isInItsSwap() bool {
	return o.Attempt.Asked && (!o.Attempt.Over || !o.instanceAwake())
}

// swapUnderWay reports whether the swap of the record is under way.
func (o *Observation) swapUnderWay() bool { return !o.Attempt.Over }

// lacksRoom reports whether the attempt came to nothing since others than the launcher hold
// device memory.
func (o *Observation) lacksRoom() bool { return o.Attempt.NoRoom != nil }

// roomIsBeingMade reports whether a sleeper is being deleted for the attempt.
func (o *Observation) roomIsBeingMade() bool {
	going, _ := o.evicting()
	return o.lacksRoom() && going != nil
}

// roomIsMade reports whether all sleepers are gone that were to be deleted for the attempt.
func (o *Observation) roomIsMade() bool {
	_, left := o.evicting()
	return o.lacksRoom() && (len(o.Attempt.Evicted) > 0 && !left || o.Attempt.Earlier && len(o.victims()) > 0)
}

func tryInTheRoom(o *Observation) Step {
	record := o.renewed()
	record.New = o.Instance == nil
	why := "sleepers of other launchers were evicted to make room"
	if o.Attempt.Earlier {
		why = "an earlier controller process may have evicted sleepers of other launchers to make room"
	}
	return Step{Why: why, Record: record}
}

// roomIsTakenElsewhere reports whether sleepers of other launchers can be deleted for the attempt.
func (o *Observation) roomIsTakenElsewhere() bool {
	return o.lacksRoom() && len(o.Attempt.Evicted) == 0 && len(o.victims()) > 0
}

func evictForRoom(o *Observation) Step {
	step := Step{Victims: o.victims()}
	first := step.Victims[0]
	step.Why = fmt.Sprintf("GPU %s has %d bytes too few, which %d sleepers of other launchers hold: instance %s of launcher %s was used least recently",
		o.Attempt.NoRoom.GPUUUID, Lacking(o.Attempt.NoRoom), len(step.Victims), first.InstanceID, first.Name)
	return step
}

// swapFailed reports whether the attempt came to nothing.
func (o *Observation) swapFailed() bool { return o.Attempt.Failure != "" }

// restsAgain reports whether the instance is not awake any more after its swap.
func (o *Observation) restsAgain() bool {
	return o.InstanceIn(launcher.Sleeping) || o.instanceEndedOrGone()
}
