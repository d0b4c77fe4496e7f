package binding

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
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
	if namesInstance(&o) {
		o.Requester.Instance = form.InstanceID(o.Form, o.GPUs())
	}
	instance := o.Requester.Instance
	if record != nil {
		instance = record.Instance
	}
	next := nextInstance(&o)
	if l != nil {
		l.view = c.look(l, instance, next)
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
		o.Instance, o.NextInstance = l.instance(instance), l.instance(next)
	}
	observeTroubles(&o, n, l, instance)
	if pod != nil { // compared with what the rest of the observation calls for
		o.Requester.Published = published(pod, w.asked[id.UID].RelayedLabels, o)
	}
	c.observeEndpoints(ctx, n, &o, pod)
	return o
}

// namesInstance reports whether it is known which instance the requester would have. A seat without a model has none.
func namesInstance(o *decide.Observation) bool {
	return (o.SPI != nil || o.Ahead) && len(o.Problems) == 0 && o.Requester.Input != podmeta.InputNone
}

// observePod adds what the requester's Pod says.
func (c *Controller) observePod(ctx context.Context, o *decide.Observation, n *nodeWork, w *world, pod *corev1.Pod) {
	o.Rivals = w.rivals(pod.UID)
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
	if len(o.Problems) == 0 && read.Input != podmeta.InputNone {
		c.fromWhere(ctx, o, pod.Namespace)
	}
	program := podmeta.ProgramOf(pod)
	if program.Runs() { // the Pod may be newer than the program's answer: the API server answers writes with it
		o.SPI = w.spi[pod.UID]
	}
	o.Requester = decide.Requester{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
		Exists: true, Requester: dualpods.RequesterOf(pod), GraceEnds: graceEnds(pod), Grace: graceOf(pod), Running: program.Runs(), Program: program.Name,
		Finalizer: podmeta.Held(pod), Tolerates: toleratesClosed(pod),
		Gate: read.Gated, GateOpen: podmeta.GateOpen(pod),
		Started: program.Started(), Silent: w.silent[pod.UID], Refuses: w.refusing[pod.UID], AdminAddress: w.adminAddress(pod.UID), GPUs: read.GPUs, Told: podmeta.ReadStatus(pod).Message,
		Shown:   podmeta.ReadStatus(pod).State == decide.StateServing || len(read.RelayedLabels) > 0,
		Created: pod.CreationTimestamp.Time, PodReady: readySince(pod), FoundUnready: foundUnready(pod),
	}
	o.Requester.Rank, o.Requester.OnExit, o.Requester.SwapTo = read.Rank, read.OnExit, podmeta.ReadSwapTo(pod)
	seat := podmeta.ReadAssignment(pod)
	o.Requester.Seat, o.Requester.Assigned, o.Requester.Input = podmeta.IsSeat(pod), seat.ID(), read.Input
	o.Requester.Behind = len(o.Problems) == 0 && o.Form.Generation < seat.Generation
	if o.Requester.Seat {
		n.seated(pod.UID, o.Requester.Assigned)
	}
	if owner := podmeta.ServingOf(pod); owner != nil {
		o.Requester.Serving = owner.Name
	}
	observeServers(o, pod)
	if placed, ok := podmeta.ReadPlacement(pod); ok {
		o.Requester.Placed = placed.Launcher
	}
	if why, stuck := podmeta.Waits(pod); stuck {
		o.Requester.Stuck = why
	}
	status := podmeta.ReadStatus(pod)
	o.Requester.ServesSince, o.Requester.WaitsSince = servesSince(pod, status)
	o.Told, o.Repeats = n.told[pod.UID], n.repeats.of(pod.UID)
	if status.Reason != string(o.Told.Reason) { // the status tells something else by now
		o.Told.Reason = ""
	}
}

// readForm is what the server patch of a requester Pod asks for. To apply a patch takes a
// millisecond, and each step asks for the form.
type readForm struct {
	version  string            // of the Pod
	from     [sha256.Size]byte // see formSource
	form     form.Form
	problems []podmeta.Problem
}

