package binding

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
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

// observeEndpoints tells the slices whether a requester serves, and asks whether they lead to
// one that is to be unbound. A requester without a node is not noted: a pass that finds it gone from
// there would have the slices forget what the passes over its node have said.
func (c *Controller) observeEndpoints(ctx context.Context, n *nodeWork, o *decide.Observation, pod *corev1.Pod) {
	if c.opts.Endpoints == nil || pod == nil || n.name == "" {
		return
	}
	serves, known := o.Serves()
	if was, noted := n.serves[pod.UID]; known && (!noted || was != serves) {
		n.serves[pod.UID] = serves
		c.opts.Endpoints.Note(ctx, pod, serves)
	}
	if (o.IsLeaving() || o.RecordUnwanted()) && o.ForwardsTraffic() {
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
