package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/podmeta"
)

var begin = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// requester is one whose program runs, and that the kubelet has not found ready yet. Its UID is
// its name.
func requester(name string, is ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "llama"},
			Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: "llama"}, Finalizers: []string{podmeta.FinalizerRequester},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: podmeta.ServingContainer, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: podmeta.ServingContainer}}},
	}
	notReady(containersNotReady)(pod)
	for _, make := range is {
		make(pod)
	}
	return pod
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == kind {
				c.Status, c.Reason = status, reason
				return
			}
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
	}
}

func notReady(reason string) func(*corev1.Pod) {
	return condition(corev1.PodReady, corev1.ConditionFalse, reason)
}

func isReady(p *corev1.Pod) { condition(corev1.PodReady, corev1.ConditionTrue, "")(p) }

func isDeleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: begin} }

func hasEnded(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func hasGate(kind corev1.PodConditionType) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: kind})
	}
}

// hasContainer gives a Pod another container.
func hasContainer(name string, ready bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: ready})
	}
}

// hasSidecar gives a Pod another container, which runs beside the others.
func hasSidecar(name string, ready bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: name, RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9000, Protocol: corev1.ProtocolTCP}},
		})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, Ready: ready})
	}
}

// runsInSidecar has the requester program run in a sidecar; waits: the other container, which only
// waits, is ready.
func runsInSidecar(waits bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		hasSidecar(podmeta.SidecarContainer, false)(p)
		p.Status.ContainerStatuses[0].Ready = waits
	}
}

func hasInit(p *corev1.Pod) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init"})
	p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "init"})
}

func TestARequesterServesByTheControllersWordAndLaterByThePodsReadiness(t *testing.T) {
	serving := word{serves: true, since: begin}
	unready := word{serves: true, since: begin, unready: true}
	agreed := word{serves: true, since: begin, unready: true, agreed: true}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		word  word
		after time.Duration
		is    bool
		until time.Duration
	}{
		"the kubelet has not looked yet":                             {requester("a"), serving, time.Second, true, settled - time.Second},
		"the kubelet agrees":                                         {requester("a", isReady), serving, time.Second, true, 0},
		"it does not serve, and the kubelet has not noticed yet":     {requester("a", isReady), word{since: begin}, time.Second, false, 0},
		"it does not serve":                                          {requester("a"), word{since: begin}, time.Second, false, 0},
		"the kubelet has not found it ready for long":                {requester("a"), serving, settled, false, 0},
		"the kubelet has found it ready, and then not":               {requester("a"), agreed, time.Second, false, 0},
		"the kubelet tells of an earlier time":                       {requester("a"), unready, time.Second, true, settled - time.Second},
		"our gate is shut as the kubelet saw it last":                {requester("a", hasGate(podmeta.ReadinessGate), notReady(gatesNotReady)), agreed, time.Second, true, settled - time.Second},
		"our gate stays shut":                                        {requester("a", hasGate(podmeta.ReadinessGate), notReady(gatesNotReady)), agreed, settled, false, 0},
		"another gate is shut":                                       {requester("a", hasGate("example.com/lb"), notReady(gatesNotReady)), serving, 0, false, 0},
		"another gate is shut, and the kubelet has not probed yet":   {requester("a", hasGate("example.com/lb")), serving, 0, false, 0},
		"another gate is open":                                       {requester("a", hasGate("example.com/lb"), condition("example.com/lb", corev1.ConditionTrue, "")), serving, 0, true, settled},
		"another container is not ready":                             {requester("a", hasContainer("auth", false)), serving, 0, false, 0},
		"another container is ready":                                 {requester("a", hasContainer("auth", true)), serving, 0, true, settled},
		"a sidecar is not ready":                                     {requester("a", hasSidecar("auth", false)), serving, 0, false, 0},
		"a sidecar is ready":                                         {requester("a", hasSidecar("auth", true)), serving, 0, true, settled},
		"the kubelet has not looked yet at its program in a sidecar": {requester("a", runsInSidecar(true)), serving, 0, true, settled},
		"the container beside its program in a sidecar has ended":    {requester("a", runsInSidecar(false)), serving, 0, false, 0},
		"a container that came before has ended":                     {requester("a", hasInit), serving, 0, true, settled},
		"its node is away, so that somebody else calls it unready":   {requester("a", notReady("")), serving, 0, false, 0},
		"the kubelet ends it":                                        {requester("a", notReady("PodFailed")), serving, 0, false, 0},
		"the kubelet has said nothing of it":                         {requester("a", func(p *corev1.Pod) { p.Status.Conditions = nil }), serving, 0, false, 0},
		"another container is not ready, and the controller says so": {requester("a", hasContainer("auth", false)), word{since: begin}, 0, false, 0},
	} {
		is, until := serves(c.pod, c.word, begin.Add(c.after))
		assert.Equal(t, c.is, is, name)
		assert.Equal(t, c.until, until, name)
	}
}

