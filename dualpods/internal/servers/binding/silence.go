package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// silence is that of a requester program that does not answer.
type silence struct {
	since time.Time
	hangs bool // it let its last caller wait, instead of refusing
}

// heard says that a requester program has answered.
func (n *nodeWork) heard(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.quiet, uid)
}

// silentSince is since when a requester program has not answered: now, where it
// did the last time.
func (n *nodeWork) silentSince(uid types.UID, now time.Time, hangs bool) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.quiet[uid]
	if !ok {
		s.since = now
	}
	s.hangs = hangs
	n.quiet[uid] = s
	return s.since
}

// hangs says whether a requester program let its last caller wait, and since
// when it has not answered.
func (n *nodeWork) hangs(uid types.UID) (since time.Time, hangs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.quiet[uid]
	return s.since, s.hangs
}

// hangsNoMore has the next pass wait for a requester program again.
func (n *nodeWork) hangsNoMore(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.quiet[uid]; ok {
		s.hangs = false
		n.quiet[uid] = s
	}
}

// foundUnready returns since when the kubelet says that not all containers of a Pod are ready;
// zero: it does not.
func foundUnready(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionFalse {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
