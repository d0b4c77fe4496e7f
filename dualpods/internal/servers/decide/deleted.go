package decide

import (
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// How a requester ends, as any Pod does. From the deletion on, endpoints lead elsewhere, but
// proxies follow them late:
//
//	deletion   the preStop hook runs; the requester is ready and serves
//	SIGTERM    the requester is unready, and serves through its shutdown delay
//	unbind     it refuses new connections, and lets the open ones end
//	sleep      its model sleeps, and the finalizer goes
//
// The kubelet does not report SIGTERM, so the controller asks the requester program.
//
// The kubelet also ends Pods that nobody deletes: when its node shuts down, when memory or
// disk is short, when activeDeadlineSeconds has passed. Such a Pod has no deletion timestamp,
// and its phase is Running until all of its containers have ended. Its condition Ready is all
// that takes it from its endpoints, and all that begins a pass:
//
//   - At activeDeadlineSeconds the kubelet sets it to False with the reason PodFailed, before
//     the preStop hook runs (podmeta.Ending).
//   - In the other cases the kubelet sets it if a readiness probe fails that had begun before.
//     It sends no new ones, so it does not notice a SIGTERM that comes after a long hook.
//
// Then it goes on as above, and its labels and its gate go first.

// ServesThroughDelay reports whether a requester that ends serves clients whose proxies may not
// have heard of it. When its preStop hook is over, its program alone knows; a program that never
// tells is unbound when the grace of its deletion is nearly over.
func (o *Observation) ServesThroughDelay() bool {
	b := o.Bound()
	return b != nil && b.servesThroughDelay()
}

// servesThroughDelay reports the same of a requester that is bound. Others serve nobody.
func (b *Bound) servesThroughDelay() bool {
	r := &b.Requester
	ends := r.Deleting && b.graceLeft() > 0 || !r.Deleting && b.isEnding()
	if !ends || !r.Exists || r.Finished || !r.Running || b.Node.Gone || b.SPI == nil {
		return false
	}
	p := &b.SPI.Proxy
	forwards := p.State == requesterapi.StateBound && p.Binding == b.Binding() && !b.gpusChanged()
	return b.mayBeAwake() && forwards && (p.Ready || p.ShutdownDelayMS > 0)
}

// endPause is how often a requester program is asked whether it was told to end. A Pod
// whose readiness probe waits is unready then, and that begins a pass at once.
const endPause = 500 * time.Millisecond

// untilUnbound returns when to look again at a requester that is still serving.
func (b *Bound) untilUnbound() time.Duration {
	after := endPause
	if delay := b.SPI.Proxy.ShutdownDelayMS; delay > 0 {
		after = time.Duration(min(delay, requesterapi.MaxDrain.Milliseconds())) * time.Millisecond
	}
	if b.Requester.Deleting {
		after = min(after, b.graceLeft())
	}
	return after
}

// KillMargin is how long before the end of its grace a deleted requester is to be unbound, so
// that it ends by itself and is not killed.
const KillMargin = 2 * time.Second

// graceLeft returns how much of its grace a deleted requester may use.
func (c *Common) graceLeft() time.Duration {
	return c.Requester.GraceEnds.Add(-KillMargin).Sub(c.Now)
}

// Drain returns how long the connections of its clients may take to end. Those of a deleted
// requester have the rest of its grace, as those of any Pod have. When the grace of one ends
// that nobody deleted, the kubelet alone knows: it ends the drain by ending the program.
func (o *Observation) Drain(usual time.Duration) time.Duration {
	b := o.Bound()
	switch {
	case b == nil || b.launcherContainerEnded():
		return 0 // nobody answers any more at the other end
	case o.Requester.Deleting && b.instanceAwake():
		return min(max(usual, o.graceLeft()), requesterapi.MaxDrain)
	case o.isEnding() && b.instanceAwake():
		return min(max(usual, o.Requester.Grace), requesterapi.MaxDrain)
	}
	if o.Requester.Seat {
		return min(usual, SeatDrain)
	}
	return usual
}

// SeatDrain is how long the connections of a seat may take to end when it changes its model. The controller of SeatPools
// has waited for its requests before.
const SeatDrain = time.Second
