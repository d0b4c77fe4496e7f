package binding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
)

// rule is a row of the table: the first whose condition holds says what to do.
type rule struct {
	name string
	when func(*Observation) bool
	then func(*Observation) Step
}

// Decide answers what to do for one requester, and why. It is a pure function.
func Decide(o Observation) Step { return decide(&o, rules) }

func decide(o *Observation, rules []rule) Step {
	for _, r := range rules {
		if r.when(o) {
			step := r.then(o)
			step.Rule = r.name
			step = o.spaced(o.paused(step))
			step.shorten()
			return o.once(step)
		}
	}
	return Step{Do: Nothing, Why: "served", After: o.untilFoundReady()}
}

// rules are the rows of spec/binding.md, in their order.
var rules = slices.Concat(leaving, placed, bound, waking, makingRoom, served)

// do makes a rule's consequence of an action and its reason.
func do(action Action, format string, args ...func(*Observation) string) func(*Observation) Step {
	return func(o *Observation) Step {
		words := make([]any, len(args))
		for n, arg := range args {
			words[n] = arg(o)
		}
		return Step{Do: action, Why: fmt.Sprintf(format, words...)}
	}
}

// leaving are the ways down: the server of a requester that is not wanted any
// more is asleep or gone before its record goes, and the record before the
// requester.
var leaving = []rule{
	{"leaving, never bound", func(o *Observation) bool { return o.leaving() && o.Record == nil && !o.Requester.Finalizer },
		do(Nothing, "nothing is held for it")},
	{"ended, shown", func(o *Observation) bool {
		return (o.Node.Gone || o.Requester.Finished || o.ending()) && o.Requester.Exists && !o.Requester.Deleting && o.shown()
	}, do(Retract, "%s", func(o *Observation) string {
		switch {
		case o.Requester.Finished:
			return "its containers have ended"
		case o.Node.Gone:
			return "its node " + o.Node.Name + " is gone"
		case o.Requester.Ending:
			return "the kubelet ends it"
		}
		return "its program was told to end"
	})},
	{"not awake, not held", func(o *Observation) bool { return o.readyInVain() && o.stubborn() && !o.Requester.Finalizer },
		do(AddFinalizer, "its program does not become unready, and its GPUs must stay its own")},
	{"not awake, ready", func(o *Observation) bool { return o.readyInVain() && o.toldUnready() },
		do(BecomeUnready, "instance %s, which served it, %s", instanceID, fate)},
	{"not awake, stays ready", func(o *Observation) bool { return o.readyInVain() && o.stubborn() && (o.unbindable() || !o.shown()) },
		unbindStubborn("instance %s, which served it, %s", instanceID, fate)},
	{"let go, shown", func(o *Observation) bool { return o.letGo() && !o.leaving() && o.shown() },
		do(Retract, "instance %s is not what it is to have any more", instanceID)},
	{"leaving, being unbound", func(o *Observation) bool {
		return (o.leaving() || o.letGo()) && o.Calls.Unbind && o.Requester.Running && !o.Node.Gone
	}, do(Nothing, "connections of its clients are ending")},
	{"leaving, still serving", (*Observation).stillServing,
		func(o *Observation) Step {
			return Step{Do: Retry, After: o.untilUnbound(), Why: "proxies may not have heard yet that it ends: it serves until they have had their time"}
		}},
	{"leaving, carries", func(o *Observation) bool {
		starting := o.known() && o.in(launcher.Starting) // what the program carries for died before
		return (o.leaving() || o.letGo()) && o.carries() && !starting
	},
		do(Unbind, "its clients' connections must end before its model sleeps, and the requester program with its binding")},
	{"leaving, released", func(o *Observation) bool { return o.leaving() && o.Record == nil && !o.mayCarry() },
		do(RemoveFinalizer, "its inference server sleeps or is gone")},
	{"leaving, launcher gone", func(o *Observation) bool { return o.letGo() && o.emptied() },
		do(RemoveRecord, "what the launcher held is gone with it")},
	{"leaving, requester silent for long", func(o *Observation) bool { return o.mayCarry() && o.silentForLong() },
		func(o *Observation) Step {
			step := warn(RequesterSilent, "its model cannot be put to sleep: the requester program, which may carry traffic to it, does not answer at %s", adminAddress)(o)
			step.After = o.untilAsked()
			return step
		}},
	{"leaving, requester silent", (*Observation).mayCarry,
		func(o *Observation) Step {
			return Step{Do: Retry, After: o.untilAsked(), Why: "the requester program does not say whether it carries traffic: its model sleeps once it does, or has ended"}
		}},
	{"leaving, launcher just lost", func(o *Observation) bool { return o.letGo() && !o.Launcher.Connected && o.lostFor() < patience }, untilSilent},
	{"leaving, launcher silent", func(o *Observation) bool { return o.letGo() && !o.Launcher.Connected },
		warn(LauncherSilent, "its model cannot be put to sleep, and its finalizer cannot be removed: launcher %s does not answer: %s", launcherName, launcherWhy)},
	{"leaving, moving", func(o *Observation) bool {
		return o.letGo() && (o.in(launcher.Waking, launcher.FallingAsleep, launcher.Stopping) || o.Calls.Sleep || o.Calls.Delete)
	}, do(Nothing, "instance %s is %s", instanceID, instanceState)},
	{"leaving, never sleeps", func(o *Observation) bool {
		return o.letGo() && o.in(launcher.Awake) && o.Troubles[Sleep].Count >= enoughSleeps
	}, do(DeleteInstance, "instance %s is to sleep and does not: %s", instanceID, func(o *Observation) string { return o.Troubles[Sleep].Why })},
	{"leaving, awake", func(o *Observation) bool { return o.letGo() && o.in(launcher.Awake) },
		do(Sleep, "no requester is bound to instance %s any more", instanceID)},
	{"leaving, starting or failed", func(o *Observation) bool {
		return o.letGo() && o.in(launcher.Starting, launcher.Failed, launcher.Stopped)
	}, do(DeleteInstance, "instance %s is %s, and nobody wants it any more", instanceID, instanceState)},
	{"leaving, swap waits", func(o *Observation) bool { // one that this process does not know may have been asked for by an earlier one
		return o.letGo() && !o.Attempt.Over && !o.Calls.CallOff && (o.Instance == nil || o.Instance.SwapID == "")
	},
		do(CallOff, "nobody wants instance %s any more, and its swap may be waiting for its turn", instanceID)},
	{"leaving, swap under way", func(o *Observation) bool {
		return o.letGo() && (o.Attempt.Asked && !o.Attempt.Over || o.Calls.CallingOff || o.Instance != nil && o.Instance.SwapID != "")
	},
		do(Nothing, "the launcher has a swap under way for it")},
	{"leaving, asleep or gone", (*Observation).letGo,
		do(RemoveRecord, "instance %s sleeps or is gone", instanceID)},
}

