package decide

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// resting: nothing leads clients to the instance any more. The rows that wait for a call under way
// come before those that begin another one.
var resting = TableOf[Bound]{
	Name:     "resting",
	Sentence: "The instance of an unwanted record is put to rest",
	Sees:     func(s *seen) *Bound { return s.resting },
	Rows: []RowOf[Bound]{
		{"resting, launcher just lost", "the launcher answered until a moment ago",
			(*Bound).launcherJustLost, Retry, (*Bound).untilSilent},
		{"resting, launcher silent", "the launcher does not answer",
			(*Bound).launcherSilent, Tell, warn(LauncherSilent, "its model cannot be put to sleep, and its finalizer cannot be removed: launcher %s does not answer: %s", (*Bound).launcherName, (*Bound).launcherWhy)},
		{"resting, change waits", "the launcher may have a swap for the change of the record that has not claimed an instance, and was not asked to call it off",
			(*Bound).nextMayBeQueued, CallOff, ofNext(say("no requester wants instance %s any more, nor the one that is to take its place", (*Bound).instanceID))},
		{"resting, change held", "the instance that is to take its place is starting or awake, in the swap of the change, which waits for a commit that never comes",
			(*Bound).nextIsHeld, DeleteInstance, ofNext(say("instance %s waits in its swap, and no requester wants it any more", (*Bound).nextID))},
		{"resting, change under way", "the launcher has a swap under way for the change of the record, or is asked to call one off",
			(*Bound).nextSwapRuns, Nothing, say[Bound]("the launcher has a swap under way for the change of its record")},
		{"resting, changed", "the instance that is to take its place is awake",
			(*Bound).hasChanged, ChangeRecord, func(b *Bound) Step {
				return Step{Why: "its record was changed to instance " + b.nextID(), Record: b.changed()}
			}},
		{"resting, moving", "the instance is waking, falling asleep or stopping, or was told to",
			(*Bound).instanceMoving, Nothing, say("instance %s is %s", (*Bound).instanceID, (*Bound).instanceState)},
		{"resting, held in its swap", "the instance is a rank and awake, and in a swap, which may be that of the record: it waits for a commit that never comes",
			(*Bound).isHeldInSwap, DeleteInstance, say("instance %s waits in its swap for the other ranks of its server, and no requester wants it any more", (*Bound).instanceID)},
		{"resting, never sleeps", "the instance is awake, and was told to sleep five times in vain, or once if it is a worker of a server over several launchers",
			(*Bound).instanceIgnoresSleep, DeleteInstance, say("instance %s is to sleep and does not: %s", (*Bound).instanceID, (*Bound).whyNoSleep)},
		{"resting, awake", "the instance is awake",
			(*Bound).instanceAwake, Sleep, say("no requester is bound to instance %s any more", (*Bound).instanceID)},
		{"resting, starting or failed", "the instance is starting, or has ended",
			(*Bound).instanceStartingOrEnded, DeleteInstance, say("instance %s is %s, and no requester wants it any more", (*Bound).instanceID, (*Bound).instanceState)},
		{"resting, swap waits", "the launcher may have a swap for the record that has not claimed an instance: this process has asked for it and has no answer, or does not know whether an earlier one has asked; and the launcher was not asked to call it off",
			(*Bound).swapMayBeQueued, CallOff, say("no requester wants instance %s any more, and its swap may be waiting for its turn", (*Bound).instanceID)},
		{"resting, swap under way", "the launcher has a swap under way for the record, or for its instance, or is asked to call one off",
			(*Bound).swapRuns, Nothing, say[Bound]("the launcher has a swap under way for it")},
		{"resting, asleep or gone", "in all other cases",
			always[Bound], RemoveRecord, say("instance %s sleeps or is gone", (*Bound).instanceID)},
	},
}

// instanceMoving reports whether the instance is on its way to rest, or to somewhere that a call
// of the controller has to wait for.
func (b *Bound) instanceMoving() bool {
	return b.instanceIn(launcher.Waking, launcher.FallingAsleep, launcher.Stopping) || b.Calls.Sleep || b.Calls.Delete
}

// isHeldInSwap reports whether the instance of a rank may wait in the swap of its record until the
// other ranks are healthy. Such a swap ends only with its instance: it can neither be called off nor
// the instance be put to sleep.
func (b *Bound) isHeldInSwap() bool {
	return b.instanceAwake() && b.Instance.Rank != nil && b.Instance.SwapID != "" && !b.Attempt.Over
}

// enoughSleeps is how often an instance is told to sleep in vain until it is deleted.
const enoughSleeps = 5

// NeverSleeps reports whether an instance was told to sleep in vain often enough to be deleted. Once
// is enough for a worker of a server over several launchers: its launcher waits longer than the
// entry takes to fall asleep, and a worker whose entry has ended never does.
func NeverSleeps(i *launcherapi.Instance, told int) bool {
	if i.Rank != nil && i.Rank.Index > 0 {
		return told >= 1
	}
	return told >= enoughSleeps
}

// instanceIgnoresSleep reports whether the instance was told to sleep again and again, and is
// awake.
func (b *Bound) instanceIgnoresSleep() bool {
	return b.instanceAwake() && NeverSleeps(b.Instance, b.Troubles[Sleep].Count)
}

func (b *Bound) whyNoSleep() string { return b.Troubles[Sleep].Why }

// instanceStartingOrEnded reports whether the instance cannot be put to sleep.
func (b *Bound) instanceStartingOrEnded() bool {
	return b.instanceIn(launcher.Starting, launcher.Failed, launcher.Stopped)
}

// swapMayBeQueued reports whether a swap for the record is to be called off. An earlier process
// may have asked for a swap that this one does not know.
func (b *Bound) swapMayBeQueued() bool {
	return !b.Attempt.Over && !b.Calls.CallOff && (b.Instance == nil || b.Instance.SwapID == "")
}

// swapRuns reports whether the launcher has a swap under way for the record or its instance.
func (b *Bound) swapRuns() bool {
	return b.Attempt.Asked && !b.Attempt.Over || b.Calls.CallingOff || b.Instance != nil && b.Instance.SwapID != ""
}
