package launcherpool

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// upToDateCondition says how far a rollout is. ok is false while nothing is known: a pass
// that failed before it decided leaves the condition as it is.
func upToDateCondition(f *observation) (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, ObservedGeneration: f.config.Generation}
	r := f.rollout
	switch {
	case len(f.problems) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonMalformedTemplate, "no launcher is replaced: the condition Accepted says what to correct"
		return c, true
	case r == nil:
		return c, false
	case r.outdated == 0:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonUpToDate
		return c, true
	case r.waiting > 0 && r.budget == 0:
		c.Reason = v1alpha1.ReasonPaused
	case r.waiting > 0 || r.leaving > 0:
		c.Reason = v1alpha1.ReasonRollingOut
	case r.bound > 0:
		c.Reason = v1alpha1.ReasonInUse
	default:
		c.Reason = v1alpha1.ReasonNodesTainted
	}
	c.Message = dualpods.Truncate(rolloutMessage(f, r), 1000)
	return c, true
}

func rolloutMessage(f *observation, r *rollout) string {
	parts := []string{fmt.Sprintf("launchers of an earlier template: %d of %d", r.outdated, len(f.launchers))}
	if r.leaving > 0 {
		parts = append(parts, fmt.Sprintf("being replaced: %d", r.leaving))
	}
	if r.bound > 0 {
		parts = append(parts, fmt.Sprintf("to be replaced once no requester is bound: %d", r.bound))
	}
	if r.kept > 0 {
		parts = append(parts, fmt.Sprintf("kept: %d, because new launchers do not tolerate the taints of their nodes; remove the taints, tolerate them in spec.podTemplate or the ModelCacheNodeGroup, or delete the Pods", r.kept))
	}
	if r.pressured > 0 {
		parts = append(parts, fmt.Sprintf("kept: %d, because their nodes are short of memory, disk space or process IDs, and accept no new launcher; relieve the nodes, or delete the Pods", r.pressured))
	}
	switch {
	case r.waiting == 0:
	case r.budget == 0:
		parts = append(parts, fmt.Sprintf("paused: %d, because spec.rollout.maxUnavailable is 0; raise it, or delete their Pods", r.waiting))
	default:
		parts = append(parts, fmt.Sprintf("waiting: %d (nodes without a ready launcher: %d; spec.rollout.maxUnavailable allows %d)", r.waiting, r.unavailable, r.budget))
		if s := r.notReady; s != nil {
			parts = append(parts, fmt.Sprintf("%s on node %s %s", s.pod.Name, s.node, dualpods.Truncate(s.waitReason(), 500)))
		}
		if r.missing != "" {
			parts = append(parts, fmt.Sprintf("node %s has no launcher yet", r.missing))
		}
	}
	return strings.Join(parts, "; ")
}

// waitReason returns what a launcher that is not ready waits for.
func (s *standing) waitReason() string {
	if s.leaving && !podmeta.Finished(s.pod) {
		return "is being deleted"
	}
	return waitReason(s.pod)
}
