package binding

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
)

// observe puts together what one decision rests on.
func (c *Controller) observe(ctx context.Context, n *nodeWork, w *world, id dualpods.Identity) decide.Observation {
	o := decide.Observation{Common: decide.Common{Now: w.now, Node: w.node, Requester: decide.Requester{UID: id.UID, Namespace: id.Namespace}}}
	l, record := w.boundTo(id)
	o.Record = record
	pod := w.pod(id)
	if pod != nil {
		c.observePod(ctx, &o, n, w, pod)
	} else if record != nil {
		o.Requester.Namespace, o.Requester.Name = record.Namespace, record.Name
	}
	if l == nil && len(o.Problems) == 0 {
		l, o.Lacking = c.choose(ctx, w, &o)
	}
	if l != nil {
		if o.Requester.Exists && len(o.Problems) == 0 {
			o.Form, o.Problems = o.Form.On(&l.pod.Spec)
		}
		o.Kubelet = c.allocation(w, l, id)
	}
	c.observeAhead(&o, pod)
	if (o.SPI != nil || o.Ahead) && len(o.Problems) == 0 {
		o.Requester.Instance = form.InstanceID(o.Form, o.GPUs())
	}
	instance := o.Requester.Instance
	if record != nil {
		instance = record.Instance
	}
	if l != nil {
		l.view = c.look(l, instance)
		o.Launcher, o.Copy = l.observed(), l.copyFor(&o)
	}
	if record != nil {
		c.observeAttempt(&o, n, w, l, record)
	} else if l != nil {
		o.Holder = cmp.Or(l.holder(instance), w.heldBy(l, instance))
	}
	o.Calls.Unbind = w.pods[id.UID] == pod && n.calls.underWay(unbindKey(id.UID), 0)
	if l != nil {
		o.Failures = podmeta.ReadFailures(l.pod, instance)
		o.Instance = l.instance(instance)
	}
	observeTroubles(&o, n, l, instance)
	if pod != nil { // compared with what the rest of the observation calls for
		o.Requester.Published = published(pod, w.asked[id.UID].RelayedLabels, o)
	}
	c.observeEndpoints(ctx, n, &o, pod)
	return o
}

// observeAhead adds what counts of a requester before its program runs.
func (c *Controller) observeAhead(o *decide.Observation, pod *corev1.Pod) {
	switch {
	case pod == nil || o.Requester.Running:
	case o.Record != nil:
		o.Ahead = o.Record.Ahead && !podmeta.ProgramOf(pod).Ended()
	default:
		o.AsksAhead = c.asksAhead(pod)
		o.Ahead = o.AsksAhead && o.Kubelet != nil && len(o.Kubelet.GPUs) > 0 && len(o.Kubelet.GPUs) == o.Requester.GPUs
	}
}

// observeAttempt adds what the attempt of a record has come to, and who else on
// the node has to do with the record's GPUs.
func (c *Controller) observeAttempt(o *decide.Observation, n *nodeWork, w *world, l *launcherPod, record *podmeta.Binding) {
	o.Attempt = n.calls.attempt(swapKey(l, record), l.view.Revision)
	o.Attempt.Earlier = !n.calls.wrote(swapKey(l, record))
	others := c.beside(w, l)
	o.Neighbours, o.Unheard = c.neighbours(n, w, others, record), c.unheard(others)
	o.Earlier, o.BoundToo = w.swapping(n, record), w.boundToo(l, record)
	off := n.calls.attempt(callOffKey(l, record), 0)
	o.Calls.CallOff, o.Calls.CallingOff = off.Asked, off.Asked && !off.Over
	o.Calls.Sleep = n.calls.underWay(sleepKey(l, record.Instance), l.view.Revision)
	o.Calls.Delete = n.calls.underWay(deleteKey(l, record.Instance), l.view.Revision)
}

// holder is the requester that is bound to an instance; empty: none is.
func (l *launcherPod) holder(id string) string {
	for _, b := range l.bindings {
		if b.Instance == id {
			return b.Namespace + "/" + b.Name
		}
	}
	return ""
}

