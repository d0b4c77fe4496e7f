package binding

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
)

// requesterCalls are the calls to a process of a requester program.
var requesterCalls = []decide.Action{decide.Bind, decide.Unbind, decide.BecomeReady, decide.BecomeUnready, decide.Hold, decide.EndHold}

// observeTroubles adds the calls that are in trouble, and forgets those that had
// their effect.
func observeTroubles(o *decide.Observation, n *nodeWork, l *launcherPod, id string) {
	o.Troubles = map[decide.Action]decide.Trouble{}
	if l != nil && o.Record != nil {
		o.Troubles[decide.Sleep], o.Troubles[decide.DeleteInstance] = n.calls.instanceTroubles(l, id, o.State())
	}
	if o.SPI == nil {
		return
	}
	awake := o.Awake()
	done := awake != nil && !o.RecordUnwanted() && !awake.LauncherUnknown() && awake.IsReady() && awake.ForwardsToIt()
	for _, do := range requesterCalls {
		key := troubleKey(do, o.Requester.UID)
		if done || hadItsEffect(o, do) {
			n.calls.hadEffect(key)
		}
		o.Troubles[do] = n.calls.troubleWith(key, o.SPI.Proxy.Instance, o.Now)
	}
}

// hadItsEffect reports whether a call to the requester program is seen to have had its effect.
func hadItsEffect(o *decide.Observation, do decide.Action) bool {
	switch do {
	case decide.BecomeUnready:
		return !o.IsReady()
	case decide.Unbind:
		return !o.ForwardsTraffic()
	case decide.EndHold:
		return o.Holding() == ""
	case decide.Hold:
		return o.Record != nil && o.Holding() == o.Record.SwapKey()
	default:
		return false
	}
}

// instanceTroubles are those of the calls that put an instance to rest.
func (c *calls) instanceTroubles(l *launcherPod, id string, state launcher.State) (sleep, remove decide.Trouble) {
	switch state {
	case launcher.Awake, launcher.FallingAsleep, launcher.Waking: // an engine that does not sleep is awake again soon
	default:
		c.hadEffect(sleepKey(l, id))
	}
	if state == "" || state == launcher.Stopping {
		c.hadEffect(deleteKey(l, id))
	}
	return c.trouble(sleepKey(l, id)), c.trouble(deleteKey(l, id))
}

// published says that status and labels of a requester are those of one that is
// served; relayed are the keys of the labels that the controller put there.
func published(pod *corev1.Pod, relayed []string, o decide.Observation) bool {
	bound := o.Bound()
	if bound == nil {
		return false
	}
	old := podmeta.ReadStatus(pod)
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
