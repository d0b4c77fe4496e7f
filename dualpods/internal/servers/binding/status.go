package binding

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// States in the status of a requester.
const (
	stateBinding = "Binding"
	stateWaiting = "Waiting"
	stateServing = "Serving"
)

// outdated is told of a requester that serves something else than it asks for.
const outdated = "its specification has changed since it was bound, and it serves the earlier one: delete it, or restart its Deployment, to get the new one"

func readStatus(pod *corev1.Pod) podmeta.Status {
	var s podmeta.Status
	if json.Unmarshal([]byte(pod.Annotations[podmeta.AnnotationStatus]), &s) != nil {
		return podmeta.Status{} // it is written anew
	}
	return s
}

// maxErrors is how many problems of an input a status lists.
const maxErrors = 16

// statusText is a status as it is written, after the one that was there.
func statusText(o *Observation, old, s podmeta.Status) (string, error) {
	s.Since = o.Now.UTC().Truncate(time.Second)
	if old.State == s.State {
		s.Since = old.Since
	}
	for _, problem := range o.Problems[:min(len(o.Problems), maxErrors)] {
		s.Errors = append(s.Errors, dualpods.Truncate(problem.String(), maxNote))
	}
	s.LeftAlone, s.Ignored = o.Form.LeftAlone, o.Form.Ignored
	text, err := json.Marshal(s)
	return string(text), err
}

// setStatus writes the status of a requester.
func (c *Controller) setStatus(p *corev1.Pod, o Observation, s podmeta.Status) {
	text, err := statusText(&o, readStatus(p), s)
	if err != nil {
		c.log.Error(err, "cannot write a status")
		return
	}
	p.Annotations = annotationsOf(p)
	p.Annotations[podmeta.AnnotationStatus] = text
}

// follows says that the requester has the labels of its input: one that serves
// something else than it asks for keeps those that it has.
func (o *Observation) follows() bool { return len(o.Problems) == 0 && o.current() }

// servingStatus is the status of one that is served, after the one that was there.
func (o *Observation) servingStatus(old podmeta.Status) podmeta.Status {
	s := podmeta.Status{State: stateServing, Launcher: o.Launcher.Name, Instance: o.Record.Instance}
	if o.Instance != nil {
		s.ModelFrom, s.ModelWhy = o.Instance.ModelFrom, dualpods.Truncate(o.Instance.ModelWhy, maxNote)
	}
	if o.follows() {
		s.Generation = o.Form.Generation
		return s
	}
	s.Generation = old.Generation
	if len(o.Problems) == 0 {
		s.Message = outdated
	}
	return s
}

// published says that status and labels of a requester are those of one that is
// served; relayed are the keys of the labels that the controller put there.
func published(pod *corev1.Pod, relayed []string, o Observation) bool {
	if o.Record == nil || o.Launcher == nil {
		return false
	}
	old := readStatus(pod)
	text, err := statusText(&o, old, o.servingStatus(old))
	if err != nil || pod.Annotations[podmeta.AnnotationStatus] != text {
		return false
	}
	if !o.follows() {
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
// that are not asked for any more, and says that it is served.
func (c *Controller) publish(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o Observation) error {
	relayed := w.asked[pod.UID].RelayedLabels
	keys, err := json.Marshal(slices.Sorted(maps.Keys(o.Form.Labels)))
	if err != nil {
		return err
	}
	old := readStatus(pod)
	status := o.servingStatus(old)
	err = c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		c.setStatus(p, o, status)
		if !o.follows() {
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
		c.event(pod, Step{Reason: Outdated, Why: status.Message}, "Publish")
	}
	return err
}
