package podmeta

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Finished says that all containers of a Pod have ended for good.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// reasonEnding is the kubelet's reason for the condition Ready of a Pod that it ends.
const reasonEnding = "PodFailed"

// Ending says that the kubelet ends a Pod, deleted or not. Its containers may still run, and
// its phase is Running until they have ended.
func Ending(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == reasonEnding
	})
}

// Ready says that the kubelet has said that a Pod is ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Gate returns the condition of the readiness gate of a requester; nil: the Pod has none.
func Gate(pod *corev1.Pod) *corev1.PodCondition {
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == ReadinessGate })
	if at < 0 {
		return nil
	}
	return &pod.Status.Conditions[at]
}

// GateOpen reports whether the readiness gate of a requester says that it serves.
func GateOpen(pod *corev1.Pod) bool {
	gate := Gate(pod)
	return gate != nil && gate.Status == corev1.ConditionTrue
}

// Waits says, as in "POD waits in its container …", what a Pod waits for that is
// more than the time that a start takes; empty: nothing that Kubernetes tells of.
// What is stuck does not end until somebody does something.
func Waits(pod *corev1.Pod) (why string, stuck bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return "has not been placed: " + c.Message, c.Reason == corev1.PodReasonUnschedulable
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && !slices.Contains(underWay, w.Reason) {
			return fmt.Sprintf("waits in its container %s: %s %s", s.Name, w.Reason, w.Message), true
		}
	}
	return "", false
}

// underWay are the reasons by which the kubelet says that a container comes
// without anybody's help.
var underWay = []string{"", "PodInitializing", "ContainerCreating"}

// ServerEnded says that the serving container of a launcher has ended, and its
// engines with it, and has not been started again yet. The kubelet says so: of one
// that is away nothing new is known.
func ServerEnded(launcher *corev1.Pod) bool {
	for _, s := range launcher.Status.ContainerStatuses {
		if s.Name == ServingContainer {
			return ended(&s)
		}
	}
	return false
}

// ServerRestarts returns how often the serving container of a launcher has been started again.
func ServerRestarts(launcher *corev1.Pod) int32 {
	for _, s := range launcher.Status.ContainerStatuses {
		if s.Name == ServingContainer {
			return s.RestartCount
		}
	}
	return 0
}

// IsAgent reports whether a Pod has the label of an agent. It is one if it is in the controller's
// namespace.
func IsAgent(pod *corev1.Pod) bool { return pod.Labels[LabelComponent] == ComponentAgent }

// ended reports whether a container has ended, and has not been started again yet.
func ended(s *corev1.ContainerStatus) bool {
	return s.State.Terminated != nil || s.State.Waiting != nil && (s.RestartCount > 0 || s.LastTerminationState.Terminated != nil)
}

// ContainerRuns reports whether a container of a Pod runs, and the Pod has an address.
func ContainerRuns(pod *corev1.Pod, container string) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s.State.Running != nil && pod.Status.PodIP != ""
		}
	}
	return false
}