// placed is what must be known before anything is bound.
var placed = []rule{
	{"record damaged", func(o *Observation) bool { return o.Unread != "" && (o.carries() || o.shown()) },
		func(o *Observation) Step {
			step := warn(RecordDamaged, "the controller leaves it as it is: its record may be the one that cannot be read, of %s", func(o *Observation) string { return o.Unread })(o)
			if o.SPI == nil {
				step.After = o.untilAsked()
			}
			return step
		}},
	{"launcher gone, ready", func(o *Observation) bool { return (o.Record == nil || o.goes()) && o.toldUnready() },
		do(BecomeUnready, "the launcher that served it is gone")},
	{"launcher gone, stays ready", func(o *Observation) bool {
		return (o.Record == nil || o.goes()) && o.ready() && o.stubborn() && o.unbindable()
	},
		unbindStubborn("the launcher that served it is gone")},
	{"not bound, shown", func(o *Observation) bool { return o.Record == nil && o.shown() },
		do(Retract, "nobody is bound to it any more")},
	{"provider vanished", func(o *Observation) bool { return o.Record == nil && o.carries() },
		because(LauncherGone, true, do(DeleteRequester, "the launcher that served it is gone"))},
	{"input wrong", func(o *Observation) bool { return len(o.Problems) > 0 && o.Record == nil },
		warn(InvalidInput, "%s", problems)},
	{"node closed", func(o *Observation) bool {
		return o.Record == nil && o.Node.Unschedulable && !o.Requester.Tolerates
	},
		because(NodeUnschedulable, false, do(DeleteRequester, "node %s was made unschedulable before it had its inference server", nodeName))},
	{"provider leaving", func(o *Observation) bool { return o.Record != nil && (o.gone() || o.Launcher.Deleting) },
		because(LauncherGone, true, do(DeleteRequester, "its launcher %s is being deleted or has ended", launcherName))},
	{"died, not noted", func(o *Observation) bool {
		return o.known() && o.in(launcher.Failed, launcher.Stopped) && o.shown() && !o.noted()
	}, func(o *Observation) Step {
		return Step{Do: NoteFailure, Why: "instance " + instanceID(o) + " " + fate(o) + " while it served: whoever has it next is to know", Failures: o.failuresNow()}
	}},
	{"died while it served", func(o *Observation) bool { return o.known() && o.dead() && o.shown() },
		because(ServerGone, true, do(DeleteRequester, "instance %s, which served it, %s", instanceID, fate))},
	{"not awake, shown", func(o *Observation) bool { return o.known() && !o.in(launcher.Awake) && o.shown() },
		do(Retract, "instance %s is %s", instanceID, instanceState)},
	{"not carried, shown", func(o *Observation) bool { return o.Record != nil && o.shown() && o.uncarried() },
		do(Retract, "the requester program carries no traffic to instance %s", instanceID)},
	{"no finalizer", func(o *Observation) bool {
		return !o.Requester.Finalizer && o.Node.Name != "" && o.Launcher != nil && o.Launcher.Connected
	},
		do(AddFinalizer, "its GPUs must stay its own until its model sleeps")},
	{"cannot run", func(o *Observation) bool { return !o.Requester.Running && o.Requester.Stuck != "" && o.Node.Name != "" },
		warn(RequesterNotRunning, "its Pod %s", func(o *Observation) string { return o.Requester.Stuck })},
	{"kubelet asked ahead", func(o *Observation) bool {
		return !o.Requester.Running && !o.Ahead && o.AsksAhead && o.Kubelet != nil && o.Now.Sub(o.Kubelet.Since) < patience
	}, func(o *Observation) Step {
		return Step{Do: Retry, After: o.untilToldGPUs(), Why: "its container does not run yet, and which GPUs the kubelet gave it is not known yet: " + o.Kubelet.Why}
	}},
	{"not running", func(o *Observation) bool { return !o.Requester.Running && !o.Ahead },
		do(Nothing, "its container %s does not run yet", container)},
	{"requester silent for long", func(o *Observation) bool { return o.SPI == nil && !o.Ahead && o.silentForLong() },
		func(o *Observation) Step {
			step := warn(RequesterSilent, "the requester program does not answer at %s: container %s should run it", adminAddress, container)(o)
			if o.Requester.Refuses {
				step = warn(RequesterSilent, "the requester program at %s takes no orders from this controller, because it trusts another certificate authority; it reads a new one within two minutes", adminAddress)(o)
			}
			step.After = o.untilAsked()
			return step
		}},
	{"requester silent", func(o *Observation) bool { return o.SPI == nil && !o.Ahead },
		func(o *Observation) Step {
			return Step{Do: Retry, After: o.untilAsked(), Why: "the requester program does not answer at " + o.Requester.AdminAddress}
		}},
	{"GPUs unknown", func(o *Observation) bool {
		return (o.Record == nil || o.Record.Ahead && !o.carries()) && o.SPI != nil && o.SPI.Wrong != ""
	},
		func(o *Observation) Step {
			step := warn(GPUsUnknown, "the requester program cannot tell its GPUs: %s", func(o *Observation) string { return o.SPI.Wrong })(o)
			step.After = o.untilGPUsAsked()
			return step
		}},
	{"GPUs do not match", func(o *Observation) bool { return o.Record == nil && o.SPI != nil && o.gpusDiffer() != "" },
		warn(GPUsDoNotMatch, "the Pod asks for %s GPUs, and the requester program says that it has %s",
			func(o *Observation) string { return strconv.Itoa(o.Requester.GPUs) }, (*Observation).gpusDiffer)},
	{"GPU claimed twice", func(o *Observation) bool { return (o.Record == nil || o.beforeSwap()) && len(o.Rivals) > 0 },
		func(o *Observation) Step {
			step := warn(GPUClaimedTwice, "%s has one of its GPUs too, or says so: neither gets it until that is clear", func(o *Observation) string { return strings.Join(o.Rivals, ", ") })(o)
			if o.gpusNotTold() && o.Launcher.Connected { // the kubelet's word may make it clear
				step.After = o.untilToldGPUs()
			}
			return step
		}},
}

