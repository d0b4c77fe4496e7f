package binding

import (
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// event tells about a requester. Its action is what the controller was about to do.
func (c *Controller) event(pod *corev1.Pod, step decide.Step, action string) {
	kind := corev1.EventTypeNormal
	if step.Warn {
		kind = corev1.EventTypeWarning
	}
	c.opts.Recorder.Eventf(pod, nil, kind, string(step.Reason), action, "%s", dualpods.Truncate(step.Why, decide.MaxNote))
}
