package groups

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hotseat.dev/hotseat/dualpods/internal/roles/rollout"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file rolls a template out role by role: of a group, only the Pods of roles whose template has
// changed are replaced.

// roller has what a rollout by roles depends on, besides the Pods of a group.
type roller struct {
	plans   map[string]*plan // by revision
	current string           // the revision that was rolled out last
}

// byRole reports whether templates are rolled out role by role.
func byRole(serving *v1alpha1.ModelServing) bool {
	return serving.Spec.RolloutStrategy.Type == v1alpha1.RoleRollingUpdate
}

// withOlder returns the plan of a group, in which replicas that are not to be replaced yet have the
// plan that their Pods were made from. settled reports whether all Pods are ready, and none is to be
// replaced.
func (of *plan) withOlder(r roller, config *v1alpha1.ModelServing, has standing, group int) (with *plan, settled bool) {
	if of.places != nil {
		return of, false
	}
	copied := *of
	with, settled = &copied, true
	with.older, with.follows = map[string]*plan{}, true
	var all []rolledReplica
	for order := range of.template.Roles {
		rolled, follows := r.roll(of, order, config, has, group)
		all, with.follows = append(all, rolled...), with.follows && follows
	}
	// Labels change before the next replicas are replaced: otherwise no old pair might be left, and no
	// new one be found yet.
	labels := with.follows && slices.ContainsFunc(all, func(p rolledReplica) bool { return p.isLabelled })
	for _, p := range all {
		settled = settled && p.Ready && (!p.Outdated || p.isKept)
		if own := p.own; own != nil && (p.waits || labels && p.Ready && p.Outdated) {
			with.older[p.roleID] = own
		}
	}
	return with, settled
}

// roll decides about the replicas of a role. follows reports whether Pods that stay may get the label
// of the revision: a new replica can serve with them, or no old one can.
func (r roller) roll(of *plan, order int, config *v1alpha1.ModelServing, has standing, group int) (rolled []rolledReplica, follows bool) {
	role := &of.template.Roles[order]
	w := &rollout.RoleWorld{Strategy: strategyOf(config, role), HasOld: r.old(of, role.Name) != nil}
	rolled = r.observe(of, order, has, group)
	newReady, oldReady := false, false
	for _, p := range rolled {
		w.Replicas = append(w.Replicas, p.Replica)
		newReady, oldReady = newReady || p.Ready && !p.Outdated, oldReady || p.Ready && p.Outdated
	}
	for n, target := range rollout.DecideRole(w) {
		rolled[n].waits, rolled[n].isKept = target.Old, n < w.Partition
	}
	return rolled, newReady || !oldReady
}

// rolledReplica is a replica that a group should have.
type rolledReplica struct {
	rollout.Replica
	roleID string
	// own is the plan that its Pods were made from, or are to be made from if it is kept; nil: it
	// cannot be read.
	own        *plan
	waits      bool // it is not to be replaced, or not yet
	isKept     bool // it is one of the first ones, which keep their template
	isLabelled bool // a Pod of it stays, and has the label of another revision
}

// observe returns the replicas of a role.
func (r roller) observe(of *plan, order int, has standing, group int) (all []rolledReplica) {
	role := &of.template.Roles[order]
	for _, ordinal := range of.ordinalsOf(order) {
		p, ready := rolledReplica{roleID: place{role: role.Name, replica: ordinal}.roleID()}, 0
		for _, is := range has[group][role.Name] {
			if is.replica != ordinal {
				continue
			}
			p.IsThere = true
			if podmeta.Ready(is.pod) {
				ready++
			}
			revision := is.pod.Labels[podmeta.LabelServingRevision]
			if !of.isOutdated(order, is.pod.Labels, r.plans) {
				p.isLabelled = p.isLabelled || revision != of.revision
				continue
			}
			p.Outdated = true
			if p.own = r.plans[revision]; p.own != nil && p.own.orderOf(role.Name) < 0 {
				p.own = nil
			}
		}
		size := role.Size()
		if !p.IsThere {
			p.own = r.old(of, role.Name)
		} else if p.own != nil {
			size = p.own.template.Roles[p.own.orderOf(role.Name)].Size()
		}
		p.Ready = ready == size
		all = append(all, p)
	}
	return all
}

