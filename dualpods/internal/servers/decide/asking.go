package decide

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// asking: nothing may be in the way of the swap on its GPUs.
var asking = Table{
	Name:     "asking",
	Sentence: "The instance of the record is not awake, and its swap was not asked for",
	Of:       (*Observation).isBeforeItsSwap,
	Rows: []Row{
		{"leftover, being deleted", "the instance is being deleted",
			(*Observation).leftoverGoes, Nothing, say("instance %s, which is %s, is being deleted", instanceID, instanceState)},
		{"leftover", "the instance has ended",
			(*Observation).isLeftover, DeleteInstance, say("instance %s is %s and in the way of the swap", instanceID, instanceState)},
		backingOff,
		{"input wrong, nothing runs", "there is no instance, or it sleeps; the input cannot be used",
			(*Observation).inputWrongBeforeSwap, Tell, warn(InvalidInput, "%s", problems)},
		{"neighbour not heard", "there is no instance, or it sleeps; another launcher of the node runs, and has not answered this controller process since that began to ask it, for 10 s at most",
			(*Observation).neighbourUnheard, Retry, again((*Observation).untilHeard, neighbourNotHeard)},
		{"neighbour just lost", "there is no instance, or it sleeps; another launcher of the node, which answered until a moment ago, may have an instance awake on one of the GPUs: it has a record there whose requester does not go on, or had an instance there that was not at rest and is to be",
			(*Observation).neighbourJustLost, Retry, neighbourLost},
		{"neighbour silent", "the same, and the other launcher has not answered for 10 s",
			(*Observation).neighbourSilent, Tell, warn(LauncherSilent, "%s", neighbourMayBeAwake)},
		{"awake elsewhere", "there is no instance, or it sleeps; another launcher of the node has an instance on one of the GPUs that is not at rest yet, or sleeps in the middle of a swap, whose undoing would wake it, and that the controller is putting to rest",
			(*Observation).neighbourBusy, Tell, inform(GPUBusy, "%s", neighbourNotAtRest)},
		{"earlier swap under way", "there is no instance, or it sleeps; a swap for another record is under way on one of these GPUs",
			(*Observation).otherSwapRuns, Tell, inform(GPUBusy, "a swap for %s, which had one of its GPUs, is under way", func(o *Observation) string { return o.Earlier })},
		{"GPU bound to another", "there is no instance, or it sleeps; bound ahead, the requester program does not run yet, and another record has one of the GPUs",
			(*Observation).gpuBoundToAnother, Nothing, say("%s is bound on one of its GPUs still, and its own program has not said yet that it has them", func(o *Observation) string { return o.BoundToo })},
		{"swap not asked", "there is no instance, or it sleeps",
			(*Observation).absentOrAsleep, Swap, say("instance %s is to be awake on its GPUs", instanceID)},
		moving,
	},
}

// Rows of an instance that is not awake, before and after its swap.
var (
	backingOff = Row{"backing off", "the attempt before failed, or the instance ended again and again while it served earlier requesters; the attempt is to be made later",
		(*Observation).retryLater, Tell, again((*Observation).untilAttempt, warn(AttemptFailed, "%s; the next one is at %s", failedSo, retryAt))}
	moving = Row{"moving", "in all other cases",
		always, Nothing, say("instance %s is %s", instanceID, instanceState)}
)

// isBeforeItsSwap reports whether the instance is not awake, and its swap was not asked for.
func (o *Observation) isBeforeItsSwap() bool { return !o.Attempt.Asked && !o.instanceAwake() }

// readyToSwap reports whether a swap would be asked for, if nothing were in its way.
func (o *Observation) readyToSwap() bool { return !o.Attempt.Asked && o.absentOrAsleep() }

// absentOrAsleep reports whether nothing of the instance is to be waited for.
func (o *Observation) absentOrAsleep() bool {
	return o.Instance == nil || o.InstanceIn(launcher.Sleeping)
}

// leftoverGoes reports whether the instance is being deleted.
func (o *Observation) leftoverGoes() bool { return o.Calls.Delete || o.InstanceIn(launcher.Stopping) }

// isLeftover reports whether the instance has ended.
func (o *Observation) isLeftover() bool { return o.InstanceIn(launcher.Failed, launcher.Stopped) }

// retryLater reports whether the attempt is to be made later.
func (o *Observation) retryLater() bool { return o.Now.Before(o.attemptAt()) && !o.instanceAwake() }

func (o *Observation) untilAttempt() time.Duration { return o.attemptAt().Sub(o.Now) }

// inputWrongBeforeSwap reports whether a bound requester has no instance that its input is of.
func (o *Observation) inputWrongBeforeSwap() bool { return len(o.Problems) > 0 && o.absentOrAsleep() }

// neighbourUnheard reports whether a launcher may say soon for the first time what it has.
func (o *Observation) neighbourUnheard() bool {
	return o.absentOrAsleep() && o.Unheard != nil && o.untilHeard() > 0
}

func (o *Observation) untilHeard() time.Duration { return Patience - o.Now.Sub(o.Unheard.Lost) }

func neighbourNotHeard(o *Observation) Step {
	return Step{Why: fmt.Sprintf("launcher %s has not told yet what it has on its GPU: %s", o.Unheard.Name, o.Unheard.Why)}
}

// neighbourJustLost reports whether a launcher that may have an instance awake on one of the
// GPUs answered until a moment ago.
func (o *Observation) neighbourJustLost() bool {
	b := o.unseenNeighbour()
	return o.absentOrAsleep() && b != nil && o.Now.Sub(b.Lost) < Patience
}

func neighbourLost(o *Observation) Step {
	b := o.unseenNeighbour()
	return Step{After: Patience - o.Now.Sub(b.Lost), Why: fmt.Sprintf("launcher %s does not say whether its instance %s is awake on its GPU: %s", b.Name, b.InstanceID, b.Why)}
}

// neighbourSilent reports whether a launcher that may have an instance awake on one of the GPUs
// does not answer.
func (o *Observation) neighbourSilent() bool {
	return o.absentOrAsleep() && o.unseenNeighbour() != nil
}

func neighbourMayBeAwake(o *Observation) string {
	b := o.unseenNeighbour()
	return fmt.Sprintf("instance %s of launcher %s may be awake on its GPU, and has to sleep first: launcher %s does not answer: %s", b.InstanceID, b.Name, b.Name, b.Why)
}

// neighbourBusy reports whether the controller is putting an instance of another launcher to
// rest on one of the GPUs.
func (o *Observation) neighbourBusy() bool { return o.absentOrAsleep() && o.busyNeighbour() != nil }

func neighbourNotAtRest(o *Observation) string {
	b := o.busyNeighbour()
	return fmt.Sprintf("instance %s of launcher %s %s", b.InstanceID, b.Name, b.unrest())
}

// otherSwapRuns reports whether a swap for another record is under way on one of the GPUs.
func (o *Observation) otherSwapRuns() bool { return o.absentOrAsleep() && o.Earlier != "" }

// gpuBoundToAnother reports whether another record has a GPU of one that is bound ahead.
func (o *Observation) gpuBoundToAnother() bool {
	return o.absentOrAsleep() && o.Ahead && o.BoundToo != ""
}
