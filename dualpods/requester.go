package dualpods

import (
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Requester is what the Pod of a requester says of its end.
type Requester struct {
	Deleting bool // somebody has deleted it
	Ending   bool // the kubelet has begun to end it, deleted or not
	Finished bool // its containers have ended for good
}

// RequesterOf reads the Pod of a requester.
func RequesterOf(pod *corev1.Pod) Requester {
	return Requester{Deleting: !pod.DeletionTimestamp.IsZero(), Ending: podmeta.Ending(pod), Finished: podmeta.Finished(pod)}
}

// IsOver reports whether nothing brings the requester back: its GPUs go to others.
func (r Requester) IsOver() bool { return r.Deleting || r.Finished }

// Leaves reports whether the server of the requester is not wanted any more. A requester that
// is not over may come back, and its GPUs are its own until then: the kubelet may go on with a
// Pod that it was about to end, and a node that was deleted may be made again. Only its program
// knows that it has got SIGTERM.
func (r Requester) Leaves(nodeGone bool) bool { return r.IsOver() || r.Ending || nodeGone }
