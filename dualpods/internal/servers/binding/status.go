package binding

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func readStatus(pod *corev1.Pod) podmeta.Status {
	var s podmeta.Status
	if json.Unmarshal([]byte(pod.Annotations[podmeta.AnnotationStatus]), &s) != nil {
		return podmeta.Status{} // it is written anew
	}
	return s
}

// setStatus writes the status of a requester.
func (c *Controller) setStatus(p *corev1.Pod, o decide.Observation, s podmeta.Status) {
	text, err := decide.StatusText(&o, readStatus(p), s)
	if err != nil {
		c.log.Error(err, "cannot write a status")
		return
	}
	p.Annotations = annotationsOf(p)
	p.Annotations[podmeta.AnnotationStatus] = text
}

// published says that status and labels of a requester are those of one that is
// served; relayed are the keys of the labels that the controller put there.
func published(pod *corev1.Pod, relayed []string, o decide.Observation) bool {
	bound := o.Bound()
	if bound == nil {
		return false
	}
	old := readStatus(pod)
	wanted := bound.ServingStatus(old)
	if _, says := pod.Annotations[podmeta.AnnotationStatus]; says || !o.GateSuffices(wanted) {
		text, err := decide.StatusText(&o, old, wanted)
		if err != nil || pod.Annotations[podmeta.AnnotationStatus] != text {
			return false
		}
	}
	if !bound.Follows() {
		return true
	}
	for key, value := range o.Form.Labels {
		if has, ok := pod.Labels[key]; !ok || has != value {
			return false
		}
	}
	return slices.Equal(slices.Sorted(slices.Values(relayed)), slices.Sorted(maps.Keys(o.Form.Labels)))
}

// publish puts the labels on a requester that routers look for, takes off those
// that are not asked for any more, and says that it is served, unless its gate does.
func (c *Controller) publish(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o decide.Observation) error {
	relayed := w.asked[pod.UID].RelayedLabels
	keys, err := json.Marshal(slices.Sorted(maps.Keys(o.Form.Labels)))
	if err != nil {
		return err
	}
	old, bound := readStatus(pod), o.Bound()
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
