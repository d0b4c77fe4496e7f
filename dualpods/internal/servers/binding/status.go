package binding

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// tell has a requester's status say what a step says.
func (c *Controller) tell(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o decide.Observation, step decide.Step) error {
	err := c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		c.setStatus(p, o, decide.ToldStatus(o, podmeta.ReadStatus(p), step))
	})
	if err != nil { // the write is made again, and the event is told then
		return err
	}
	n.toldNow(pod.UID, step.Reason, o.Now)
	if decide.IsNews(podmeta.ReadStatus(pod), step) {
		c.event(pod, step, "Bind")
	}
	return nil
}

// event tells about a requester. Its action is what the controller was about to do.
func (c *Controller) event(pod *corev1.Pod, step decide.Step, action string) {
	kind := corev1.EventTypeNormal
	if step.Warn {
		kind = corev1.EventTypeWarning
	}
	c.opts.Recorder.Eventf(pod, nil, kind, string(step.Reason), action, "%s", dualpods.Truncate(step.Why, decide.MaxNote))
}

// toldNow notes that a requester was told something.
func (n *nodeWork) toldNow(uid types.UID, reason decide.Reason, now time.Time) {
	t := n.told[uid]
	if now.Sub(t.At) > decide.Settled {
		t = decide.Telling{}
	}
	if t.Reason != reason {
		t.Times = 0
		t.Turns++
	}
	t.Reason, t.At = reason, now
	t.Times++
	n.told[uid] = t
}

// setStatus writes the status of a requester.
func (c *Controller) setStatus(p *corev1.Pod, o decide.Observation, s podmeta.Status) {
	text, err := decide.StatusText(&o, podmeta.ReadStatus(p), s)
	if err != nil {
		c.log.Error(err, "cannot write a status")
		return
	}
	p.Annotations = annotationsOf(p)
	p.Annotations[podmeta.AnnotationStatus] = text
}

// A requester is shown to others by its program, which answers probes, by its readiness gate, and
// by its labels and status. They are set in this order, so that a client that selects by labels
// finds only requesters whose gate is open. Labels and status go before the gate shuts.

// publish puts the labels on a requester that routers look for, takes off those
// that are not asked for any more, and says that it is served, unless its gate does.
func (c *Controller) publish(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o decide.Observation) error {
	relayed := w.asked[pod.UID].RelayedLabels
	keys, err := json.Marshal(slices.Sorted(maps.Keys(o.Form.Labels)))
	if err != nil {
		return err
	}
	old, bound := podmeta.ReadStatus(pod), o.Bound()
	status := bound.ServingStatus(old)
	err = c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		if p.Annotations = annotationsOf(p); o.GateSuffices(status) {
			delete(p.Annotations, podmeta.AnnotationStatus)
		} else {
			c.setStatus(p, o, status)
		}
		if !bound.Follows() {
			return
		}
		for _, key := range relayed {
			delete(p.Labels, key)
		}
		delete(p.Annotations, podmeta.AnnotationRelayedLabels)
		if len(o.Form.Labels) == 0 {
			return
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		maps.Copy(p.Labels, o.Form.Labels)
		p.Annotations[podmeta.AnnotationRelayedLabels] = string(keys)
	})
	if err == nil && status.Message != "" && old.Message != status.Message {
		c.event(pod, decide.Step{Reason: decide.Outdated, Why: status.Message}, "Publish")
	}
	return err
}

// retract takes labels and status off, and shuts the gate by the next step.
func (c *Controller) retract(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o decide.Observation, step decide.Step) error {
	if !o.Requester.Shown {
		reason := decide.NotServing
		if o.Ahead {
			reason = decide.NotAwake
		}
		return c.setGate(ctx, n, w, pod, corev1.ConditionFalse, string(reason), step.Why)
	}
	relayed := w.asked[pod.UID].RelayedLabels
	return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		for _, key := range relayed {
			delete(p.Labels, key)
		}
		c.setStatus(p, o, podmeta.Status{State: decide.StateWaiting, Reason: string(decide.NotServing), Message: step.Why})
		delete(p.Annotations, podmeta.AnnotationRelayedLabels)
	})
}

func (c *Controller) setGate(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, status corev1.ConditionStatus, reason, message string) error {
	changed := pod.DeepCopy()
	condition := corev1.PodCondition{
		Type: podmeta.ReadinessGate, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.opts.Now()),
	}
	if gate := podmeta.Gate(changed); gate != nil {
		*gate = condition
	} else {
		changed.Status.Conditions = append(changed.Status.Conditions, condition)
	}
	patch, err := ofThisPod(pod, client.StrategicMergeFrom(pod), changed)
	if err != nil {
		return err
	}
	if err := c.opts.API.Status().Patch(ctx, changed, patch); err != nil {
		return err
	}
	w.wrote(n, changed)
	return nil
}
