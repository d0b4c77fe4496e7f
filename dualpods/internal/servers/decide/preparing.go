package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// preparing: the Pod, its program and its GPUs.
var preparing = Table{
	Name:     "preparing",
	Sentence: "Something of the requester itself is wrong, missing or not known",
	Rows: []Row{
		{"input wrong", "not bound; the input cannot be used",
			(*Observation).inputWrong, Tell, warn(InvalidInput, "%s", problems)},
		{"node closed", "not bound; the node was made unschedulable, and the requester does not tolerate that",
			(*Observation).nodeClosed, DeleteRequester, inform(NodeUnschedulable, "node %s was made unschedulable before it had its inference server", nodeName)},
		{"no finalizer", "our finalizer is not on the requester; it is on a node, and the launcher answers",
			(*Observation).finalizerMissing, AddFinalizer, say("its GPUs must stay its own until its model sleeps")},
		{"cannot run", "the requester program does not run, and the kubelet says that it cannot, as where its image cannot be pulled",
			(*Observation).programStuck, Tell, warn(RequesterNotRunning, "its Pod %s", func(o *Observation) string { return o.Requester.Stuck })},
		{"kubelet asked ahead", "not bound; the requester program does not run; the kubelet's word counts before it does, and was asked for in vain for less than 10 s",
			(*Observation).kubeletAskedAhead, Retry, again((*Observation).untilToldGPUs, say("its container does not run yet, and which GPUs the kubelet gave it is not known yet: %s", kubeletWhy))},
		{"not running", "the requester program does not run, and the requester is not bound ahead",
			(*Observation).programNotRunning, Nothing, say("its container %s does not run yet", container)},
		{"requester silent for long", "the requester program has not answered for 10 s",
			(*Observation).programSilentForLong, Tell, again((*Observation).untilAsked, programDoesNotAnswer)},
		{"requester silent", "the requester program does not answer",
			(*Observation).programSilent, Retry, again((*Observation).untilAsked, say("the requester program does not answer at %s", adminAddress))},
		{"GPUs unknown", "not bound, or bound ahead and it carries nothing; the requester program cannot tell its GPUs",
			(*Observation).gpusUnknown, Tell, again((*Observation).untilGPUsAsked, warn(GPUsUnknown, "the requester program cannot tell its GPUs: %s", func(o *Observation) string { return o.SPI.Wrong }))},
		{"GPUs do not match", "not bound; the requester program names another number of GPUs than the Pod asks for, or one twice",
			(*Observation).gpusDoNotMatch, Tell, warn(GPUsDoNotMatch, "the Pod asks for %s GPUs, and the requester program says that it has %s",
				func(o *Observation) string { return strconv.Itoa(o.Requester.GPUs) }, (*Observation).countDiffers)},
		{"GPU claimed twice", "not bound; another living requester has one of these GPUs, or is bound on it; as far as the kubelet has not said who has what, its own word counts; or bound, with no instance or one that sleeps, the attempt not asked for, and another living requester is bound on one of these GPUs too",
			(*Observation).gpuClaimedTwice, Tell, gpuClaimed},
	},
}

// inputWrong reports whether a requester that nobody is bound to cannot be bound.
func (o *Observation) inputWrong() bool { return o.Record == nil && len(o.Problems) > 0 }

// nodeClosed reports whether a requester that nobody is bound to is on a node that takes no
// such Pods.
func (o *Observation) nodeClosed() bool {
	return o.Record == nil && o.Node.Unschedulable && !o.Requester.Tolerates
}

// finalizerMissing reports whether our finalizer is to be added.
func (o *Observation) finalizerMissing() bool {
	return !o.Requester.Finalizer && o.Node.Name != "" && o.Launcher != nil && o.Launcher.Connected
}

// programStuck reports whether the requester program cannot run.
func (o *Observation) programStuck() bool {
	return !o.Requester.Running && o.Requester.Stuck != "" && o.Node.Name != ""
}

// kubeletAskedAhead reports whether the kubelet is asked for the GPUs of a requester whose
// program does not run yet.
func (o *Observation) kubeletAskedAhead() bool {
	return !o.Requester.Running && !o.Ahead && o.AsksAhead && o.Kubelet != nil && o.Now.Sub(o.Kubelet.Since) < Patience
}

// programNotRunning reports whether the requester program has to run first.
func (o *Observation) programNotRunning() bool { return !o.Requester.Running && !o.Ahead }

// programSilent reports whether the requester program does not answer.
func (o *Observation) programSilent() bool { return o.SPI == nil && !o.Ahead }

// programSilentForLong reports whether people are to be told that it does not.
func (o *Observation) programSilentForLong() bool { return o.programSilent() && o.silentForLong() }

func programDoesNotAnswer(o *Observation) Step {
	if o.Requester.Refuses {
		return warn(RequesterSilent, "the requester program at %s takes no orders from this controller, because it trusts another certificate authority; it reads a new one within two minutes", adminAddress)(o)
	}
	return warn(RequesterSilent, "the requester program does not answer at %s: container %s should run it", adminAddress, container)(o)
}

// gpusUnknown reports whether the requester program cannot tell its GPUs.
func (o *Observation) gpusUnknown() bool {
	needed := o.Record == nil || o.Record.Ahead && !o.ForwardsTraffic()
	return needed && o.SPI != nil && o.SPI.Wrong != ""
}

// gpusDoNotMatch reports whether the requester program names other than as many GPUs as the
// Pod asks for.
func (o *Observation) gpusDoNotMatch() bool {
	return o.Record == nil && o.SPI != nil && o.countDiffers() != ""
}

// countDiffers returns what the requester program names that are not as many GPUs as the
// Pod asks for; empty: they are.
func (o *Observation) countDiffers() string {
	named := len(o.SPI.GPUs)
	if different := len(slices.Compact(slices.Sorted(slices.Values(o.SPI.GPUs)))); different < named {
		return fmt.Sprintf("%d, one of them named twice: %s", named, strings.Join(o.SPI.GPUs, ", "))
	}
	if named != o.Requester.GPUs {
		return strconv.Itoa(named)
	}
	return ""
}

// gpuClaimedTwice reports whether others have one of the GPUs too.
func (o *Observation) gpuClaimedTwice() bool {
	return (o.Record == nil || o.readyToSwap()) && len(o.Rivals) > 0
}

func gpuClaimed(o *Observation) Step {
	step := warn(GPUClaimedTwice, "%s has one of its GPUs too, or says so: neither gets it until that is clear", func(o *Observation) string { return strings.Join(o.Rivals, ", ") })(o)
	if o.kubeletHasNotAnswered() && o.Launcher.Connected { // the kubelet's word may make it clear
		step.After = o.untilToldGPUs()
	}
	return step
}
