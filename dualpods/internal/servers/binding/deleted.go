package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// How a requester ends, as any Pod does. From the deletion on, endpoints lead elsewhere, but
// proxies follow them late:
//
//	deletion   the preStop hook runs; the requester is ready and serves
//	SIGTERM    the requester is unready, and serves through its shutdown delay
//	unbind     it refuses new connections, and lets the open ones end
//	sleep      its model sleeps, and the finalizer goes
//
// The kubelet does not report SIGTERM, so the controller asks the requester program.
//
// The kubelet also ends Pods that nobody deletes: when its node shuts down, when memory or
// disk is short, when activeDeadlineSeconds has passed. Such a Pod has no deletion timestamp,
// and its phase is Running until all of its containers have ended. Its condition Ready is all
// that takes it from its endpoints, and all that begins a pass:
//
//   - At activeDeadlineSeconds the kubelet sets it to False with the reason PodFailed, before
//     the preStop hook runs (podmeta.Ending).
//   - In the other cases the kubelet sets it if a readiness probe fails that had begun before.
//     It sends no new ones, so it does not notice a SIGTERM that comes after a long hook.
//
// Then it goes on as above, and its labels and its gate go first.

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
