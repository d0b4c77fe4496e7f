package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// What tells others to use a requester: its program, which answers probes, its
// readiness gate, and its labels and status. They come in this order, so that
// whoever selects by labels finds those alone whose gate is open. Labels and
// status go before the gate shuts.

// shown says that labels, status or gate of the requester tell others to use it.
func (o *Observation) shown() bool { return o.Requester.Shown || o.Requester.GateOpen }

func (o *Observation) ready() bool { return o.SPI != nil && o.SPI.Proxy.Ready }

// readyInVain says that the requester, which is to stay, is ready and that its
// instance is not awake.
func (o *Observation) readyInVain() bool {
	return !o.leaving() && o.known() && !o.in(launcher.Awake) && o.ready()
}

// toldUnready says that the requester is to be told to become unready. Where that
// was in vain a moment ago its clients are kept from it otherwise first.
func (o *Observation) toldUnready() bool {
	return o.ready() && (!o.inVain(BecomeUnready) || !o.carries() && !o.shown())
}

// stubborn says that the requester program carries traffic, and does not become
// unready though told to.
func (o *Observation) stubborn() bool { return o.Troubles[BecomeUnready].Count > 0 && o.carries() }

// unbindable says that the requester program is not being unbound, nor was told
// to unbind in vain a moment ago.
func (o *Observation) unbindable() bool { return !o.inVain(Unbind) && !o.Calls.Unbind }

// unbindStubborn keeps clients from a requester that is not to be ready and does
// not become unready.
func unbindStubborn(format string, args ...func(*Observation) string) func(*Observation) Step {
	unbind := do(Unbind, format+", and the requester program refuses to become unready", args...)
	return func(o *Observation) Step {
		if o.Calls.Unbind {
			return Step{Do: Nothing, Why: "connections of its clients are ending"}
		}
		return unbind(o)
	}
}

// enoughUnbinds is how often a requester program may refuse to unbind before its requester is
// replaced.
const enoughUnbinds = 5

// carriesForEver says that the requester stays, and that its program, which has refused to unbind
// often enough, carries traffic to a launcher that is gone.
func (o *Observation) carriesForEver() bool {
	return !o.leaving() && o.gone() && o.Troubles[Unbind].Count >= enoughUnbinds
}

// unbindOrReplace ends an earlier binding of the requester program, which cannot be bound again
// before. The controller replaces a requester whose program never unbinds and that nobody uses.
func unbindOrReplace(o *Observation) Step {
	if t := o.Troubles[Unbind]; t.Count >= enoughUnbinds && !o.ready() && !o.shown() {
		return because(RequesterRefuses, true, do(DeleteRequester, "its program keeps an earlier binding, and does not unbind: %s", func(*Observation) string { return t.Why }))(o)
	}
	return do(Unbind, "the requester program carries traffic for an earlier binding")(o)
}

// uncarried says that the requester program is known not to carry traffic to the
// instance, and not to do so as soon as it is told to: a program that was started
// anew is bound again within milliseconds.
func (o *Observation) uncarried() bool {
	switch {
	case !o.Requester.Running:
		return true
	case o.SPI == nil:
		return false
	case !o.carries():
		return o.Troubles[Bind].Count > 0 || !o.Launcher.Connected || o.gpusNotTold() || o.Record.Ahead && o.SPI.Wrong != ""
	default: // where the instance listens a launcher that does not answer cannot tell
		return o.SPI.Proxy.State != requesterapi.StateBound || o.Launcher.Connected && o.SPI.Proxy.ProxyConfig != o.proxy()
	}
}

// retract takes labels and status off, and shuts the gate by the next step.
func (c *Controller) retract(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o Observation, step Step) error {
	if !o.Requester.Shown {
		return c.setGate(ctx, n, w, pod, corev1.ConditionFalse, string(NotServing), step.Why)
	}
	relayed := w.asked[pod.UID].RelayedLabels
	return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		for _, key := range relayed {
			delete(p.Labels, key)
		}
		c.setStatus(p, o, podmeta.Status{State: stateWaiting, Reason: string(NotServing), Message: step.Why})
		delete(p.Annotations, podmeta.AnnotationRelayedLabels)
	})
}

func (c *Controller) setGate(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, status corev1.ConditionStatus, reason, message string) error {
	changed := pod.DeepCopy()
	condition := corev1.PodCondition{
		Type: podmeta.ReadinessGate, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.opts.Now()),
	}
	at := slices.IndexFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == podmeta.ReadinessGate })
	if at < 0 {
		changed.Status.Conditions = append(changed.Status.Conditions, condition)
	} else {
		changed.Status.Conditions[at] = condition
	}
	patch, err := ofThisPod(pod, client.StrategicMergeFrom(pod), changed)
	if err != nil {
		return err
	}
	if err := c.opts.API.Status().Patch(ctx, changed, patch); err != nil {
		return err
	}
	w.wrote(n, changed)
	return nil
}

// ofThisPod is a patch that the API server refuses of another Pod of the same name.
// A resource version would be too much: the kubelet writes the status as well.
func ofThisPod(pod *corev1.Pod, patch client.Patch, changed *corev1.Pod) (client.Patch, error) {
	data, err := patch.Data(changed)
	if err != nil {
		return nil, fmt.Errorf("cannot compare the status of Pod %s: %w", pod.Name, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("cannot read what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	fields["metadata"] = json.RawMessage(fmt.Sprintf(`{"uid":%q}`, pod.UID))
	if data, err = json.Marshal(fields); err != nil {
		return nil, fmt.Errorf("cannot write what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	return client.RawPatch(patch.Type(), data), nil
}

// proxy is what the requester program is to carry.
func (o *Observation) proxy() requesterapi.ProxyConfig {
	return requesterapi.ProxyConfig{
		Binding:     o.Record.SwapKey(),
		ServingPort: uint16(o.Record.ServingPort),
		Address:     o.Launcher.IP,
		Port:        uint16(o.Instance.Port),
		MetricsURL:  "http://" + net.JoinHostPort(o.Launcher.IP, strconv.Itoa(o.Instance.Port)) + "/metrics",
	}
}
