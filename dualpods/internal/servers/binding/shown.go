package binding

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// What tells others to use a requester: its program, which answers probes, its
// readiness gate, and its labels and status. They come in this order, so that
// whoever selects by labels finds those alone whose gate is open. Labels and
// status go before the gate shuts.

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

// ofThisPod is a patch that the API server refuses of another Pod of the same name.
// A resource version would be too much: the kubelet writes the status as well.
func ofThisPod(pod *corev1.Pod, patch client.Patch, changed *corev1.Pod) (client.Patch, error) {
	data, err := patch.Data(changed)
	if err != nil {
		return nil, fmt.Errorf("cannot compare the status of Pod %s: %w", pod.Name, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("cannot read what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	fields["metadata"] = json.RawMessage(fmt.Sprintf(`{"uid":%q}`, pod.UID))
	if data, err = json.Marshal(fields); err != nil {
		return nil, fmt.Errorf("cannot write what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	return client.RawPatch(patch.Type(), data), nil
}
