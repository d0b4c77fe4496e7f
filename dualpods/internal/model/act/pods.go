package act

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// reasonEngineFailed is the reason of an engine that ended before it was ready.
const reasonEngineFailed = "EngineFailed"

// podOf reads a Pod of an entry.
func podOf(pod *corev1.Pod, in v1alpha1.ModelRunsIn) decide.Pod {
	p := decide.Pod{
		Name: pod.Name, Since: pod.CreationTimestamp.Time, Serving: pod.Labels[podmeta.LabelServes] != "", Admitted: pod.Annotations[podmeta.AnnotationServed] != "",
		Leaving: !pod.DeletionTimestamp.IsZero() || podmeta.Ending(pod),
	}
	p.Cost, _ = strconv.Atoi(pod.Annotations[corev1.PodDeletionCost]) // 0 if somebody has damaged it
	switch in {
	case v1alpha1.RunsInSeats:
		readSeat(pod, &p)
	case v1alpha1.RunsInLauncher:
		readRequester(pod, &p)
	default:
		readEngine(pod, &p)
	}
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		p.Unschedulable = &decide.Failure{Reason: decide.ReasonUnschedulable, Message: c.Message, Time: c.LastTransitionTime.Time}
	}
	return p
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// readRequester reads a Pod whose model a launcher runs. The controller's own word says that it is ready: the
// kubelet says so later.
func readRequester(pod *corev1.Pod, p *decide.Pod) {
	status := podmeta.ReadStatus(pod)
	promised, _ := podmeta.ReadPlacement(pod)
	p.Hot = promised.Instance != ""
	switch {
	case status.State == serversdecide.StateServing && status.Reason == "":
		p.Ready, p.Since, p.Hot = true, status.Since, true
	case (len(status.Errors) > 0 || status.Reason == string(serversdecide.InvalidInput)) && isEdited(pod):
		p.Failure = &decide.Failure{Reason: eventEdited, Message: "somebody else has edited the annotations of Pod " + pod.Name + " that say which model it has: edit the Model instead", Time: status.Since}
	case len(status.Errors) == 0 && status.Reason == string(serversdecide.InvalidInput):
		p.Failure = &decide.Failure{Reason: decide.ReasonInvalid, Message: status.Message, Time: status.Since}
	case len(status.Errors) > 0:
		p.Failure = &decide.Failure{Reason: decide.ReasonInvalid, Message: status.Errors[0], Time: status.Since}
	case status.Reason == string(serversdecide.AttemptFailed):
		p.Failure = &decide.Failure{Reason: reasonEngineFailed, Message: status.Message, Time: status.Since}
	case status.Reason == string(serversdecide.LauncherRefuses):
		p.Failure = &decide.Failure{Reason: status.Reason, Message: status.Message, Time: status.Since}
	}
}

// isEdited reports whether the annotations of an entry's Pod ask for a server other than that of the entry. If its input is
// wrong then, the Model is not the cause.
func isEdited(pod *corev1.Pod) bool {
	of := merge.Entry{Name: pod.Labels[podmeta.LabelModelEntry]}
	return !podmeta.IsSeat(pod) && podmeta.AsksForOther(pod, of.ObjectName(pod.Labels[podmeta.LabelModel]))
}

// brokenImage are the reasons for which an image is not there.
var brokenImage = map[string]bool{"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true}

// readEngine reads a Pod that runs the engine itself.
func readEngine(pod *corev1.Pod, p *decide.Pod) {
	if c := condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		p.Ready, p.Since, p.Hot = true, c.LastTransitionTime.Time, true
		return
	} else if c != nil && c.LastTransitionTime.After(p.Since) {
		p.Since = c.LastTransitionTime.Time
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && brokenImage[w.Reason] {
			p.Failure = &decide.Failure{Reason: w.Reason, Message: w.Message, Time: p.Since}
		}
		ended := s.State.Terminated
		if ended == nil {
			ended = s.LastTerminationState.Terminated
		}
		if ended != nil && s.RestartCount > 0 {
			what := "the engine ended"
			if s.Name == podmeta.FetchContainer {
				what = "the model was not fetched: modelfetch ended"
			}
			message := what + " with exit code " + strconv.Itoa(int(ended.ExitCode)) + ": " + ended.Message
			p.Failure = &decide.Failure{Reason: reasonEngineFailed, Message: dualpods.Truncate(message, mostOfMessage), Time: ended.FinishedAt.Time}
		}
	}
}

// mostOfMessage bounds the message of a failure, which ends with the end of the engine's log.
const mostOfMessage = 1024
