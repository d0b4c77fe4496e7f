package groups

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file undoes what others change of the controller's own objects, and emits an Event. If another program
// changes an object again and again, the pauses between the controller's writes grow.

// undoneAtOnce is how many changes of an object by others are undone at once.
const undoneAtOnce = 3

// repeat says how often a change of an object was written, and was undone by somebody else.
type repeat struct {
	patch string // what was written
	times int
	last  time.Time
}

// patchOf returns a hash of what a step changes of an object; empty: the step changes none.
func patchOf(s *Step) string {
	switch {
	case s.Row == rowEdited && s.Do == Delete:
		return "created again"
	case s.Was == nil:
		return ""
	}
	text, err := client.MergeFrom(s.Was).Data(s.Object)
	if err != nil {
		panic(err) // both can be written as JSON
	}
	return hash(text)
}

// repeatPause returns how long a change of an object has to wait, since others have undone the same change
// again and again; 0: it need not wait. patch is empty if nothing is changed.
func (c *Controller) repeatPause(of, patch string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.repeats[of]
	if patch == "" || r.patch != patch || r.times < undoneAtOnce {
		return 0
	}
	return max(r.last.Add(decide.PauseAfter(decide.FirstPause, 1+r.times-undoneAtOnce)).Sub(c.opts.Now()), 0)
}

// noteChange notes that a change of an object was written. It reports whether the last change was the same:
// then somebody else has undone that one.
func (c *Controller) noteChange(of, patch string) (again bool) {
	if patch == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opts.Now()
	maps.DeleteFunc(c.repeats, func(_ string, r repeat) bool { return now.Sub(r.last) > 2*decide.LongestPause })
	r := repeat{patch: patch, last: now, times: 1}
	if was := c.repeats[of]; was.patch == patch {
		r.times, again = was.times+1, true
	}
	c.repeats[of] = r
	return again
}

// tellEdit emits an Event about a change by others that was undone.
func (c *Controller) tellEdit(about *v1alpha1.ModelServing, s *Step) {
	c.warn(about, v1alpha1.ReasonEditedByOthers, "somebody else has changed "+kindOf(s.Object)+" "+s.Object.GetName()+
		", and the controller has undone it: change the ModelServing instead")
}

// rowEdited is the row of a Service that others have changed.
const rowEdited = "Service changed by others"

// repairs returns the step that restores the fields and labels of a member's Service; nil: it has them.
// What others may set stays, such as annotations. A Service with a selector is created again: Kubernetes
// removes the EndpointSlices that it made by the selector only with the Service.
func (w *World) repairs(m *Member) *Step {
	if !m.Wanted || m.Service.Is == nil || !m.Service.Is.DeletionTimestamp.IsZero() || !w.needsService(m) {
		return nil
	}
	is, want := &m.Service.Is.Spec, w.newService(m.place)
	isOurs := (is.Type == "" || is.Type == corev1.ServiceTypeClusterIP) && is.ClusterIP == want.Spec.ClusterIP && is.PublishNotReadyAddresses &&
		len(is.Ports) == 0 && len(is.ExternalIPs) == 0 && is.ExternalName == ""
	s := &Step{Row: rowEdited, Of: m, State: v1alpha1.GroupRunning}
	if len(is.Selector) > 0 {
		s.writes(Delete, m.Service.Is)
		return s
	}
	after := m.Service.Is.DeepCopy()
	if !isOurs {
		after.Spec = want.Spec
		after.Spec.IPFamilies, after.Spec.IPFamilyPolicy = is.IPFamilies, is.IPFamilyPolicy
	}
	labelled := dualpods.SetLabels(after, want.Labels)
	if isOurs && !labelled {
		return nil
	}
	s.changes(m.Service.Is, after)
	return s
}