func TestAgreementIsThatTheKubeletSaysReadyAfterUnready(t *testing.T) {
	w := word{serves: true}
	w.hears(true) // of the time before
	assert.False(t, w.agreed)
	w.hears(false)
	w.hears(false)
	assert.False(t, w.agreed)
	w.hears(true)
	assert.True(t, w.agreed)
	w.hears(false)
	assert.True(t, w.agreed)
}

// service is one that leads to port 8000 of requesters with the label app=llama.
func service(is ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama", UID: "service", Annotations: map[string]string{podmeta.AnnotationEndpoints: "app=llama"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8000)}},
		},
	}
	for _, make := range is {
		make(s)
	}
	return s
}

func publishesAll(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }

func isDual(s *corev1.Service) {
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

func prefers(distribution string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.TrafficDistribution = &distribution }
}

func TestEndpointsSayWhatKubernetesOwnSay(t *testing.T) {
	for name, c := range map[string]struct {
		service                     *corev1.Service
		pod                         *corev1.Pod
		serves                      bool
		none                        bool
		ready, serving, terminating bool
	}{
		"it serves":                           {service: service(), pod: requester("a"), serves: true, ready: true, serving: true},
		"it does not":                         {service: service(), pod: requester("a"), none: true},
		"it serves to its end":                {service: service(), pod: requester("a", isDeleted), serves: true, serving: true, terminating: true},
		"it ends and serves no more":          {service: service(), pod: requester("a", isDeleted), none: true},
		"it has ended":                        {service: service(), pod: requester("a", hasEnded), serves: true, none: true},
		"it has no address":                   {service: service(), pod: requester("a", func(p *corev1.Pod) { p.Status.PodIP = "" }), serves: true, none: true},
		"it does not, and is published":       {service: service(publishesAll), pod: requester("a"), ready: true},
		"it serves, and all are published":    {service: service(publishesAll), pod: requester("a"), serves: true, ready: true, serving: true},
		"it ends, and is published":           {service: service(publishesAll), pod: requester("a", isDeleted), serves: true, ready: true, serving: true, terminating: true},
		"it has ended, and all are published": {service: service(publishesAll), pod: requester("a", hasEnded), serves: true, none: true},
	} {
		got, ok := endpointOf(c.service, &candidate{pod: c.pod, serves: c.serves, zone: "west"}, discoveryv1.AddressTypeIPv4)
		require.Equal(t, !c.none, ok, name)
		if c.none {
			continue
		}
		node, zone := "node-1", "west"
		assert.Equal(t, discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1"}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &c.ready, Serving: &c.serving, Terminating: &c.terminating},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "a", UID: "a"},
		}, got, name)
	}
}

func TestEndpointsHaveTheAddressesOfTheirKind(t *testing.T) {
	pod := requester("a", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00:0::1"}} })
	assert.Equal(t, []string{"10.0.0.1"}, AddressesOf(pod, discoveryv1.AddressTypeIPv4))
	assert.Equal(t, []string{"fd00::1"}, AddressesOf(pod, discoveryv1.AddressTypeIPv6))
	pod.Status.PodIPs = nil
	assert.Equal(t, []string{"10.0.0.1"}, AddressesOf(pod, discoveryv1.AddressTypeIPv4))
	assert.Empty(t, AddressesOf(pod, discoveryv1.AddressTypeIPv6))
}

func TestEndpointsOfAHeadlessServiceHaveTheHostnamesOfTheirPods(t *testing.T) {
	pod := requester("a", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "a", "llama" })
	got, _ := endpointOf(service(), &candidate{pod: pod, serves: true}, discoveryv1.AddressTypeIPv4)
	require.NotNil(t, got.Hostname)
	assert.Equal(t, "a", *got.Hostname)
	pod.Spec.Subdomain = "other"
	got, _ = endpointOf(service(), &candidate{pod: pod, serves: true}, discoveryv1.AddressTypeIPv4)
	assert.Nil(t, got.Hostname)
}

