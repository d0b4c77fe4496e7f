package binding

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Endpoints keeps the EndpointSlices of Services that ask for them (package endpoints). Its
// methods return at once.
type Endpoints interface {
	// Note takes in that a requester serves, or does not.
	Note(ctx context.Context, requester *corev1.Pod, serves bool)
	// Leads reports whether a slice leads new connections to a requester, and else since when
	// none does; zero: none ever did.
	Leads(ctx context.Context, requester *corev1.Pod) (leads bool, since time.Time)
	// Forget forgets a requester that is gone.
	Forget(requester types.UID)
}

// Slices is what the EndpointSlices of Services that ask for them say of a requester.
type Slices struct {
	Lead bool      // one of them leads new connections to it
	Left time.Time // since when none does; zero: none ever did
}

// observeEndpoints tells the slices whether a requester serves, and asks whether they lead to
// one that is to be unbound. Of one without a node nothing is said: a pass that finds it gone from
// there would have the slices forget what the passes over its node have said.
func (c *Controller) observeEndpoints(ctx context.Context, n *nodeWork, o *Observation, pod *corev1.Pod) {
	if c.opts.Endpoints == nil || pod == nil || n.name == "" {
		return
	}
	serves, known := o.serves()
	if was, noted := n.serves[pod.UID]; known && (!noted || was != serves) {
		n.serves[pod.UID] = serves
		c.opts.Endpoints.Note(ctx, pod, serves)
	}
	if (o.leaving() || o.letGo()) && o.carries() {
		o.Slices.Lead, o.Slices.Left = c.opts.Endpoints.Leads(ctx, pod)
	}
}

// forgetServes forgets what was noted of requesters that are gone.
func (c *Controller) forgetServes(n *nodeWork, w *world) {
	for uid := range n.serves {
		if w.pods[uid] == nil {
			delete(n.serves, uid)
			c.opts.Endpoints.Forget(uid)
		}
	}
}

// serves reports whether connections to a requester reach a model that is awake. known is false
// where that cannot be told: what was known last still counts. A requester that is being deleted
// serves on until its program is told to end.
func (o *Observation) serves() (serves, known bool) {
	r := &o.Requester
	switch {
	case o.Record == nil && o.Unread != "": // that record may be its own
		return false, false
	case o.Record == nil, !r.Running, r.Finished, o.Node.Gone, o.ending(), o.goes():
		return false, true
	case o.recordChanged():
		return false, true
	case !o.known():
		return false, false
	case !o.in(launcher.Awake), o.Calls.Sleep, o.Calls.Delete:
		return false, true
	case o.SPI == nil:
		return false, false
	}
	return o.ready() && o.SPI.Proxy.ProxyConfig == o.proxy(), true
}

// endpointsDelay is how long proxies may still lead connections to a requester that no slice
// leads to any more: as long as the default of the requester program's --shutdown-delay.
const endpointsDelay = 5 * time.Second

// leavesItsEndpoints reports whether a requester that is to be unbound waits for its endpoints:
// proxies may still lead new connections to it, and its model is awake.
func (o *Observation) leavesItsEndpoints() bool {
	r := &o.Requester
	goes := o.leaving() || o.letGo()
	runs := r.Running && !r.Finished && !o.Node.Gone && (!r.Deleting || o.graceLeft() > 0)
	if !goes || !runs || o.untilOutOfEndpoints() <= 0 {
		return false
	}
	forwards := o.SPI != nil && o.SPI.Proxy.State == requesterapi.StateBound
	awake := !o.emptied() && (!o.known() || o.in(launcher.Awake)) // as far as is known
	return forwards && awake
}

// untilOutOfEndpoints returns how long proxies may still lead connections to a requester. For
// one that a slice leads to, that is at least so long.
func (o *Observation) untilOutOfEndpoints() time.Duration {
	if o.Slices.Lead {
		return endpointsDelay
	}
	return o.Slices.Left.Add(endpointsDelay).Sub(o.Now)
}

// waitForEndpoints looks again when proxies have had their time, or when the grace of a deleted
// requester ends. A slice that is written begins a pass, too.
func waitForEndpoints(o *Observation) Step {
	after := o.untilOutOfEndpoints()
	if o.Requester.Deleting {
		after = min(after, o.graceLeft())
	}
	return Step{Do: Retry, After: after, Why: "proxies may still lead connections to it, by the endpoints of a Service: it serves until they have had their time"}
}
