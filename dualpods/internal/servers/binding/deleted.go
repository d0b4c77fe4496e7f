package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// graceEnds returns when the kubelet kills the containers of a Pod that is being deleted.
// The API server has added the grace to the deletion timestamp.
func graceEnds(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Time
}

// graceOf returns how long the kubelet gives a Pod to end. It may give it less.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(min(max(seconds, 0), int64(requesterapi.MaxDrain/time.Second))) * time.Second
}
