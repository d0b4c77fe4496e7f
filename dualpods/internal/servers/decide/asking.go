package decide

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// Asking is what the table asking reads: a bound requester whose swap was not asked for, and what may
// be in the way of the swap.
type Asking struct {
	*Bound
	Neighbours Neighbours
	Unheard    *Launcher // another launcher of the node, which has not been heard yet; nil: there is none
	Earlier    string    // another requester, for which a swap is under way on one of the GPUs
	BoundToo   string    // another requester that is bound on one of the GPUs
}

// asking returns the requester of b with what may be in the way of its swap.
func (o *Observation) asking(b *Bound) *Asking {
	return &Asking{Bound: b, Neighbours: o.Neighbours, Unheard: o.Unheard, Earlier: o.Earlier, BoundToo: o.BoundToo}
}

// asking: nothing may be in the way of the swap on its GPUs. The rows above "swap not asked" are
// reasons why the swap is not asked for yet. The requester is told the first that holds.
var asking = TableOf[Asking]{
	Name:     "asking",
	Sentence: "The instance of the record is not awake, and its swap was not asked for",
	Sees:     func(s *seen) *Asking { return s.asking },
	Rows: []RowOf[Asking]{
		{"leftover, being deleted", "the instance is being deleted",
			(*Asking).leftoverGoes, Nothing, say("instance %s, which is %s, is being deleted", (*Asking).instanceID, (*Asking).instanceState)},
		{"leftover", "the instance has ended",
			(*Asking).isLeftover, DeleteInstance, say("instance %s is %s and in the way of the swap", (*Asking).instanceID, (*Asking).instanceState)},
		on((*Asking).bound, backingOff),
		{"input wrong, nothing runs", "there is no instance, or it sleeps; the input cannot be used",
			(*Asking).inputWrongBeforeSwap, Tell, warn(InvalidInput, "%s", (*Asking).problems)},
		{"neighbour not heard", "there is no instance, or it sleeps; another launcher of the node runs, and has not answered this controller process since that began to ask it, for 10 s at most",
			(*Asking).neighbourUnheard, Retry, again((*Asking).untilHeard, (*Asking).neighbourNotHeard)},
		{"neighbour just lost", "there is no instance, or it sleeps; another launcher of the node, which answered until a moment ago, may have an instance awake on one of the GPUs: it has a record there whose requester does not go on, or had an instance there that was not at rest and is to be",
			(*Asking).neighbourJustLost, Retry, (*Asking).neighbourLost},
		{"neighbour silent", "the same, and the other launcher has not answered for 10 s",
			(*Asking).neighbourSilent, Tell, warn(LauncherSilent, "%s", (*Asking).neighbourMayBeAwake)},
		{"awake elsewhere", "there is no instance, or it sleeps; another launcher of the node has an instance on one of the GPUs that is not at rest yet, or sleeps in the middle of a swap, whose undoing would wake it, and that the controller is putting to rest",
			(*Asking).neighbourBusy, Tell, inform(GPUBusy, "%s", (*Asking).neighbourNotAtRest)},
		{"earlier swap under way", "there is no instance, or it sleeps; a swap for another record is under way on one of these GPUs",
			(*Asking).otherSwapRuns, Tell, inform(GPUBusy, "a swap for %s, which had one of its GPUs, is under way", func(a *Asking) string { return a.Earlier })},
		{"GPU bound to another", "there is no instance, or it sleeps; bound ahead, the requester program does not run yet, and another record has one of the GPUs",
			(*Asking).gpuBoundToAnother, Nothing, say("%s is bound on one of its GPUs still, and its own program has not said yet that it has them", func(a *Asking) string { return a.BoundToo })},
		{"others not there", "there is no instance, or it sleeps; it is a rank, and was not told that all ranks of its server are bound",
			(*Asking).isToldOfNoServer, Tell, inform[Asking](WaitsForRanks, "the other ranks of its server are not bound yet, or are busy with an earlier start")},
		{"swap not heard", "there is an instance, which is a rank and in the swap for which this record is; this process has not asked for the swap",
			(*Asking).isInUnheardSwap, Swap, say("instance %s, which is %s, is in its swap, which goes on", (*Asking).instanceID, (*Asking).instanceState)},
		{"swap not asked", "there is no instance, or it sleeps",
			(*Asking).absentOrAsleep, Swap, say("instance %s is to be awake on its GPUs", (*Asking).instanceID)},
		on((*Asking).bound, moving),
	},
}

// Rows of an instance that is not awake, before and after its swap.
var (
	backingOff = RowOf[Bound]{"backing off", "the attempt before failed, or the instance ended again and again while it served earlier requesters; the attempt is to be made later",
		(*Bound).retryLater, Tell, again((*Bound).untilAttempt, (*Bound).tellFailure)}
	moving = RowOf[Bound]{"moving", "in all other cases",
		always[Bound], Nothing, say("instance %s is %s", (*Bound).instanceID, (*Bound).instanceState)}
)

