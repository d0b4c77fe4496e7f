package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// How a deleted requester ends, as any Pod does. From the deletion on, endpoints lead
// elsewhere, but proxies follow them late:
//
//	deletion   the preStop hook runs; the requester is ready and serves
//	SIGTERM    the requester is unready, and serves through its shutdown delay
//	unbind     it refuses new connections, and lets the open ones end
//	sleep      its model sleeps, and the finalizer goes
//
// The kubelet does not report SIGTERM, so the controller asks the requester program.

// graceEnds returns when the kubelet kills the containers of a Pod that is being deleted.
// The API server has added the grace to the deletion timestamp.
func graceEnds(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Time
}

// stillServing reports whether a deleted requester serves clients whose proxies may not
// have heard of its deletion. Its end is known from its program alone; a program that
// never tells is unbound when its grace is nearly over.
func (o *Observation) stillServing() bool {
	r := &o.Requester
	deleted := r.Exists && r.Deleting && !r.Finished && r.Running && !o.Node.Gone
	if !deleted || o.Record == nil || o.SPI == nil || o.graceLeft() <= 0 {
		return false
	}
	awake := !o.emptied() && (!o.known() || o.in(launcher.Awake)) // as far as is known
	p := &o.SPI.Proxy
	forwards := p.State == requesterapi.StateBound && p.Binding == o.Record.SwapKey() && !o.misbound()
	return awake && forwards && (p.Ready || p.ShutdownDelayMS > 0)
}

// endPause is how often a requester program is asked whether it was told to end. A Pod
// whose readiness probe waits is unready then, and that begins a pass at once.
const endPause = 500 * time.Millisecond

// untilUnbound returns when to look again at a requester that is still serving.
func (o *Observation) untilUnbound() time.Duration {
	after := endPause
	if delay := o.SPI.Proxy.ShutdownDelayMS; delay > 0 {
		after = time.Duration(min(delay, requesterapi.MaxDrain.Milliseconds())) * time.Millisecond
	}
	return min(after, o.graceLeft())
}

// killMargin is how long before the end of its grace a deleted requester is to be unbound,
// so that it ends by itself and is not killed.
const killMargin = 2 * time.Second

// graceLeft returns how much of its grace a deleted requester may use.
func (o *Observation) graceLeft() time.Duration {
	return o.Requester.GraceEnds.Add(-killMargin).Sub(o.Now)
}

// drain returns how long the connections of its clients may take to end. Those of a deleted
// requester have the rest of its grace, as those of any Pod have.
func (o *Observation) drain(usual time.Duration) time.Duration {
	switch {
	case o.Record == nil || o.emptied():
		return 0 // nobody answers any more at the other end
	case o.Requester.Deleting && o.in(launcher.Awake):
		return min(max(usual, o.graceLeft()), requesterapi.MaxDrain)
	}
	return usual
}
