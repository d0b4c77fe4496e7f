package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
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

// mayCarry says that the requester program does not say whether it carries
// traffic to an instance that is to sleep: that of its record, or one whose record
// cannot be read.
func (o *Observation) mayCarry() bool {
	if !o.Requester.Running || o.Requester.Finished || o.SPI != nil {
		return false
	}
	return o.letGo() && o.Instance != nil && !o.in(launcher.Starting) || o.leaving() && o.Unread != ""
}

// silentForLong says that people are to be told that the requester program does
// not answer.
func (o *Observation) silentForLong() bool { return o.Now.Sub(o.Requester.Silent) >= patience }

// untilAsked is when to ask a requester program again that does not answer, less
// and less often: by the controller's own clock.
func (o *Observation) untilAsked() time.Duration {
	return min(max(o.Now.Sub(o.Requester.Silent)/4, 5*time.Millisecond), longestUntilAsked)
}

// untilGPUsAsked is when to ask a requester program again that cannot tell its
// GPUs: soon after its container has started, less and less often later. The
// clock of its node may be ahead.
func (o *Observation) untilGPUsAsked() time.Duration {
	const first = 250 * time.Millisecond
	return min(max(o.Now.Sub(o.Requester.Started)/4, first), longestUntilAsked)
}

const longestUntilAsked = 5 * time.Second

// untilFoundReady is when to ask a requester program again that is ready and that the
// kubelet has found unready; zero: the kubelet has not. If somebody makes the program
// unready again before the kubelet's next probe, its Pod does not change, and nothing else
// tells. The clock of the node may be ahead.
func (o *Observation) untilFoundReady() time.Duration {
	if o.Requester.FoundUnready.IsZero() {
		return 0
	}
	return min(max(o.Now.Sub(o.Requester.FoundUnready)/4, firstPause), longestPause)
}

// foundUnready is since when the kubelet says that not all containers of a Pod are ready;
// zero: it does not.
func foundUnready(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionFalse {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