// bound is the way to a record.
var bound = []rule{
	{"no launcher yet", func(o *Observation) bool { return o.Record == nil && o.Launcher == nil && o.Lacking != nil },
		func(o *Observation) Step { return lackingStep(o.Lacking) }},
	{"no launcher", func(o *Observation) bool { return o.Record == nil && o.Launcher == nil },
		do(CreateLauncher, "node %s has no launcher of %s", nodeName, func(o *Observation) string { return o.Form.LauncherConfig })},
	{"launcher going", func(o *Observation) bool { return o.Record == nil && (o.Launcher.Deleting || o.Launcher.Dead) },
		inform(LauncherGoing, "launcher %s of its node is being deleted or has ended: the requester waits for the next one", launcherName)},
	{"launcher starting", func(o *Observation) bool { return o.Record == nil && o.Launcher.Waits != nil },
		func(o *Observation) Step { return lackingStep(o.Launcher.Waits) }},
	{"launcher just lost", func(o *Observation) bool { return !o.Launcher.Connected && o.lostFor() < patience }, untilSilent},
	{"launcher silent", func(o *Observation) bool { return !o.Launcher.Connected },
		warn(LauncherSilent, "launcher %s does not answer: %s", launcherName, launcherWhy)},
	{"kubelet just asked", func(o *Observation) bool { return o.gpusNotTold() && o.Now.Sub(o.Kubelet.Since) < patience },
		func(o *Observation) Step {
			return Step{Do: Retry, After: o.untilToldGPUs(), Why: "which GPUs the kubelet gave it is not known yet: " + o.Kubelet.Why}
		}},
	{"kubelet silent", (*Observation).gpusNotTold,
		func(o *Observation) Step {
			return Step{Do: Tell, Reason: KubeletSilent, Warn: true, After: o.untilToldGPUs(), Why: "which GPUs the kubelet gave it cannot be told: " + o.Kubelet.Why}
		}},
	{"GPUs not its own", func(o *Observation) bool {
		return o.Record == nil && o.Kubelet != nil && o.SPI != nil && !sameSet(o.SPI.GPUs, o.Kubelet.GPUs)
	}, warn(GPUsNotItsOwn, "the requester program reports GPU %s, but the kubelet gave its container %s: it gets neither until it reports what it was given",
		func(o *Observation) string { return strings.Join(o.SPI.GPUs, ", ") }, func(o *Observation) string { return strings.Join(o.Kubelet.GPUs, ", ") })},
	{"GPU not the launcher's", func(o *Observation) bool { return o.Record == nil && o.strangeGPU() != "" },
		warn(GPUNotSeen, "launcher %s does not see GPU %s", launcherName, (*Observation).strangeGPU)},
	{"instance bound to another", func(o *Observation) bool { return o.Record == nil && o.Holder != "" },
		inform(InstanceBusy, "its instance %s is still bound to %s", func(o *Observation) string { return o.Requester.Instance }, func(o *Observation) string { return o.Holder })},
	{"models just lost", func(o *Observation) bool { return o.lacksModel() && o.untilMissing() > 0 },
		func(o *Observation) Step { return Step{Do: Retry, After: o.untilMissing(), Why: o.missing()} }},
	{"model missing", (*Observation).lacksModel, inform(ModelMissing, "%s", (*Observation).missing)},
	{"no record", func(o *Observation) bool { return o.Record == nil },
		func(o *Observation) Step {
			return Step{Do: AddRecord, Why: "launcher " + o.Launcher.Name + " has its GPUs", Record: o.backedOff(o.newRecord())}
		}},
}

