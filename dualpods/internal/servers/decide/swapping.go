package decide

import (
	"fmt"

	"hotseat.dev/hotseat/launcher"
)

// Swapping is what the table swapping reads: a bound requester whose swap was asked for.
type Swapping struct {
	*Bound
	Neighbours Neighbours
	ModelCache string // from where a new instance has its model where Form does not say
}

// swapping returns the requester of b with what a swap that came to nothing needs.
func (o *Observation) swapping(b *Bound) *Swapping {
	return &Swapping{Bound: b, Neighbours: o.Neighbours, ModelCache: o.ModelCache}
}

// swapping: the launcher was asked to wake or to start the instance. The rows below "swap under way"
// are for swaps that are over. The first of them that holds is the most exact about what the swap
// came to.
var swapping = TableOf[Swapping]{
	Name:     "swapping",
	Sentence: "The swap of the record was asked for, and is not over, or the instance is not awake; or the instance ended while it served, and is to be started again",
	Sees:     func(s *seen) *Swapping { return s.swapping },
	Rows: []RowOf[Swapping]{
		restartInPlace,
		on((*Swapping).bound, backingOff),
		{"not holding", "the swap is not over; the Pod lists our readiness gate, and is no worker; the requester program can hold connections, carries no traffic, does not hold for the attempt, and was not told to hold in vain a moment ago",
			(*Swapping).shouldHold, Hold, say("instance %s is on its way: clients that come too early are to wait for it", (*Swapping).instanceID)},
		{"swap under way", "the swap is not over",
			(*Swapping).swapUnderWay, Nothing, say("the launcher has a swap under way for it; instance %s is %s", (*Swapping).instanceID, (*Swapping).instanceState)},
		{"attempt outdated", "the launcher refused the attempt, since what it was to make is there, or what it was to wake is not",
			(*Swapping).attemptRefused, NextAttempt, (*Swapping).otherAttempt},
		{"room being made", "the attempt came to nothing for want of device memory; a sleeper of another launcher is being deleted for it",
			(*Swapping).roomIsBeingMade, Nothing, say[Swapping]("a sleeper of another launcher is being evicted")},
		{"room made", "the attempt came to nothing for want of device memory; all who were to be deleted for it are gone, or the attempt is an earlier process's, which may have had them deleted",
			(*Swapping).roomIsMade, NextAttempt, (*Swapping).tryInTheRoom},
		{"room taken elsewhere", "the attempt came to nothing for want of device memory; sleepers of other launchers of the node hold what is missing",
			(*Swapping).roomIsTakenElsewhere, Evict, (*Swapping).evictForRoom},
		{"swap failed", "the attempt came to nothing",
			(*Swapping).swapFailed, NextAttempt, func(s *Swapping) Step { return s.nextAttempt(s.Attempt.Failure) }},
		{"not awake any more", "the instance sleeps, has ended or was deleted, after its attempt",
			(*Swapping).restsAgain, NextAttempt, func(s *Swapping) Step {
				return s.nextAttempt(fmt.Sprintf("instance %s %s after its swap", s.instanceID(), s.fate()))
			}},
		on((*Swapping).bound, moving),
	},
}

// isInItsSwap reports whether the swap of the record was asked for, and has not made the
// instance awake.
func (b *Bound) isInItsSwap() bool {
	return b.Attempt.Asked && (!b.Attempt.Over || !b.instanceAwake())
}

// swapUnderWay reports whether the swap of the record is under way.
func (s *Swapping) swapUnderWay() bool { return !s.Attempt.Over }

// lacksRoom reports whether the attempt came to nothing since others than the launcher hold
// device memory.
func (s *Swapping) lacksRoom() bool { return s.Attempt.NoRoom != nil }

// roomIsBeingMade reports whether a sleeper is being deleted for the attempt.
func (s *Swapping) roomIsBeingMade() bool {
	going, _ := s.evicting()
	return s.lacksRoom() && going != nil
}

// roomIsMade reports whether all sleepers are gone that were to be deleted for the attempt.
func (s *Swapping) roomIsMade() bool {
	_, left := s.evicting()
	return s.lacksRoom() && (len(s.Attempt.Evicted) > 0 && !left || s.Attempt.Earlier && len(s.victims()) > 0)
}

func (s *Swapping) tryInTheRoom() Step {
	record := s.renewed()
	record.New = s.Instance == nil
	why := "sleepers of other launchers were evicted to make room"
	if s.Attempt.Earlier {
		why = "an earlier controller process may have evicted sleepers of other launchers to make room"
	}
	return Step{Why: why, Record: record}
}

// roomIsTakenElsewhere reports whether sleepers of other launchers can be deleted for the attempt.
func (s *Swapping) roomIsTakenElsewhere() bool {
	return s.lacksRoom() && len(s.Attempt.Evicted) == 0 && len(s.victims()) > 0
}

func (s *Swapping) evictForRoom() Step {
	step := Step{Victims: s.victims()}
	first := step.Victims[0]
	step.Why = fmt.Sprintf("GPU %s has %d bytes too few, which %d sleepers of other launchers hold: instance %s of launcher %s was used least recently",
		s.Attempt.NoRoom.GPUUUID, Lacking(s.Attempt.NoRoom), len(step.Victims), first.InstanceID, first.Name)
	return step
}

// swapFailed reports whether the attempt came to nothing.
func (s *Swapping) swapFailed() bool { return s.Attempt.Failure != "" }

// restsAgain reports whether the instance is not awake any more after its swap.
func (s *Swapping) restsAgain() bool {
	return s.instanceIn(launcher.Sleeping) || s.instanceEndedOrGone()
}
