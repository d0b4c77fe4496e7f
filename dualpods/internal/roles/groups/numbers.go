package groups

import (
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/roles/rollout"
	"hotseat.dev/hotseat/dualpods/internal/roles/scaling"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file decides how many replicas of each role a group has, and which ones.

// standing has the Pods of a ModelServing that stay, by group and by role.
type standing map[int]map[string][]standingPod

type standingPod struct {
	place
	pod *corev1.Pod
}

func (s standing) add(p place, pod *corev1.Pod) {
	if s[p.group] == nil {
		s[p.group] = map[string][]standingPod{}
	}
	s[p.group][p.role] = append(s[p.group][p.role], standingPod{p, pod})
}

// replicas returns the replicas that a group has of a role.
func (s standing) replicas(group int, role *v1alpha1.ServingRole) (all []scaling.Replica) {
	at, ready := map[int]int{}, map[int]int{}
	for _, p := range s[group][role.Name] {
		if p.place.pod >= role.Size() {
			continue
		}
		n, known := at[p.replica]
		if !known {
			n = len(all)
			at[p.replica], all = n, append(all, scaling.Replica{Ordinal: p.replica})
		}
		if podmeta.Ready(p.pod) {
			ready[p.replica]++
		}
		if p.isEntry() {
			all[n].Cost = podmeta.DeletionCost(p.pod)
		}
		all[n].Ready = ready[p.replica] == role.Size()
	}
	return all
}

// standingOf returns the Pods of the members that stay. A Pod that this process has deleted does
// not, although the cache may not show it yet: otherwise another one might be chosen too.
func standingOf(members map[string]*Member) standing {
	s := standing{}
	for _, m := range members {
		if m.Pod.Is != nil && !m.podLeaves() && !m.Removed {
			s.add(m.place, m.Pod.Is)
		}
	}
	return s
}

// withNumbers returns a plan for a group that has these numbers of replicas. The ordinals of the
// replicas follow from the Pods that stay.
func (of *plan) withNumbers(numbers map[string]int, has standing, group int) *plan {
	if of.places != nil {
		return of
	}
	with, template := *of, *of.template
	template.Roles = make([]v1alpha1.ServingRole, len(of.template.Roles))
	with.template, with.ordinals = &template, nil
	for order := range template.Roles {
		role := &template.Roles[order]
		*role = of.template.Roles[order]
		n := int32(numbers[role.Name])
		role.Replicas = &n
		with.ordinals = append(with.ordinals, scaling.Choose(int(n), has.replicas(group, role)))
	}
	return &with
}

// given returns the numbers of replicas that a group of a plan was given, by role; nil: it is a new
// group, or was made from another template.
func (of *plan) given(status *v1alpha1.ServingGroupStatus) map[string]int {
	if status == nil || status.Revision != of.revision || status.RoleReplicas == nil {
		return nil
	}
	numbers := map[string]int{}
	for i := range of.template.Roles {
		if n, has := status.RoleReplicas[of.template.Roles[i].Name]; has {
			numbers[of.template.Roles[i].Name] = int(n)
		}
	}
	return numbers
}

// wants returns the numbers of replicas that a group of a plan is to have. A group with an older
// template keeps its own, but for a role whose number a RoleScaler has, if the group is kept: no new
// template comes soon. Autoscalers would look at this group, and ask for ever more.
func (w *World) wants(of *plan, given map[string]int, kept bool) map[string]int {
	numbers := map[string]int{}
	for i := range of.template.Roles {
		role := &of.template.Roles[i]
		n, has := given[role.Name]
		present, isPresent := w.Numbers[role.Name]
		switch follows := of.revision == w.Revision || w.isExternal(role.Name) && (kept || !has); {
		case follows && isPresent:
			n = present
		case !has:
			n = role.Count()
		}
		numbers[role.Name] = n
	}
	return numbers
}

// numbersOf returns the numbers of replicas that a group of a plan has, or is to get if it is new.
func (w *World) numbersOf(of *plan, given map[string]int) map[string]int {
	if given == nil {
		return w.wants(of, nil, false)
	}
	return given
}

// needsNoPod reports whether a group without Pods is to have none: all its roles have no replicas.
func (w *World) needsNoPod(ordinal int, members map[string]*Member) bool {
	status, revision := w.listed[groupName(w.Serving, ordinal)], w.Revision
	if status != nil && w.plans[status.Revision] != nil {
		revision = status.Revision
	}
	return len(w.givenPlaces(w.planFor(revision, ordinal, members), ordinal)) == 0
}

// givenPlaces returns the places of a group of a plan, with the numbers of replicas that it was given.
func (w *World) givenPlaces(of *plan, ordinal int) []place {
	given := of.given(w.listed[groupName(w.Serving, ordinal)])
	return of.withNumbers(w.numbersOf(of, given), w.standing, ordinal).placesOf(w.Serving.Name, ordinal)
}

// isExternal reports whether a RoleScaler has the number of replicas of a role.
func (w *World) isExternal(role string) bool {
	r := w.role(role)
	return r != nil && r.IsExternal()
}

// countReplicas says how many replicas of each role are wanted. It does not say so of a role whose RoleScaler
// the cache does not show yet: groups keep the number that they have.
func (w *World) countReplicas() {
	template := &w.Serving.Spec.Template
	numbers := map[string]int{}
	for i := range template.Roles {
		role := &template.Roles[i]
		numbers[role.Name] = role.Count()
	}
	for _, s := range w.Scalers {
		if s.Wanted && s.Is != nil {
			numbers[s.Role] = min(max(int(s.Is.Spec.Replicas), 0), maxReplicas)
		}
	}
	w.Numbers, w.Limited = ratioOf(template.RatioConstraint).Bound(numbers)
	for _, s := range w.Scalers {
		if s.Wanted && s.Is == nil && s.Unheard { // the ModelServing may have another number by now
			delete(w.Numbers, s.Role)
		}
	}
}

func ratioOf(c *v1alpha1.RatioConstraint) *scaling.Ratio {
	if c == nil {
		return nil
	}
	percent := func(n *int32) int {
		if n == nil {
			return 100
		}
		return int(*n)
	}
	return &scaling.Ratio{
		NumeratorRole: c.NumeratorRole, DenominatorRole: c.DenominatorRole,
		Numerator: max(int(c.Numerator), 1), Denominator: max(int(c.Denominator), 1), Min: percent(c.Min), Max: percent(c.Max),
	}
}

// scaleGroups decides about the numbers of replicas of groups whose revisions were decided.
func (w *World) scaleGroups(targets []rollout.Target, observed []rollout.Group, partition int, members map[string]*Member) {
	plans, groups := make([]*plan, len(targets)), make([]scaling.Group, len(targets))
	heldUp := failedChange(w, w.Serving.Status.Groups) != nil
	for ordinal, target := range targets {
		of := w.planInPlace(target.Revision, ordinal, &observed[ordinal], members)
		status := w.listed[groupName(w.Serving, ordinal)]
		given := of.given(status)
		plans[ordinal] = of
		wants := w.wants(of, given, (ordinal < partition || heldUp) && !w.changesModels(ordinal))
		groups[ordinal] = scaling.Group{Has: given, Wants: wants, Runs: observed[ordinal].Runs}
		if status != nil {
			groups[ordinal].Scales, groups[ordinal].Grown = status.BeingScaled, status.Grown
		}
	}
	w.groups, w.scaled = nil, scaling.Decide(groups)
	for ordinal, target := range w.scaled {
		of := plans[ordinal].withNumbers(target.Numbers, w.standing, ordinal)
		if byRole(w.Serving) {
			of, _ = of.withOlder(w.roller(), w.Serving, w.standing, ordinal)
		}
		w.groups = append(w.groups, of)
	}
}

// byNames returns groups by their names.
func byNames(groups []v1alpha1.ServingGroupStatus) map[string]*v1alpha1.ServingGroupStatus {
	all := make(map[string]*v1alpha1.ServingGroupStatus, len(groups))
	for i := range groups {
		all[groups[i].Name] = &groups[i]
	}
	return all
}

func groupName(serving *v1alpha1.ModelServing, ordinal int) string {
	return place{serving: serving.Name, group: ordinal}.groupName()
}

// awaitsTurn returns the reason for which a ModelServing is progressing though all groups may run: a
// group is yet to get other numbers of replicas. Empty: none is.
func (w *World) awaitsTurn() string {
	for _, target := range w.scaled {
		if target.Row == scaling.Waits {
			return v1alpha1.ReasonScaling
		}
	}
	return ""
}

// noteNumbers writes to the status of a group how many replicas it has. A group that takes its turn
// is Scaling until it runs.
func (w *World) noteNumbers(g *v1alpha1.ServingGroupStatus, ordinal int) {
	if ordinal >= len(w.scaled) {
		return
	}
	target := w.scaled[ordinal]
	g.RoleReplicas = map[string]int32{}
	for role, n := range target.Numbers {
		g.RoleReplicas[role] = int32(n)
	}
	g.BeingScaled = target.Scales && g.State != v1alpha1.GroupRunning
	g.Grown = target.Grown && g.State != v1alpha1.GroupRunning
	g.BeingUpdated = w.updated[ordinal].Updating
	if g.BeingScaled && g.State == v1alpha1.GroupProgressing {
		g.State = v1alpha1.GroupScaling
	}
}
