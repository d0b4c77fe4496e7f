package endpoints

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/podmeta"
)

// word is what binding says of a requester, and what the kubelet has said since.
type word struct {
	serves  bool // its model is awake, and its program is ready and forwards traffic to it
	since   time.Time
	unready bool // since then the kubelet has said that the Pod is not ready,
	agreed  bool // and then that it is
}

// hears takes in whether the kubelet says that the Pod is ready.
func (w *word) hears(ready bool) {
	switch {
	case !ready:
		w.unready = true
	case w.unready:
		w.agreed = true
	}
}

// settled is how long the controller's word that a requester serves counts for more than the
// Pod's readiness. The kubelet has looked by then.
const settled = time.Minute

// The kubelet's reasons for the condition Ready of a Pod that is not ready
// (k8s.io/kubernetes/pkg/kubelet/status).
const (
	containersNotReady = "ContainersNotReady"
	gatesNotReady      = "ReadinessGatesNotReady"
)

// serves reports whether a requester serves. until is for how long that is so although the
// Pod is not ready; 0: nothing but an event changes it.
//
// What the kubelet says late is left out: it probes the requester program, and reads our
// readiness gate, once a second or less. All else that keeps a Pod from being ready counts: its
// other containers, other gates, a node that is away. If the kubelet has said that the Pod is
// ready, and then that its containers are not, that counts too.
func serves(pod *corev1.Pod, w word, now time.Time) (is bool, until time.Duration) {
	if !w.serves || podmeta.Ready(pod) {
		return w.serves, 0
	}
	until = settled - now.Sub(w.since)
	if until <= 0 {
		return false, 0
	}
	switch notReadyFor(pod) {
	case containersNotReady:
		is = !w.agreed && othersReady(pod) && otherGatesOpen(pod)
	case gatesNotReady:
		is = otherGatesOpen(pod)
	}
	if !is {
		return false, 0
	}
	return true, until
}

// notReadyFor returns the kubelet's reason why a Pod is not ready.
func notReadyFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Reason
		}
	}
	return ""
}

// othersReady reports whether all containers are ready but that of the requester program.
func othersReady(pod *corev1.Pod) bool {
	program := podmeta.ProgramOf(pod).Name
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != program && !s.Ready {
			return false
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == program || !sidecar(&c) {
			continue
		}
		for _, s := range pod.Status.InitContainerStatuses {
			if s.Name == c.Name && !s.Ready {
				return false
			}
		}
	}
	return true
}

// otherGatesOpen reports whether all readiness gates of a Pod are open but ours.
func otherGatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		open := func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}
		if gate.ConditionType != podmeta.ReadinessGate && !slices.ContainsFunc(pod.Status.Conditions, open) {
			return false
		}
	}
	return true
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// candidate is a requester that the selector of a Service matches.
type candidate struct {
	pod    *corev1.Pod
	zone   string // of its node; empty: unknown
	serves bool
}

// endpointOf returns the endpoint of a requester for one kind of address. ok is false where
// it has none: the Pod has no such address, or it does not serve, and the Service does not
// publish the addresses of Pods that are not ready.
func endpointOf(service *corev1.Service, c *candidate, family discoveryv1.AddressType) (endpoint discoveryv1.Endpoint, ok bool) {
	all := service.Spec.PublishNotReadyAddresses
	addresses := AddressesOf(c.pod, family)
	if len(addresses) == 0 || podmeta.Finished(c.pod) || !c.serves && !all {
		return endpoint, false
	}
	serving, terminating := c.serves, c.pod.DeletionTimestamp != nil
	ready := all || serving && !terminating
	endpoint = discoveryv1.Endpoint{
		Addresses:  addresses,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID},
	}
	if node := c.pod.Spec.NodeName; node != "" {
		endpoint.NodeName = &node
	}
	if zone := c.zone; zone != "" {
		endpoint.Zone = &zone
	}
	if name := c.pod.Spec.Hostname; name != "" && c.pod.Spec.Subdomain == service.Name {
		endpoint.Hostname = &name
	}
	if ready {
		endpoint.Hints = hintsFor(service, &endpoint)
	}
	return endpoint, true
}

// hintsFor returns by which nodes an endpoint is to be used, as spec.trafficDistribution asks.
func hintsFor(service *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	var asked string
	if d := service.Spec.TrafficDistribution; d != nil {
		asked = *d
	}
	var hints discoveryv1.EndpointHints
	switch asked {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if e.NodeName != nil {
			hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferClose:
	default:
		return nil
	}
	if e.Zone != nil {
		hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if len(hints.ForZones)+len(hints.ForNodes) == 0 {
		return nil
	}
	return &hints
}

// AddressesOf returns the addresses of a Pod of one kind.
func AddressesOf(pod *corev1.Pod, family discoveryv1.AddressType) (addresses []string) {
	ips := pod.Status.PodIPs
	if len(ips) == 0 {
		ips = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
	for _, ip := range ips {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil || address.Is4() != (family == discoveryv1.AddressTypeIPv4) {
			continue
		}
		addresses = append(addresses, address.String())
	}
	return addresses
}

// portsOf returns the ports of a requester that a Service leads to. It leaves out named ports
// that the Pod does not have. ok is false where the Service has ports, and none is left.
func portsOf(service *corev1.Service, pod *corev1.Pod) (ports []discoveryv1.EndpointPort, ok bool) {
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		number, found := portOf(pod, p)
		if !found {
			continue
		}
		name, protocol := p.Name, p.Protocol
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	return ports, len(ports) > 0 || len(service.Spec.Ports) == 0
}

func portOf(pod *corev1.Pod, p *corev1.ServicePort) (number int32, found bool) {
	if p.TargetPort.Type == intstr.Int {
		return p.TargetPort.IntVal, true
	}
	running := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if sidecar(&c) {
			running = append(running, c)
		}
	}
	for _, c := range running {
		for _, has := range c.Ports {
			if has.Name == p.TargetPort.StrVal && has.Protocol == p.Protocol {
				return has.ContainerPort, true
			}
		}
	}
	return 0, false
}