// waking is the way from the record to an instance that is awake.
var waking = slices.Concat([]rule{
	{"leftover, being deleted", func(o *Observation) bool { return !o.Attempt.Asked && (o.Calls.Delete || o.in(launcher.Stopping)) },
		do(Nothing, "instance %s, which is %s, is being deleted", instanceID, instanceState)},
	{"leftover", func(o *Observation) bool { return o.in(launcher.Failed, launcher.Stopped) && !o.Attempt.Asked },
		do(DeleteInstance, "instance %s is %s and in the way of the swap", instanceID, instanceState)},
	{"backing off", func(o *Observation) bool { return o.Now.Before(o.attemptAt()) && !o.in(launcher.Awake) },
		func(o *Observation) Step {
			step := warn(AttemptFailed, "%s; the next one is at %s", failedSo, retryAt)(o)
			step.After = o.attemptAt().Sub(o.Now)
			return step
		}},
	{"input wrong, nothing runs", func(o *Observation) bool { return len(o.Problems) > 0 && o.atRest() && !o.Attempt.Asked },
		warn(InvalidInput, "%s", problems)},
}, awakeElsewhere, []rule{
	{"earlier swap under way", func(o *Observation) bool { return !o.Attempt.Asked && o.atRest() && o.Earlier != "" },
		inform(GPUBusy, "a swap for %s, which had one of its GPUs, is under way", func(o *Observation) string { return o.Earlier })},
	{"GPU bound to another", func(o *Observation) bool { return o.Ahead && o.beforeSwap() && o.BoundToo != "" },
		do(Nothing, "%s is bound on one of its GPUs still, and its own program has not said yet that it has them", func(o *Observation) string { return o.BoundToo })},
	{"swap not asked", func(o *Observation) bool { return !o.Attempt.Asked && o.atRest() },
		do(Swap, "instance %s is to be awake on its GPUs", instanceID)},
	{"swap under way", func(o *Observation) bool { return o.Attempt.Asked && !o.Attempt.Over },
		do(Nothing, "the launcher has a swap under way for it; instance %s is %s", instanceID, instanceState)},
	{"attempt outdated", func(o *Observation) bool { return o.outdated() && !o.in(launcher.Awake) }, (*Observation).otherAttempt},
})