// observePod adds what the requester's Pod says.
func (c *Controller) observePod(ctx context.Context, o *decide.Observation, n *nodeWork, w *world, pod *corev1.Pod) {
	o.SPI, o.Rivals = w.spi[pod.UID], w.rivals(pod.UID)
	if on := w.unread(pod); on != nil && on.pod.DeletionTimestamp.IsZero() { // else it is not served for long
		o.Unread = "launcher " + on.pod.Name + ": " + podmeta.Join(on.damaged)
	}
	read := w.asked[pod.UID]
	o.Problems = read.problems
	if c.opts.RequireTLS && !read.TLS && o.Record == nil { // one that is bound is served until it goes
		o.Problems = append(slices.Clip(o.Problems), podmeta.NoTLS(pod))
	}
	if len(o.Problems) == 0 {
		o.Form, o.Problems = c.form(ctx, n, pod, read.Requester)
	}
	if len(o.Problems) == 0 {
		c.fromWhere(ctx, o, pod.Namespace)
	}
	program := podmeta.ProgramOf(pod)
	o.Requester = decide.Requester{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
		Exists: true, Requester: dualpods.RequesterOf(pod), GraceEnds: graceEnds(pod), Grace: graceOf(pod), Running: program.Runs(), Program: program.Name,
		Finalizer: podmeta.Held(pod), Tolerates: toleratesClosed(pod),
		Gate: read.Gated, GateOpen: podmeta.GateOpen(pod),
		Started: program.Started(), Silent: w.silent[pod.UID], Refuses: w.refusing[pod.UID], AdminAddress: w.adminAddress(pod.UID), GPUs: read.GPUs, Told: readStatus(pod).Message,
		Shown:   readStatus(pod).State == decide.StateServing || len(read.RelayedLabels) > 0,
		Created: pod.CreationTimestamp.Time, PodReady: readySince(pod), FoundUnready: foundUnready(pod),
	}
	if placed, ok := podmeta.ReadPlacement(pod); ok {
		o.Requester.Placed = placed.Launcher
	}
	if why, stuck := podmeta.Waits(pod); stuck {
		o.Requester.Stuck = why
	}
	status := readStatus(pod)
	o.Requester.ServesSince, o.Requester.WaitsSince = servesSince(pod, status)
	o.Told, o.Repeats = n.told[pod.UID], n.repeats.of(pod.UID)
	if status.Reason != string(o.Told.Reason) { // the status tells something else by now
		o.Told.Reason = ""
	}
}

// readForm is what a server patch asks for, of a requester Pod of that resource
// version. To apply a patch takes a millisecond, and each step asks for the form.
type readForm struct {
	version  string
	form     form.Form
	problems []podmeta.Problem
}

// form reads what the requester asks for.
func (c *Controller) form(ctx context.Context, n *nodeWork, pod *corev1.Pod, read podmeta.Requester) (form.Form, []podmeta.Problem) {
	patched := read.Input == podmeta.InputPatch
	if known := n.forms[pod.UID]; patched && known.version == pod.ResourceVersion {
		return known.form, known.problems
	}
	wanted, problems, err := form.Source{API: c.opts.API}.Read(ctx, pod)
	if err != nil {
		problems = []podmeta.Problem{{Kind: podmeta.Invalid, Field: form.ConfigField, Message: err.Error()}}
	}
	if patched {
		n.forms[pod.UID] = readForm{pod.ResourceVersion, wanted, problems}
	}
	return wanted, problems
}

// toleratesClosed says that a Pod is to run on a node that was made unschedulable,
// as those of a DaemonSet are: one that is deleted there comes again at once.
func toleratesClosed(pod *corev1.Pod) bool {
	return dualpods.Tolerates(pod.Spec.Tolerations, []corev1.Taint{dualpods.Cordoned})
}

// servesSince returns since when the status or the gate of a requester says that it serves, or
// that it waits after it served; zero: neither says so.
func servesSince(pod *corev1.Pod, status podmeta.Status) (serves, waits time.Time) {
	gate := podmeta.Gate(pod)
	switch {
	case status.State == decide.StateServing:
		return status.Since, time.Time{}
	case gate != nil && gate.Status == corev1.ConditionTrue:
		return gate.LastTransitionTime.Time, time.Time{}
	case status.State == decide.StateWaiting:
		return time.Time{}, status.Since
	case gate != nil && gate.Reason == string(decide.NotServing):
		return time.Time{}, gate.LastTransitionTime.Time
	default:
		return time.Time{}, time.Time{}
	}
}

func swapKey(l *launcherPod, b *podmeta.Binding) string {
	return "swap/" + l.key() + "/" + b.SwapKey()
}
func sleepKey(l *launcherPod, id string) string  { return "sleep/" + l.key() + "/" + id }
func deleteKey(l *launcherPod, id string) string { return "delete/" + l.key() + "/" + id }
func askKey(uid types.UID) string                { return "ask/" + string(uid) }
func unbindKey(uid types.UID) string             { return "unbind/" + string(uid) }
func logKey(uid types.UID, b *podmeta.Binding) string {
	return "log/" + string(uid) + "/" + b.SwapKey()
}
func callOffKey(l *launcherPod, b *podmeta.Binding) string { return callOffOf(swapKey(l, b)) }

func callOffOf(swapKey string) string { return swapKey + "/call-off" }

// annotationsOf is a copy that can be written to.
func annotationsOf(pod *corev1.Pod) map[string]string {
	if pod.Annotations == nil {
		return map[string]string{}
	}
	return maps.Clone(pod.Annotations)
}