func TestEndpointsHintAtTheNodesThatTheServicePrefers(t *testing.T) {
	zone, node := []discoveryv1.ForZone{{Name: "west"}}, []discoveryv1.ForNode{{Name: "node-1"}}
	for distribution, want := range map[string]*discoveryv1.EndpointHints{
		"":               nil,
		"Other":          nil,
		"PreferClose":    {ForZones: zone},
		"PreferSameZone": {ForZones: zone},
		"PreferSameNode": {ForZones: zone, ForNodes: node},
	} {
		got, _ := endpointOf(service(prefers(distribution)), &candidate{pod: requester("a"), serves: true, zone: "west"}, discoveryv1.AddressTypeIPv4)
		assert.Equal(t, want, got.Hints, distribution)
		got, _ = endpointOf(service(prefers(distribution)), &candidate{pod: requester("a", isDeleted), serves: true, zone: "west"}, discoveryv1.AddressTypeIPv4)
		assert.Nil(t, got.Hints, "%s: one that ends", distribution)
	}
	got, _ := endpointOf(service(prefers("PreferClose")), &candidate{pod: requester("a"), serves: true}, discoveryv1.AddressTypeIPv4)
	assert.Nil(t, got.Hints, "a node without a zone")
}

func TestANamedPortIsThatOfAContainerOfThePod(t *testing.T) {
	named := func(name string, protocol corev1.Protocol) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports[0].TargetPort, s.Spec.Ports[0].Protocol = intstr.FromString(name), protocol
		}
	}
	for name, c := range map[string]struct {
		service *corev1.Service
		want    []int32
		ok      bool
	}{
		"a number":                          {service(), []int32{8000}, true},
		"a name":                            {service(named("http", corev1.ProtocolTCP)), []int32{8000}, true},
		"a name of a sidecar's port":        {service(named("metrics", corev1.ProtocolTCP)), []int32{9000}, true},
		"a name of another protocol":        {service(named("http", corev1.ProtocolUDP)), nil, false},
		"a name that the Pod does not have": {service(named("grpc", corev1.ProtocolTCP)), nil, false},
		"none, as of a headless Service":    {service(func(s *corev1.Service) { s.Spec.Ports = nil }), nil, true},
		"one of two": {service(named("grpc", corev1.ProtocolTCP), func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "second", TargetPort: intstr.FromInt32(8001)})
		}), []int32{8001}, true},
	} {
		ports, ok := portsOf(c.service, requester("a", hasSidecar("proxy", true)))
		assert.Equal(t, c.ok, ok, name)
		var numbers []int32
		for _, p := range ports {
			numbers = append(numbers, *p.Port)
		}
		assert.Equal(t, c.want, numbers, name)
	}
}

func TestAnAnnotationThatCannotBeUsedSaysWhatWouldBeRight(t *testing.T) {
	for annotation, c := range map[string]struct {
		is     func(*corev1.Service)
		reason Reason
		says   string
	}{
		"app=llama":                {nil, "", ""},
		"app in (llama,qwen),!old": {nil, "", ""},
		"app in (llama":            {nil, InvalidSelector, "write one such as app=llama"},
		"":                         {nil, InvalidSelector, "write a label selector such as app=llama"},
		"app=a":                    {func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "a"} }, HasSelector, "remove spec.selector, or the annotation hotseat.dev/endpoints"},
		"app=b":                    {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, HasNoEndpoints, "give it another type"},
	} {
		s := service(func(s *corev1.Service) { s.Annotations[podmeta.AnnotationEndpoints] = annotation })
		if c.is != nil {
			c.is(s)
		}
		selector, bad := selectorOf(s)
		if c.reason == "" {
			assert.Nil(t, bad, annotation)
			assert.NotNil(t, selector, annotation)
			continue
		}
		require.NotNil(t, bad, annotation)
		assert.Equal(t, c.reason, bad.reason, annotation)
		assert.Contains(t, bad.message, c.says, annotation)
	}
}