// served is the way from there to a requester that serves.
var served = []rule{
	{"swap failed", func(o *Observation) bool { return o.Attempt.Failure != "" && !o.in(launcher.Awake) },
		func(o *Observation) Step { return o.nextAttempt(o.Attempt.Failure) }},
	{"not awake any more", func(o *Observation) bool { return o.in(launcher.Sleeping) || o.dead() },
		func(o *Observation) Step {
			return o.nextAttempt(fmt.Sprintf("instance %s %s after its swap", instanceID(o), fate(o)))
		}},
	{"moving", func(o *Observation) bool { return !o.in(launcher.Awake) },
		do(Nothing, "instance %s is %s", instanceID, instanceState)},
	{"awake before it runs", func(o *Observation) bool { return o.Ahead },
		do(Nothing, "instance %s is awake, and its container %s does not run yet", instanceID, container)},
	{"told to rest", func(o *Observation) bool { return o.Calls.Sleep || o.Calls.Delete },
		do(Nothing, "the launcher was told to put instance %s to sleep, or to delete it, before it was wanted again", instanceID)},
	{"being unbound", func(o *Observation) bool { return o.Calls.Unbind },
		do(Nothing, "connections of an earlier binding are ending")},
	{"carries for another", func(o *Observation) bool { return o.carries() && o.SPI.Proxy.ProxyConfig != o.proxy() },
		unbindOrReplace},
	{"carries nothing", func(o *Observation) bool { return !o.carries() },
		do(Bind, "instance %s is awake", instanceID)},
	{"not ready", func(o *Observation) bool { return !o.ready() },
		do(BecomeReady, "instance %s is awake", instanceID)},
	{"gate shut", func(o *Observation) bool { return o.Requester.Gate && !o.Requester.GateOpen },
		do(OpenGate, "instance %s serves it", instanceID)},
	{"not published", func(o *Observation) bool { return !o.Requester.Published },
		do(Publish, "instance %s serves it", instanceID)},
}

