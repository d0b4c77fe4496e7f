package endpoints

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/podmeta"
)

func serving(names ...string) (all []candidate) {
	for _, name := range names {
		all = append(all, candidate{pod: requester(name), serves: true})
	}
	return all
}

func many(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("r-%03d", i))
	}
	return names
}

// made gives slices that a plan has made the names that the API server would give them.
func made(p plan) []*discoveryv1.EndpointSlice {
	for i, s := range p.create {
		s.Name = fmt.Sprintf("%s%d", s.GenerateName, i)
		s.UID = "uid-" + s.UID
	}
	return p.create
}

// named are the requesters of a slice, in their order.
func named(s *discoveryv1.EndpointSlice) (names []string) {
	for _, e := range s.Endpoints {
		names = append(names, e.TargetRef.Name)
	}
	return names
}

func TestASliceIsOfItsService(t *testing.T) {
	p := planFor(service(func(s *corev1.Service) {
		s.Labels = map[string]string{"team": "a", discoveryv1.LabelManagedBy: "somebody"}
	}), serving("a", "b"), nil)
	require.Len(t, p.create, 1)
	assert.Empty(t, p.update)
	assert.Empty(t, p.remove)
	s := p.create[0]
	assert.Equal(t, "llama-", s.GenerateName)
	assert.Equal(t, map[string]string{"team": "a", discoveryv1.LabelServiceName: "llama", discoveryv1.LabelManagedBy: podmeta.ManagedByEndpoints}, s.Labels)
	assert.True(t, ours(s))
	assert.True(t, ownedBy(s, service()))
	assert.Nil(t, s.OwnerReferences[0].BlockOwnerDeletion)
	assert.Equal(t, []string{"a", "b"}, named(s))
	require.Len(t, s.Ports, 1)
	assert.Equal(t, []any{"http", int32(8000), corev1.ProtocolTCP}, []any{*s.Ports[0].Name, *s.Ports[0].Port, *s.Ports[0].Protocol})

	headless := planFor(service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), serving("a"), nil).create[0]
	assert.Contains(t, headless.Labels, corev1.IsHeadlessService)
}

func TestWhatIsRightIsLeftAlone(t *testing.T) {
	existing := made(planFor(service(isDual), serving("a", "b"), nil))
	assert.Equal(t, plan{}, planFor(service(isDual), serving("a", "b"), existing))
	assert.Equal(t, plan{}, planFor(service(isDual), serving("b", "a"), existing), "in whatever order they come")
}

func TestASliceHasAHundredEndpointsAtMost(t *testing.T) {
	names := many(2*maxEndpoints + 1)
	existing := made(planFor(service(), serving(names...), nil))
	require.Len(t, existing, 3)
	assert.Len(t, existing[0].Endpoints, maxEndpoints)
	assert.Len(t, existing[2].Endpoints, 1)
	assert.Equal(t, plan{}, planFor(service(), serving(names...), existing))

	p := planFor(service(), serving(names[1:]...), existing)
	require.Len(t, p.update, 1, "one that goes changes one slice")
	assert.Equal(t, existing[0].Name, p.update[0].Name)
	assert.Len(t, p.update[0].Endpoints, maxEndpoints-1)
	assert.Empty(t, p.create)
	assert.Empty(t, p.remove)

	p = planFor(service(), append(serving(names[1:]...), serving("new")...), existing)
	require.Len(t, p.update, 1, "one that comes takes a place in a slice that is changed anyway")
	assert.Contains(t, named(p.update[0]), "new")

	p = planFor(service(), serving(names[:2*maxEndpoints]...), existing)
	require.Len(t, p.remove, 1, "a slice without endpoints goes")
	assert.Equal(t, existing[2].Name, p.remove[0].Name)
	assert.Empty(t, p.update)
}

func TestEachKindOfAddressAndEachSetOfPortsHasSlicesOfItsOwn(t *testing.T) {
	both := requester("both", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}} })
	other := requester("other", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9000 })
	p := planFor(service(isDual, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }),
		[]candidate{{pod: both, serves: true}, {pod: other, serves: true}}, nil)
	got := map[string][]string{}
	for _, s := range p.create {
		got[fmt.Sprint(s.AddressType, *s.Ports[0].Port)] = named(s)
	}
	assert.Equal(t, map[string][]string{"IPv48000": {"both"}, "IPv68000": {"both"}, "IPv49000": {"other"}}, got)
}

func TestAServiceThatChangesItsPortKeepsItsSlice(t *testing.T) {
	existing := made(planFor(service(), serving("a", "b"), nil))
	p := planFor(service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9000) }), serving("a", "b"), existing)
	require.Len(t, p.update, 1)
	assert.Empty(t, p.create)
	assert.Empty(t, p.remove)
	assert.Equal(t, existing[0].Name, p.update[0].Name)
	assert.Equal(t, int32(9000), *p.update[0].Ports[0].Port)
	assert.Equal(t, []string{"a", "b"}, named(p.update[0]))
}

func TestSlicesOfAnEarlierServiceOfTheNameGo(t *testing.T) {
	existing := made(planFor(service(), serving("a"), nil))
	p := planFor(service(func(s *corev1.Service) { s.UID = "another" }), serving("a"), existing)
	assert.Equal(t, existing, p.remove)
	require.Len(t, p.create, 1)
	assert.Empty(t, p.update)
}

func TestAnEndpointThatIsInTwoSlicesIsTakenOutOfOne(t *testing.T) {
	first := made(planFor(service(), serving("a", "b"), nil))[0]
	second := first.DeepCopy()
	second.Name = first.Name + "-again"
	second.Endpoints = append(second.Endpoints, made(planFor(service(), serving("c"), nil))[0].Endpoints...)
	p := planFor(service(), serving("a", "b", "c"), []*discoveryv1.EndpointSlice{second, first})
	require.Len(t, p.update, 1)
	assert.Equal(t, second.Name, p.update[0].Name)
	assert.Equal(t, []string{"c"}, named(p.update[0]))
	assert.Empty(t, p.create)
}

func TestWhatSomebodyElseChangesInASliceIsChangedBack(t *testing.T) {
	right := made(planFor(service(), serving("a"), nil))[0]
	for name, change := range map[string]func(*discoveryv1.EndpointSlice){
		"an endpoint more": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}})
		},
		"another condition": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(bool) },
		"a label":           func(s *discoveryv1.EndpointSlice) { s.Labels["a"] = "b" },
		"an owner more": func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences = append(s.OwnerReferences, s.OwnerReferences[0])
		},
	} {
		wrong := right.DeepCopy()
		change(wrong)
		p := planFor(service(), serving("a"), []*discoveryv1.EndpointSlice{wrong})
		require.Len(t, p.update, 1, name)
		assert.Equal(t, right, p.update[0], name)
	}
}
