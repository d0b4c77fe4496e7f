package decide

import "hotseat.dev/hotseat/launcher"

// resting: nothing leads clients to the instance any more.
var resting = Table{
	Name:     "resting",
	Sentence: "The instance of an unwanted record is put to rest",
	Of:       (*Observation).RecordUnwanted,
	Rows: []Row{
		{"resting, launcher just lost", "the launcher answered until a moment ago",
			(*Observation).launcherJustLost, Retry, untilSilent},
		{"resting, launcher silent", "the launcher does not answer",
			(*Observation).launcherSilent, Tell, warn(LauncherSilent, "its model cannot be put to sleep, and its finalizer cannot be removed: launcher %s does not answer: %s", launcherName, launcherWhy)},
		{"resting, moving", "the instance is waking, falling asleep or stopping, or was told to",
			(*Observation).instanceMoving, Nothing, say("instance %s is %s", instanceID, instanceState)},
		{"resting, never sleeps", "the instance is awake, and was told to sleep five times in vain",
			(*Observation).instanceIgnoresSleep, DeleteInstance, say("instance %s is to sleep and does not: %s", instanceID, whyNoSleep)},
		{"resting, awake", "the instance is awake",
			(*Observation).instanceAwake, Sleep, say("no requester is bound to instance %s any more", instanceID)},
		{"resting, starting or failed", "the instance is starting, or has ended",
			(*Observation).instanceStartingOrEnded, DeleteInstance, say("instance %s is %s, and nobody wants it any more", instanceID, instanceState)},
		{"resting, swap waits", "the launcher may have a swap for the record that has not claimed an instance: this process has asked for it and has no answer, or does not know whether an earlier one has asked; and the launcher was not asked to call it off",
			(*Observation).swapMayBeQueued, CallOff, say("nobody wants instance %s any more, and its swap may be waiting for its turn", instanceID)},
		{"resting, swap under way", "the launcher has a swap under way for the record, or for its instance, or is asked to call one off",
			(*Observation).swapRuns, Nothing, say("the launcher has a swap under way for it")},
		{"resting, asleep or gone", "in all other cases",
			always, RemoveRecord, say("instance %s sleeps or is gone", instanceID)},
	},
}

// always is the condition of a table's last row.
func always(*Observation) bool { return true }

// launcherSilent reports whether the launcher does not answer.
func (o *Observation) launcherSilent() bool { return !o.Launcher.Connected }

// launcherJustLost reports whether the launcher answered until a moment ago.
func (o *Observation) launcherJustLost() bool {
	return o.launcherSilent() && o.launcherLostFor() < Patience
}

// instanceMoving reports whether the instance is on its way to rest, or to somewhere that a call
// of the controller has to wait for.
func (o *Observation) instanceMoving() bool {
	return o.InstanceIn(launcher.Waking, launcher.FallingAsleep, launcher.Stopping) || o.Calls.Sleep || o.Calls.Delete
}

// instanceAwake reports whether the instance is awake.
func (o *Observation) instanceAwake() bool { return o.InstanceIn(launcher.Awake) }

// EnoughSleeps is how often an instance is told to sleep in vain until it is deleted.
const EnoughSleeps = 5

// instanceIgnoresSleep reports whether the instance was told to sleep again and again, and is
// awake.
func (o *Observation) instanceIgnoresSleep() bool {
	return o.instanceAwake() && o.Troubles[Sleep].Count >= EnoughSleeps
}

func whyNoSleep(o *Observation) string { return o.Troubles[Sleep].Why }

// instanceStartingOrEnded reports whether the instance cannot be put to sleep.
func (o *Observation) instanceStartingOrEnded() bool {
	return o.InstanceIn(launcher.Starting, launcher.Failed, launcher.Stopped)
}

// swapMayBeQueued reports whether a swap for the record is to be called off. An earlier process
// may have asked for a swap that this one does not know.
func (o *Observation) swapMayBeQueued() bool {
	return !o.Attempt.Over && !o.Calls.CallOff && (o.Instance == nil || o.Instance.SwapID == "")
}

// swapRuns reports whether the launcher has a swap under way for the record or its instance.
func (o *Observation) swapRuns() bool {
	return o.Attempt.Asked && !o.Attempt.Over || o.Calls.CallingOff || o.Instance != nil && o.Instance.SwapID != ""
}