// letGo says that the server of a record is to sleep: nobody wants it any more,
// or it is not what the requester would be bound to.
func (o *Observation) letGo() bool {
	return o.Record != nil && (o.leaving() || o.misbound() || o.outrun() || o.bereft())
}

// bereft says that the launcher's container has ended under a requester that is
// not served yet, and waits for the next launcher as it did for this one.
func (o *Observation) bereft() bool {
	return o.emptied() && !o.gone() && !o.Launcher.Deleting && !o.ready() && !o.shown()
}

// atRest says that nothing of the instance is to be waited for.
func (o *Observation) atRest() bool { return o.Instance == nil || o.in(launcher.Sleeping) }

// outrun says that what was asked for has changed while it is not served. A
// requester that is served goes on with what it has, to the end of that.
func (o *Observation) outrun() bool {
	serves := o.in(launcher.Awake) && (o.Requester.Shown || o.carries())
	died := o.dead() && (o.ready() || o.shown())
	return !serves && !died && o.known() && len(o.Problems) == 0 && !o.current()
}

// current says that the record is of what is asked for now.
func (o *Observation) current() bool {
	launcher := o.Form.LauncherConfig == "" || o.Launcher == nil || o.Form.LauncherConfig == o.Launcher.Config
	return launcher && o.Form.Hash() == o.Record.SpecHash && o.Form.Port == o.Record.ServingPort
}

// misbound says that the record is not of the GPUs that the requester has.
func (o *Observation) misbound() bool {
	if o.Record.Ahead && o.Kubelet != nil && len(o.Kubelet.GPUs) > 0 && !o.Kubelet.Early && !sameSet(o.Kubelet.GPUs, o.Record.GPUs) {
		return true
	}
	return o.SPI != nil && o.SPI.Wrong == "" && !sameSet(o.SPI.GPUs, o.Record.GPUs)
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// gpusDiffer is what the requester program names that are not as many GPUs as the
// Pod asks for; empty: they are.
func (o *Observation) gpusDiffer() string {
	named := len(o.SPI.GPUs)
	if different := len(slices.Compact(slices.Sorted(slices.Values(o.SPI.GPUs)))); different < named {
		return fmt.Sprintf("%d, one of them named twice: %s", named, strings.Join(o.SPI.GPUs, ", "))
	}
	if named != o.Requester.GPUs {
		return strconv.Itoa(named)
	}
	return ""
}

func (o *Observation) in(states ...launcher.State) bool {
	return o.Instance != nil && slices.Contains(states, o.state())
}

// known says that it is known what the instance of the record is: its launcher
// tells, or the launcher's container has ended, and the instance with it.
func (o *Observation) known() bool {
	return o.Record != nil && o.Launcher != nil && (o.Launcher.Connected || o.Launcher.Ended)
}

// dead says that the instance has ended or was deleted.
func (o *Observation) dead() bool {
	return o.Instance == nil || o.in(launcher.Failed, launcher.Stopped, launcher.Stopping)
}

// patience is how long a launcher that has answered before may be silent until
// people are told: one that is killed is back within a second.
const patience = dualpods.LauncherPatience

// untilSilent looks again when people are to be told.
func untilSilent(o *Observation) Step {
	return Step{Do: Retry, After: patience - o.lostFor(), Why: "the stream of launcher " + o.Launcher.Name + " broke off: " + o.Launcher.Why}
}

// lostFor is for how long the launcher has been silent.
func (o *Observation) lostFor() time.Duration { return o.Now.Sub(o.Launcher.Lost) }

// strangeGPU is one of the requester's that the launcher does not see.
func (o *Observation) strangeGPU() string {
	for _, gpu := range o.gpus() {
		if !slices.Contains(o.Launcher.GPUs, gpu) {
			return gpu
		}
	}
	return ""
}
