package groups

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/endpoints"
	"hotseat.dev/hotseat/spec/podmeta"
)

// addresses lists the rows for the Service of an entry and its EndpointSlice. The Service comes
// first, so that its name is known when the Pod starts.
var addresses = []rule{
	{"surplus, Service left", func(w *World, m *Member, s *Step) bool {
		return w.isOver(m) && m.Service.Is != nil && m.Service.Is.DeletionTimestamp.IsZero() && s.writes(Delete, m.Service.Is)
	}},
	{"surplus, slice left", func(w *World, m *Member, s *Step) bool {
		return w.isOver(m) && m.Slice.Is != nil && m.Slice.Is.DeletionTimestamp.IsZero() && s.writes(Delete, m.Slice.Is)
	}},
	{"nothing left", func(w *World, m *Member, _ *Step) bool { return w.isOver(m) }},
	{"Service of an earlier one", func(_ *World, m *Member, s *Step) bool {
		return m.Wanted && m.Service.Other == Earlier && s.waitsForEarlier("Service", m)
	}},
	{"Service name taken", func(_ *World, m *Member, s *Step) bool {
		return m.Wanted && m.Service.Other == Stranger && s.isTaken("Service", m)
	}},
	{"Service just created", func(_ *World, m *Member, s *Step) bool {
		return m.Service.Unheard && s.after(hearLimit)
	}},
	{"create Service", func(w *World, m *Member, s *Step) bool {
		return m.Wanted && m.Service.Is == nil && !w.isInvalid(m) && s.writes(Create, w.newService(m.place))
	}},
	{"ports unknown", func(_ *World, m *Member, _ *Step) bool {
		return m.Target != nil && m.Target.Unknown && leadsTo(m.Slice.Is, m.Target.Pod)
	}},
	{"slice just created", func(_ *World, m *Member, s *Step) bool { return m.Slice.Unheard && s.after(hearLimit) }},
	{"no address", func(_ *World, m *Member, _ *Step) bool {
		return m.Slice.Is == nil && (!m.Wanted || familyOf(m.Target) == "")
	}},
	{"create slice", func(w *World, m *Member, s *Step) bool {
		return m.Slice.Is == nil && s.writes(Create, w.newSlice(m))
	}},
	{"address of another family", func(_ *World, m *Member, s *Step) bool { // the address type never changes
		family := familyOf(m.Target)
		return family != "" && family != m.Slice.Is.AddressType && s.writes(Delete, m.Slice.Is)
	}},
	{"change slice", func(w *World, m *Member, s *Step) bool {
		after := w.changedSlice(m)
		return !equality.Semantic.DeepEqual(after, m.Slice.Is) && s.changes(m.Slice.Is, after)
	}},
	{"slice unchanged", func(*World, *Member, *Step) bool { return true }},
}

// isOver reports whether a member needs no Service any more: it is not wanted and its Pod is gone, or
// it has become a requester that is no entry.
func (w *World) isOver(m *Member) bool {
	return !m.Wanted && m.Pod.Is == nil || m.Wanted && !w.needsService(m)
}

// leadsTo reports whether a slice leads to a Pod.
func leadsTo(slice *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	return slice != nil && len(slice.Endpoints) == 1 && slice.Endpoints[0].TargetRef != nil && slice.Endpoints[0].TargetRef.UID == pod.UID
}

// familyOf returns the kind of the addresses to which a slice leads; empty: there is no address.
func familyOf(to *Target) discoveryv1.AddressType {
	if to == nil {
		return ""
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if len(endpoints.AddressesOf(to.Pod, family)) > 0 {
			return family
		}
	}
	return ""
}

// newSlice returns the EndpointSlice of an entry, whose server has an address.
func (w *World) newSlice(m *Member) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: familyOf(m.Target)}
	slice.Namespace, slice.Name = w.Serving.Namespace, m.name()
	w.fill(slice, m)
	return slice
}

// changedSlice returns the EndpointSlice of an entry as it should be.
func (w *World) changedSlice(m *Member) *discoveryv1.EndpointSlice {
	slice := m.Slice.Is.DeepCopy()
	w.fill(slice, m)
	return slice
}

func (w *World) fill(slice *discoveryv1.EndpointSlice, m *Member) {
	if !metav1.IsControlledBy(slice, w.Serving) {
		slice.OwnerReferences = owners(w.Serving)
	}
	labels := m.labels()
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = m.name(), podmeta.ManagedByServing
	labels[corev1.IsHeadlessService] = ""
	dualpods.SetLabels(slice, labels)
	slice.Endpoints, slice.Ports = nil, nil
	to := m.Target
	if familyOf(to) == "" {
		return
	}
	yes, serves, leaves := true, to.Serves, !to.Pod.DeletionTimestamp.IsZero()
	endpoint := discoveryv1.Endpoint{
		Addresses: endpoints.AddressesOf(to.Pod, slice.AddressType)[:1],
		// ready is true because the Service publishes addresses that are not ready
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &serves, Terminating: &leaves},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: to.Pod.Namespace, Name: to.Pod.Name, UID: to.Pod.UID},
	}
	if node := to.Pod.Spec.NodeName; node != "" {
		endpoint.NodeName = &node
	}
	slice.Endpoints, slice.Ports = []discoveryv1.Endpoint{endpoint}, to.Ports
}

// portsOfPod returns the named ports of a Pod that is no requester.
func portsOfPod(pod *corev1.Pod) (ports []discoveryv1.EndpointPort) {
	for _, c := range pod.Spec.Containers {
		for _, has := range c.Ports {
			if has.Name != "" {
				ports = append(ports, portOf(has.Name, has.ContainerPort, has.Protocol))
			}
		}
	}
	return ports
}

// instancePort is the name of the port at which an instance answers.
const instancePort = "http"

func portOf(name string, number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol}
}
