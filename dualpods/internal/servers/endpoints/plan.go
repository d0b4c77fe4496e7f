package endpoints

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEndpoints is how many endpoints a slice has at most, as with Kubernetes' own slices.
const maxEndpoints = 100

// plan is what is to be written so that the slices of a Service say who serves.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
}

// group is the endpoints of one kind of address that have the same ports. They have slices of
// their own.
type group struct {
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// planFor compares the slices of a Service with its requesters. It is a pure function. An
// endpoint stays in the slice that it is in, so that a requester that comes or goes changes
// one slice. A slice whose ports nobody has any more is used for others, so that there is no
// moment without them.
func planFor(service *corev1.Service, requesters []candidate, existing []*discoveryv1.EndpointSlice) (p plan) {
	existing = slices.SortedFunc(slices.Values(existing), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	groups := groupsOf(service, requesters)
	taken := map[string]bool{}
	use := func(g *group, so func(*discoveryv1.EndpointSlice) bool) (of []*discoveryv1.EndpointSlice) {
		for _, s := range existing {
			if !taken[s.Name] && s.AddressType == g.family && ownedBy(s, service) && so(s) {
				taken[s.Name] = true
				of = append(of, s)
			}
		}
		return of
	}
	has := make([][]*discoveryv1.EndpointSlice, len(groups))
	for i, g := range groups {
		has[i] = use(g, func(s *discoveryv1.EndpointSlice) bool { return portsKey(s.Ports) == portsKey(g.ports) })
	}
	for i, g := range groups {
		if len(has[i]) == 0 {
			has[i] = use(g, func(*discoveryv1.EndpointSlice) bool { return true })
		}
		p.fill(service, g, has[i])
	}
	for _, s := range existing {
		if !taken[s.Name] {
			p.remove = append(p.remove, s)
		}
	}
	return p
}

// groupsOf sorts the endpoints of a Service by address type and ports.
func groupsOf(service *corev1.Service, requesters []candidate) (groups []*group) {
	for _, family := range families(service) {
		by := map[string]*group{}
		for i := range requesters {
			endpoint, ok := endpointOf(service, &requesters[i], family)
			if !ok {
				continue
			}
			ports, ok := portsOf(service, requesters[i].pod)
			if !ok {
				continue
			}
			key := portsKey(ports)
			if by[key] == nil {
				by[key] = &group{family: family, ports: ports}
				groups = append(groups, by[key])
			}
			by[key].endpoints = append(by[key].endpoints, endpoint)
		}
	}
	return groups
}

// portsKey is the same for the same ports.
func portsKey(ports []discoveryv1.EndpointPort) string {
	if len(ports) == 0 {
		return ""
	}
	key, _ := json.Marshal(ports) // strings and numbers: it cannot fail
	return string(key)
}

// fill puts the endpoints of a group into its slices, and into new ones where these are full.
func (p *plan) fill(service *corev1.Service, g *group, into []*discoveryv1.EndpointSlice) {
	wanted := map[types.UID]discoveryv1.Endpoint{}
	for _, e := range g.endpoints {
		wanted[e.TargetRef.UID] = e
	}
	after := make([]*discoveryv1.EndpointSlice, len(into))
	for i, s := range into {
		after[i] = s.DeepCopy()
		after[i].Labels, after[i].OwnerReferences, after[i].Ports, after[i].Endpoints = labelsOf(service), ownerOf(service), g.ports, nil
		for _, e := range s.Endpoints {
			if now, ok := wanted[uidOf(&e)]; ok {
				after[i].Endpoints = append(after[i].Endpoints, now)
				delete(wanted, uidOf(&e))
			}
		}
	}
	// A slice that is written anyway takes those that come, then the others.
	room := slices.SortedStableFunc(slices.Values(after), func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Compare(unchanged(a, into), unchanged(b, into))
	})
	for _, e := range g.endpoints {
		if _, left := wanted[e.TargetRef.UID]; !left {
			continue
		}
		i := slices.IndexFunc(room, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) < maxEndpoints })
		if i < 0 {
			added := newSlice(service, g)
			p.create, room, i = append(p.create, added), append(room, added), len(room)
		}
		room[i].Endpoints = append(room[i].Endpoints, e)
		delete(wanted, e.TargetRef.UID)
	}
	for i, s := range after {
		switch {
		case len(s.Endpoints) == 0:
			p.remove = append(p.remove, into[i])
		case unchanged(s, into) == 0:
			p.update = append(p.update, s)
		}
	}
}

// unchanged is 1 for a slice that is as it was.
func unchanged(s *discoveryv1.EndpointSlice, before []*discoveryv1.EndpointSlice) int {
	was := slices.IndexFunc(before, func(b *discoveryv1.EndpointSlice) bool { return b.Name == s.Name })
	if equality.Semantic.DeepEqual(s, before[was]) {
		return 1
	}
	return 0
}

func newSlice(service *corev1.Service, g *group) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, GenerateName: service.Name + "-", Labels: labelsOf(service), OwnerReferences: ownerOf(service),
		},
		AddressType: g.family, Ports: g.ports,
	}
}

// uidOf returns the requester of an endpoint.
func uidOf(e *discoveryv1.Endpoint) types.UID {
	if e.TargetRef == nil {
		return ""
	}
	return e.TargetRef.UID
}

// leadsTo returns the requesters that slices lead new connections to, with their nodes. Others
// may have their addresses published by publishNotReadyAddresses.
func leadsTo(all []*discoveryv1.EndpointSlice) map[types.UID]string {
	to := map[types.UID]string{}
	for _, s := range all {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if is(e.Conditions.Serving) && !is(e.Conditions.Terminating) && uidOf(e) != "" {
				to[uidOf(e)] = ""
				if e.NodeName != nil {
					to[uidOf(e)] = *e.NodeName
				}
			}
		}
	}
	return to
}

func is(condition *bool) bool { return condition != nil && *condition }
