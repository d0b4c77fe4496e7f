package groups

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/roles/scaling"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// place is where in a ModelServing a Pod is.
type place struct {
	serving string // name of the ModelServing
	group   int
	role    string
	order   int // of the role in the template; -1: the template does not have the role
	replica int
	pod     int // of the replica; 0: the entry
}

// name is the name of the Pod, and of its Service if it has one.
func (p place) name() string { return fmt.Sprintf("%s-%s-%d", p.groupName(), p.roleID(), p.pod) }

func (p place) isEntry() bool { return p.pod == 0 }

// entry is the place of the entry.
func (p place) entry() place {
	p.pod = 0
	return p
}

func (p place) groupName() string { return fmt.Sprintf("%s-%d", p.serving, p.group) }

func (p place) roleID() string { return fmt.Sprintf("%s-%d", p.role, p.replica) }

// address is the DNS name of the Pod's Service.
func (p place) address(namespace string) string { return p.name() + "." + namespace + ".svc" }

// labels are those of the Pod, and of an entry's Service and EndpointSlice.
func (p place) labels() map[string]string {
	all := map[string]string{
		podmeta.LabelServing: p.serving, podmeta.LabelServingGroup: p.groupName(), podmeta.LabelServingRole: p.role,
		podmeta.LabelServingRoleID: p.roleID(), podmeta.LabelManagedBy: podmeta.ManagedBy,
	}
	if p.isEntry() {
		all[podmeta.LabelServingEntry] = "true"
	}
	return all
}

// placesOf returns the places of a group, in the order in which Pods are created.
func (of *plan) placesOf(serving string, group int) (all []place) {
	if of.places != nil {
		return of.places
	}
	for order := range of.template.Roles {
		for _, replica := range of.ordinalsOf(order) {
			p := place{serving, group, of.template.Roles[order].Name, order, replica, 0}
			if own := of.at(p); own != of {
				p.order = own.orderOf(p.role)
			}
			for p.pod = range of.at(p).template.Roles[p.order].Size() {
				all = append(all, p)
			}
		}
	}
	return all
}

// ordinalsOf returns the ordinals of the replicas of a role.
func (of *plan) ordinalsOf(order int) []int {
	if of.ordinals != nil {
		return of.ordinals[order]
	}
	return scaling.Choose(of.template.Roles[order].Count(), nil)
}

// placeOf reads a place from the name of a Pod, Service or EndpointSlice. ok is false for a name
// that the controller does not give.
func placeOf(serving *v1alpha1.ModelServing, name string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(name, serving.Name+"-")
	if !ok {
		return p, false
	}
	group, rest, _ := strings.Cut(rest, "-")
	rest, pod := cutNumber(rest)
	p = place{serving: serving.Name, pod: pod}
	p.role, p.replica = cutNumber(rest)
	p.order = slices.IndexFunc(serving.Spec.Template.Roles, func(r v1alpha1.ServingRole) bool { return r.Name == p.role })
	p.group, _ = strconv.Atoi(group)
	return p, p.name() == name
}

// cutNumber cuts the number behind the last hyphen off a name.
func cutNumber(name string) (before string, number int) {
	end := max(strings.LastIndexByte(name, '-'), 0)
	number, _ = strconv.Atoi(strings.TrimPrefix(name[end:], "-"))
	return name[:end], number
}

// backwards orders places for deletion: the highest group first, in it the last role, of a role
// the highest replica, and of that the highest Pod.
func backwards(a, b place) int {
	return cmp.Or(cmp.Compare(b.group, a.group), cmp.Compare(b.order, a.order), cmp.Compare(b.role, a.role), cmp.Compare(b.replica, a.replica), cmp.Compare(b.pod, a.pod))
}