// formSource is a hash of all of a Pod that its form is read from. The kubelet writes the status of
// a Pod several times while the Pod starts, which changes no form.
func formSource(pod *corev1.Pod) (hash [sha256.Size]byte) {
	h := sha256.New()
	read := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	if err := json.NewEncoder(h).Encode(&read); err != nil {
		panic(err) // every Pod can be written as JSON
	}
	h.Sum(hash[:0])
	return hash
}

// form reads what the requester asks for.
func (c *Controller) form(ctx context.Context, n *nodeWork, pod *corev1.Pod, read podmeta.Requester) (form.Form, []podmeta.Problem) {
	patched := read.Input == podmeta.InputPatch
	var from [sha256.Size]byte
	if known, ok := n.forms[pod.UID]; patched {
		if ok && known.version == pod.ResourceVersion {
			return known.form, known.problems
		}
		if from = formSource(pod); ok && known.from == from {
			known.version = pod.ResourceVersion
			n.forms[pod.UID] = known
			return known.form, known.problems
		}
	}
	wanted, problems, err := form.Source{API: c.opts.API}.Read(ctx, pod)
	if err != nil {
		problems = []podmeta.Problem{{Kind: podmeta.Invalid, Field: form.ConfigField, Message: err.Error()}}
	}
	if patched {
		n.forms[pod.UID] = readForm{pod.ResourceVersion, from, wanted, problems}
	}
	return wanted, problems
}

// fromWhere adds from where a new instance is to have its model, where the requester
// does not say: as its namespace says, or the controller's flag; where those leave it
// open, as the ClusterModelCache of the model does.
func (c *Controller) fromWhere(ctx context.Context, o *decide.Observation, namespace string) {
	if o.Form.ModelCache != "" {
		return
	}
	var wrong []podmeta.Problem
	if c.opts.ModelCache != nil {
		o.ModelCache, wrong = c.opts.ModelCache(ctx, namespace)
	}
	open := o.ModelCache == "" || o.ModelCache == launcherapi.ModelCacheAuto
	if open && len(wrong) == 0 && c.opts.Keeper != nil {
		if o.Keeper, wrong = c.opts.Keeper(ctx, modelref.FromArgs(o.Form.Args), o.Node.Name); o.Keeper != nil {
			o.ModelCache = launcherapi.ModelCacheRequire
		}
	}
	if o.Record == nil { // one that is bound is served on
		o.Problems = wrong
	}
}

// toleratesClosed says that a Pod is to run on a node that was made unschedulable,
// as those of a DaemonSet are: one that is deleted there comes again at once.
func toleratesClosed(pod *corev1.Pod) bool {
	return dualpods.Tolerates(pod.Spec.Tolerations, []corev1.Taint{dualpods.Cordoned})
}

// servesSince returns since when the status or the gate of a requester says that it serves, or
// that it waits after it served; zero: neither says so. While the gate is open before the program
// runs, the controller keeps the status Waiting. If the gate is shut later, its time counts.
func servesSince(pod *corev1.Pod, status podmeta.Status) (serves, waits time.Time) {
	gate := podmeta.Gate(pod)
	switch {
	case status.State == decide.StateServing:
		return status.Since, time.Time{}
	case gate != nil && gate.Status == corev1.ConditionTrue:
		return gate.LastTransitionTime.Time, time.Time{}
	}
	if status.State == decide.StateWaiting {
		waits = status.Since
	}
	if gate != nil && gate.Reason == string(decide.NotServing) && gate.LastTransitionTime.After(waits) {
		waits = gate.LastTransitionTime.Time
	}
	return time.Time{}, waits
}

// readySince is since when a Pod is ready; zero: it is not.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// foundUnready returns since when the kubelet says that not all containers of a Pod are ready;
// zero: it does not.
func foundUnready(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionFalse {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// graceEnds returns when the kubelet kills the containers of a Pod that is being deleted.
// The API server has added the grace to the deletion timestamp.
func graceEnds(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Time
}

// graceOf returns how long the kubelet gives a Pod to end. It may give it less.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(min(max(seconds, 0), int64(requesterapi.MaxDrain/time.Second))) * time.Second
}
