package groups

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// place is where in a ModelServing an entry Pod is.
type place struct {
	serving string // name of the ModelServing
	group   int
	role    string
	order   int // of the role in the template; -1: the template does not have the role
	replica int
}

// name is the name of the entry Pod, and of its Service.
func (p place) name() string { return fmt.Sprintf("%s-%s-0", p.groupName(), p.roleID()) }

func (p place) groupName() string { return fmt.Sprintf("%s-%d", p.serving, p.group) }

func (p place) roleID() string { return fmt.Sprintf("%s-%d", p.role, p.replica) }

// address is the DNS name of the entry's Service.
func (p place) address(namespace string) string { return p.name() + "." + namespace + ".svc" }

// labels are those of the entry's Pod, Service and EndpointSlice.
func (p place) labels() map[string]string {
	return map[string]string{
		podmeta.LabelServing: p.serving, podmeta.LabelServingGroup: p.groupName(), podmeta.LabelServingRole: p.role,
		podmeta.LabelServingRoleID: p.roleID(), podmeta.LabelServingEntry: "true", podmeta.LabelManagedBy: podmeta.ManagedBy,
	}
}

// wantedPlaces returns the places of a ModelServing, in the order in which Pods are created.
func wantedPlaces(serving *v1alpha1.ModelServing) (all []place) {
	for group := range serving.Spec.Count() {
		for order := range serving.Spec.Template.Roles {
			role := &serving.Spec.Template.Roles[order]
			for replica := range role.Count() {
				all = append(all, place{serving.Name, group, role.Name, order, replica})
			}
		}
	}
	return all
}

// placeOf reads the place of an entry from the name of its Pod, Service or EndpointSlice. ok is
// false for a name that the controller does not give.
func placeOf(serving *v1alpha1.ModelServing, name string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(name, serving.Name+"-")
	if !ok {
		return p, false
	}
	group, rest, _ := strings.Cut(rest, "-")
	rest, _ = strings.CutSuffix(rest, "-0")
	end := strings.LastIndexByte(rest, '-')
	if end < 0 {
		return p, false
	}
	p = place{serving: serving.Name, role: rest[:end]}
	p.order = slices.IndexFunc(serving.Spec.Template.Roles, func(r v1alpha1.ServingRole) bool { return r.Name == p.role })
	p.group, _ = strconv.Atoi(group)
	p.replica, _ = strconv.Atoi(rest[end+1:])
	return p, p.name() == name
}

// backwards orders places for deletion: the highest group first, in it the last role, and of a
// role the highest replica.
func backwards(a, b place) int {
	return cmp.Or(cmp.Compare(b.group, a.group), cmp.Compare(b.order, a.order), cmp.Compare(b.role, a.role), cmp.Compare(b.replica, a.replica))
}