// readyToSwap reports whether a swap would be asked for, if nothing were in its way.
func (b *Bound) readyToSwap() bool { return !b.Attempt.Asked && b.absentOrAsleep() }

// leftoverGoes reports whether the instance is being deleted.
func (a *Asking) leftoverGoes() bool { return a.Calls.Delete || a.instanceIn(launcher.Stopping) }

// isLeftover reports whether the instance has ended.
func (a *Asking) isLeftover() bool { return a.instanceIn(launcher.Failed, launcher.Stopped) }

// retryLater reports whether the attempt is to be made later.
func (b *Bound) retryLater() bool { return b.Now.Before(b.attemptAt()) && !b.instanceAwake() }

// tellFailure tells why the attempt before failed.
func (b *Bound) tellFailure() Step {
	reason := AttemptFailed
	if b.Record.Invalid {
		reason = InvalidInput
	}
	return warn(reason, "%s; the next one is at %s", (*Bound).failedSo, (*Bound).retryAt)(b)
}

func (b *Bound) untilAttempt() time.Duration { return b.attemptAt().Sub(b.Now) }

// inputWrongBeforeSwap reports whether a bound requester has no instance that its input is of.
func (a *Asking) inputWrongBeforeSwap() bool { return len(a.Problems) > 0 && a.absentOrAsleep() }

// neighbourUnheard reports whether a launcher may say soon for the first time what it has.
func (a *Asking) neighbourUnheard() bool {
	return a.absentOrAsleep() && a.Unheard != nil && a.untilHeard() > 0
}

func (a *Asking) untilHeard() time.Duration { return Patience - a.Now.Sub(a.Unheard.Lost) }

func (a *Asking) neighbourNotHeard() Step {
	return Step{Why: fmt.Sprintf("launcher %s has not told yet what it has on its GPU: %s", a.Unheard.Name, a.Unheard.Why)}
}

// neighbourJustLost reports whether a launcher that may have an instance awake on one of the
// GPUs answered until a moment ago.
func (a *Asking) neighbourJustLost() bool {
	b := a.Neighbours.unseen()
	return a.absentOrAsleep() && b != nil && a.Now.Sub(b.Lost) < Patience
}

func (a *Asking) neighbourLost() Step {
	b := a.Neighbours.unseen()
	return Step{After: Patience - a.Now.Sub(b.Lost), Why: fmt.Sprintf("launcher %s does not say whether its instance %s is awake on its GPU: %s", b.Name, b.InstanceID, b.Why)}
}

// neighbourSilent reports whether a launcher that may have an instance awake on one of the GPUs
// does not answer.
func (a *Asking) neighbourSilent() bool {
	return a.absentOrAsleep() && a.Neighbours.unseen() != nil
}

func (a *Asking) neighbourMayBeAwake() string {
	b := a.Neighbours.unseen()
	return fmt.Sprintf("instance %s of launcher %s may be awake on its GPU, and has to sleep first: launcher %s does not answer: %s", b.InstanceID, b.Name, b.Name, b.Why)
}

// neighbourBusy reports whether the controller is putting an instance of another launcher to
// rest on one of the GPUs.
func (a *Asking) neighbourBusy() bool { return a.absentOrAsleep() && a.Neighbours.busy() != nil }

func (a *Asking) neighbourNotAtRest() string {
	b := a.Neighbours.busy()
	return fmt.Sprintf("instance %s of launcher %s %s", b.InstanceID, b.Name, b.unrest())
}

// otherSwapRuns reports whether a swap for another record is under way on one of the GPUs.
func (a *Asking) otherSwapRuns() bool { return a.absentOrAsleep() && a.Earlier != "" }

// isToldOfNoServer reports whether a rank may not start yet: the others are not there.
func (a *Asking) isToldOfNoServer() bool {
	return a.absentOrAsleep() && a.Requester.Rank.IsOne() && !a.isToldOfServer()
}

// isToldOfServer reports whether a rank was told of a start for this attempt.
func (b *Bound) isToldOfServer() bool { return b.Requester.Server.Attempt == b.Record.SwapKey() }

// isInUnheardSwap reports whether an earlier process has asked for the swap of a rank. The rank
// waits in it for the others, so its swap has to be heard again.
func (b *Bound) isInUnheardSwap() bool {
	return b.Requester.Rank.IsOne() && !b.Attempt.Asked && b.isToldOfServer() && b.Instance != nil && b.Instance.SwapID != ""
}

// gpuBoundToAnother reports whether another record has a GPU of one that is bound ahead.
func (a *Asking) gpuBoundToAnother() bool {
	return a.absentOrAsleep() && a.Ahead && a.BoundToo != ""
}
