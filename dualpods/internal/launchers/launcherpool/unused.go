package launcherpool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// unused is what is known of a launcher of mode OnDemand that no requester is bound to, and that
// is not being deleted.
type unused struct {
	pod           *corev1.Pod
	config        *v1alpha1.LauncherConfig
	now           time.Time
	node          string           // for which it was made; empty: that is not known
	nodeGone      bool             // there is no such node
	deselected    bool             // the LauncherConfig, which can be used, does not select the node any more
	timeout       *metav1.Duration // spec.population.idleTimeout; nil: none
	awaited       bool             // a requester waits for it
	noWaiterSince time.Time        // the last one was seen to have stopped waiting; zero: none was
	view          nodeview.View    // its instances that are awake or move
}

// verdict returns why the launcher is removed now, as the reason of an Event and in words; empty:
// it stays. again is when to look again; 0: an event tells. It is a pure function.
func (u *unused) verdict() (again time.Duration, reason, why string) {
	switch {
	case u.lostItsNode():
		return 0, "NodeGone", fmt.Sprintf("node %s of launcher %s is gone", u.node, u.pod.Name)
	case u.deselected:
		return 0, "NodeNotSelected", fmt.Sprintf("LauncherConfig %s does not select node %s of launcher %s any more", u.config.Name, u.node, u.pod.Name)
	case u.timeout == nil:
		return 0, "", ""
	case u.awaited: // no event reports that a requester stopped waiting
		return min(u.timeout.Duration, waiterRecheck), "", ""
	case u.servesByHand():
		return 0, "", ""
	case u.idleFor() < u.timeout.Duration:
		return u.timeout.Duration - u.idleFor(), "", ""
	default:
		return 0, "Idle", fmt.Sprintf("launcher %s of node %s has had no requester for %s", u.pod.Name, u.node, u.timeout.Duration)
	}
}

// isMisplaced reports whether the launcher does not belong where it is.
func (u *unused) isMisplaced() bool { return u.lostItsNode() || u.deselected }

// lostItsNode reports whether the node of the launcher is gone, and Kubernetes does not delete it:
// that deletes only Pods that were scheduled to the node.
func (u *unused) lostItsNode() bool { return u.nodeGone && u.pod.Spec.NodeName == "" }

// servesByHand reports whether the launcher has an instance that somebody woke by hand. Once its
// container has ended, it has none.
func (u *unused) servesByHand() bool {
	if dualpods.ProviderOf(u.pod, 0).Ended {
		return false
	}
	for id, i := range u.view.Instances {
		if moves(id, i) {
			return true
		}
	}
	return false
}

// clockSkew is how much the clocks of two controllers may differ. A time that is farther ahead is
// of a controller whose clock was wrong, and does not count.
const clockSkew = 5 * time.Minute

// idleFor returns for how long nobody has used the launcher: since its last requester was
// unbound, or stopped waiting, or since it was created. A launcher that is starting or
// crash-looping is idle.
func (u *unused) idleFor() time.Duration {
	since := u.pod.CreationTimestamp.Time
	unbound, err := time.Parse(time.RFC3339, u.pod.Annotations[podmeta.AnnotationUnboundSince])
	if err == nil && unbound.After(since) && unbound.Sub(u.now) <= clockSkew {
		since = unbound
	}
	if u.noWaiterSince.After(since) {
		since = u.noWaiterSince
	}
	return u.now.Sub(since)
}

// moves reports whether an instance is awake, or on its way to another state.
func moves(_ string, i launcherapi.Instance) bool {
	switch launcher.State(i.State) {
	case launcher.Sleeping, launcher.Failed, launcher.Stopped:
		return false
	default:
		return true
	}
}
