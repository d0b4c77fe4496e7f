package binding

import (
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
)

// This file reads what the table changing needs. The controller of ModelServings has the models of a
// group changed in place: it tells the requesters, and says go and commit to the swaps.

// nextInstance returns the id of the instance that is to come in the place of a record's own: that
// which the record has, or else that which the requester asks for; empty: none is to come.
func nextInstance(o *decide.Observation) string {
	switch {
	case o.Record == nil:
		return ""
	case o.Record.Change != nil:
		return o.Record.Change.Instance
	case o.Requester.SwapTo.ID() == "" || o.Requester.SwapTo.ID() == o.Record.ChangedBy || len(o.Problems) > 0:
		return ""
	}
	return form.InstanceID(o.Form, o.Record.GPUs)
}

// observeChange adds what the change of a record has come to.
func (c *Controller) observeChange(o *decide.Observation, n *nodeWork, l *launcherPod, record *podmeta.Binding) {
	next := record.Next()
	if next == nil {
		return
	}
	o.NextAttempt = n.calls.attempt(swapKey(l, next), l.view.Revision)
	off := n.calls.attempt(callOffKey(l, next), 0)
	o.Calls.NextCallOff, o.Calls.NextCallingOff = off.Asked, off.Asked && !off.Over
}

// observeServers adds the starts that a rank was told of.
func observeServers(o *decide.Observation, pod *corev1.Pod) {
	if o.Record == nil {
		return
	}
	o.Requester.Server = podmeta.ServerOf(pod, o.Record.SwapKey())
	if next := o.Record.Next(); next != nil {
		o.Requester.NextServer = podmeta.ServerOf(pod, next.SwapKey())
	}
}