// old returns the plan that was rolled out last; nil: it is this one, cannot be read, or does not have
// the role.
func (r roller) old(of *plan, role string) *plan {
	if p := r.plans[r.current]; p != nil && p.revision != of.revision && p.orderOf(role) >= 0 {
		return p
	}
	return nil
}

// isOutdated reports whether a Pod with these labels was made from another template of its role.
func (of *plan) isOutdated(order int, labels map[string]string, plans map[string]*plan) bool {
	if labels[podmeta.LabelRoleTemplateHash] != roleHash(&of.template.Roles[order]) {
		return true
	}
	own := plans[labels[podmeta.LabelServingRevision]]
	return own != nil && !equality.Semantic.DeepEqual(own.template.SubGroupPolicy, of.template.SubGroupPolicy)
}

func (of *plan) orderOf(role string) int {
	return slices.IndexFunc(of.template.Roles, func(r v1alpha1.ServingRole) bool { return r.Name == role })
}

// at returns the plan of a replica.
func (of *plan) at(p place) *plan {
	if older := of.older[p.roleID()]; older != nil {
		return older
	}
	return of
}

// strategyOf returns how a role is rolled out in a group, as the present template says.
func strategyOf(serving *v1alpha1.ModelServing, of *v1alpha1.ServingRole) rollout.Strategy {
	for i := range serving.Spec.Template.Roles {
		if role := &serving.Spec.Template.Roles[i]; role.Name == of.Name && role.RollingUpdateConfiguration != nil {
			return rollout.Resolve(role.RollingUpdateConfiguration.Partition, role.RollingUpdateConfiguration.MaxUnavailable, of.Count())
		}
	}
	return rollout.Resolve(nil, nil, of.Count())
}

func (w *World) roller() roller { return roller{w.plans, w.Serving.Status.CurrentRevision} }

// isOutdated reports whether a Pod is to be replaced by one of another template.
func (w *World) isOutdated(m *Member) bool {
	of, labels := w.planOf(m.place), m.Pod.Is.Labels
	if !byRole(w.Serving) || of.places != nil {
		return labels[podmeta.LabelServingRevision] != of.revision
	}
	return of.isOutdated(m.order, labels, w.plans)
}

// isToFollow reports whether a Pod stays though its group has another revision, and is to get the
// label of that.
func (w *World) isToFollow(m *Member) bool {
	of := w.planOf(m.place)
	return w.groups[m.group].follows && m.Pod.Is.Labels[podmeta.LabelServingRevision] != of.revision
}

// observeRoles says how a group is whose Pods may be of several revisions.
func (w *World) observeRoles(g *rollout.Group, ordinal int, members map[string]*Member) {
	status := w.listed[groupName(w.Serving, ordinal)]
	revision := g.Revisions[0]
	switch {
	case slices.Contains(g.Revisions, w.Revision):
		revision = w.Revision
	case status != nil && slices.Contains(g.Revisions, status.Revision):
		revision = status.Revision
	}
	// The rollout goes by the first one.
	slices.SortFunc(g.Revisions, func(a, b string) int {
		switch revision {
		case a:
			return -1
		case b:
			return 1
		default:
			return 0
		}
	})
	of := w.planFor(revision, ordinal, members)
	of = of.withNumbers(w.numbersOf(of, of.given(status)), w.standing, ordinal)
	_, g.Runs = of.withOlder(w.roller(), w.Serving, w.standing, ordinal)
}

// labelled returns a Pod with the label of the revision of its group.
func (w *World) labelled(m *Member) *corev1.Pod {
	pod := m.Pod.Is.DeepCopy()
	pod.Labels[podmeta.LabelServingRevision] = w.planOf(m.place).revision
	return pod
}

// isRolledOut reports whether all groups have the present template and run, and no replica keeps an
// older one.
func (w *World) isRolledOut(s *v1alpha1.ModelServingStatus) bool {
	hasOlder := func(of *plan) bool { return len(of.older) > 0 }
	return len(s.Groups) > 0 && len(w.Problems) == 0 && int(min(s.UpdatedReplicas, s.ReadyReplicas)) == len(s.Groups) && !slices.ContainsFunc(w.groups, hasOlder)
}
