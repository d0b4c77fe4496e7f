package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// preparing: the Pod, its program and its GPUs. The rows are in the order in which these come about.
// If several are missing, the requester is told of the first.
var preparing = TableOf[Staying]{
	Name:     "preparing",
	Sentence: "Something of the requester itself is wrong, missing or not known",
	Sees:     func(s *seen) *Staying { return s.staying },
	Rows: []RowOf[Staying]{
		{"input wrong", "not bound; the input cannot be used",
			(*Staying).inputWrong, Tell, warn(InvalidInput, "%s", (*Staying).problems)},
		{"node closed", "not bound; the node was made unschedulable, and the requester does not tolerate that",
			(*Staying).nodeClosed, DeleteRequester, inform(NodeUnschedulable, "node %s was made unschedulable before it had its inference server", (*Staying).nodeName)},
		{"no finalizer", "our finalizer is not on the requester; it is on a node, and the launcher answers",
			(*Staying).finalizerMissing, AddFinalizer, say[Staying]("its GPUs must stay its own until its model sleeps")},
		{"cannot run", "the requester program does not run, and the kubelet says that it cannot, as where its image cannot be pulled",
			(*Staying).programStuck, Tell, warn(RequesterNotRunning, "its Pod %s", func(s *Staying) string { return s.Requester.Stuck })},
		{"kubelet asked ahead", "not bound; the requester program does not run; the kubelet's word counts before it does, and was asked for in vain for less than 10 s",
			(*Staying).kubeletAskedAhead, Retry, again((*Staying).untilToldGPUs, say("its container does not run yet, and which GPUs the kubelet gave it is not known yet: %s", (*Staying).kubeletWhy))},
		{"not running", "the requester program does not run, and the requester is not bound ahead",
			(*Staying).programNotRunning, Nothing, say("its container %s does not run yet", (*Staying).container)},
		{"requester silent for long", "the requester program has not answered for 10 s",
			(*Staying).programSilentForLong, Tell, again((*Staying).untilAsked, (*Staying).programDoesNotAnswer)},
		{"requester silent", "the requester program does not answer",
			(*Staying).programSilent, Retry, again((*Staying).untilAsked, say("the requester program does not answer at %s", (*Staying).adminAddress))},
		{"GPUs unknown", "not bound, or bound ahead and it carries nothing; the requester program cannot tell its GPUs",
			(*Staying).gpusUnknown, Tell, again((*Staying).untilGPUsAsked, warn(GPUsUnknown, "the requester program cannot tell its GPUs: %s", func(s *Staying) string { return s.SPI.Wrong }))},
		{"GPUs do not match", "not bound; the requester program names another number of GPUs than the Pod asks for, or one twice",
			(*Staying).gpusDoNotMatch, Tell, warn(GPUsDoNotMatch, "the Pod asks for %s GPUs, and the requester program says that it has %s",
				func(s *Staying) string { return strconv.Itoa(s.Requester.GPUs) }, (*Staying).countDiffers)},
		{"GPU claimed twice", "not bound; another living requester has one of these GPUs, or is bound on it; as far as the kubelet has not said who has what, its own word counts; or bound, with no instance or one that sleeps, the attempt not asked for, and another living requester is bound on one of these GPUs too",
			(*Staying).gpuClaimedTwice, Tell, (*Staying).gpuClaimed},
	},
}

// inputWrong reports whether a requester that nobody is bound to cannot be bound.
func (s *Staying) inputWrong() bool { return s.isUnbound() && len(s.Problems) > 0 }

// nodeClosed reports whether a requester that nobody is bound to is on a node that takes no
// such Pods.
func (s *Staying) nodeClosed() bool {
	return s.isUnbound() && s.Node.Unschedulable && !s.Requester.Tolerates
}

// finalizerMissing reports whether our finalizer is to be added.
func (s *Staying) finalizerMissing() bool {
	return !s.Requester.Finalizer && s.Node.Name != "" && s.launcherConnected()
}

// programStuck reports whether the requester program cannot run.
func (s *Staying) programStuck() bool {
	return !s.Requester.Running && s.Requester.Stuck != "" && s.Node.Name != ""
}

// kubeletAskedAhead reports whether the kubelet is asked for the GPUs of a requester whose
// program does not run yet.
func (s *Staying) kubeletAskedAhead() bool {
	return !s.Requester.Running && !s.Ahead && s.AsksAhead && s.Kubelet != nil && s.Now.Sub(s.Kubelet.Since) < Patience
}

// programNotRunning reports whether the requester program has to run first.
func (s *Staying) programNotRunning() bool { return !s.Requester.Running && !s.Ahead }

// programSilent reports whether the requester program does not answer.
func (s *Staying) programSilent() bool { return s.SPI == nil && !s.Ahead }

// programSilentForLong reports whether people are to be told that it does not.
func (s *Staying) programSilentForLong() bool { return s.programSilent() && s.silentForLong() }

func (s *Staying) programDoesNotAnswer() Step {
	if s.Requester.Refuses {
		return warn(RequesterSilent, "the requester program at %s takes no orders from this controller, because it trusts another certificate authority; it reads a new one within two minutes", (*Staying).adminAddress)(s)
	}
	return warn(RequesterSilent, "the requester program does not answer at %s: container %s should run it", (*Staying).adminAddress, (*Staying).container)(s)
}

// gpusUnknown reports whether the requester program cannot tell its GPUs.
func (s *Staying) gpusUnknown() bool {
	return s.gpusUnsettled() && s.SPI != nil && s.SPI.Wrong != ""
}

// gpusDoNotMatch reports whether the requester program names other than as many GPUs as the
// Pod asks for.
func (s *Staying) gpusDoNotMatch() bool {
	return s.isUnbound() && s.SPI != nil && s.countDiffers() != ""
}

// countDiffers returns what the requester program names that are not as many GPUs as the
// Pod asks for; empty: they are.
func (s *Staying) countDiffers() string {
	named := len(s.SPI.GPUs)
	if different := len(slices.Compact(slices.Sorted(slices.Values(s.SPI.GPUs)))); different < named {
		return fmt.Sprintf("%d, one of them named twice: %s", named, strings.Join(s.SPI.GPUs, ", "))
	}
	if named != s.Requester.GPUs {
		return strconv.Itoa(named)
	}
	return ""
}

// gpuClaimedTwice reports whether others have one of the GPUs too.
func (s *Staying) gpuClaimedTwice() bool {
	return (s.isUnbound() || s.Bound.readyToSwap()) && len(s.Rivals) > 0
}

func (s *Staying) gpuClaimed() Step {
	step := Step{Why: strings.Join(s.Rivals, ", ") + " has one of its GPUs too, or says so: neither gets it until that is clear", Reason: GPUClaimedTwice, Warn: true}
	if s.kubeletHasNotAnswered() && s.launcherConnected() { // the kubelet's word may make it clear
		step.After = s.untilToldGPUs()
	}
	return step
}
