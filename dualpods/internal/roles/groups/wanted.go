package groups

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// WantedGroup is a group that a ModelServing should have.
type WantedGroup struct {
	Name     string
	Ordinal  int
	Replicas []WantedReplica
	// Status is what the ModelServing says of the group; nil: nothing yet, or its revision cannot
	// be read. Then it has no Replicas.
	Status *v1alpha1.ServingGroupStatus
}

// WantedReplica is a replica of a role.
type WantedReplica struct {
	Role *v1alpha1.ServingRole // as the revision of the group has it
	ID   string                // such as prefill-0
	Pods []string              // names, the entry first
}

// WantedGroups returns the groups that a ModelServing should have, each by the revision and the
// numbers of replicas that the status has. revisions are the ControllerRevisions of the
// ModelServing, and pods its Pods.
func WantedGroups(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision, pods []corev1.Pod) []WantedGroup {
	return (&Memory{}).WantedGroups(serving, revisions, pods)
}

// readPlans reads the templates of a ModelServing and of its ControllerRevisions. A ControllerRevision that
// cannot be read is left out.
func readPlans(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision) map[string]*plan {
	present := hash(content(&serving.Spec.Template))
	plans := map[string]*plan{}
	for i := range revisions {
		if template, revision := readRevision(serving, &revisions[i]); template != nil {
			plans[revision] = &plan{revision: revision, template: template}
		}
	}
	plans[present] = &plan{revision: present, template: &serving.Spec.Template}
	plans[""] = plans[present] // nothing was said of revisions yet
	return plans
}

// WantedGroups returns what the function [WantedGroups] returns.
func (m *Memory) WantedGroups(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision, pods []corev1.Pod) []WantedGroup {
	plans := m.plansOf(serving, revisions)
	listed, has := byNames(serving.Status.Groups), standing{}
	for i := range pods {
		if p, ours := placeOf(serving, pods[i].Name); ours && metav1.IsControlledBy(&pods[i], serving) && pods[i].DeletionTimestamp.IsZero() {
			has.add(p, &pods[i])
		}
	}
	all := make([]WantedGroup, serving.Spec.Count())
	for ordinal := range all {
		g := &all[ordinal]
		g.Ordinal, g.Name = ordinal, groupName(serving, ordinal)
		if status := listed[g.Name]; status != nil && plans[status.Revision] != nil {
			of := plans[status.Revision]
			numbers := of.given(status)
			if numbers == nil {
				numbers = map[string]int{}
			}
			for i := range of.template.Roles {
				role := &of.template.Roles[i]
				if _, given := numbers[role.Name]; !given {
					numbers[role.Name] = role.Count()
				}
			}
			of = of.withNumbers(numbers, has, ordinal)
			if byRole(serving) {
				of, _ = of.withOlder(roller{plans, serving.Status.CurrentRevision}, serving, has, ordinal)
			}
			g.Status, g.Replicas = status, of.wantedReplicas(serving.Name, ordinal)
		}
	}
	return all
}

// wantedReplicas returns the replicas of a group.
func (of *plan) wantedReplicas(serving string, group int) (all []WantedReplica) {
	for _, p := range of.placesOf(serving, group) {
		if p.isEntry() {
			all = append(all, WantedReplica{Role: &of.at(p).template.Roles[p.order], ID: p.roleID()})
		}
		last := &all[len(all)-1]
		last.Pods = append(last.Pods, p.name())
	}
	return all
}

// Counted divides the replicas of a group, of all its roles, into those that a gang policy counts and the
// others. The replicas of a role that are nearest to having nodes are counted first, and among equals the
// first ones. Without a policy all are counted.
func Counted[R any](policy *v1alpha1.GangPolicy, replicas []R, roleOf func(R) *v1alpha1.ServingRole, distance func(R) int) (counted, extra []R) {
	var roles []*v1alpha1.ServingRole
	byRole := map[string][]R{}
	for _, r := range replicas {
		role := roleOf(r)
		if byRole[role.Name] == nil { // its replicas may be of two templates
			roles = append(roles, role)
		}
		byRole[role.Name] = append(byRole[role.Name], r)
	}
	for _, role := range roles {
		of := byRole[role.Name]
		slices.SortStableFunc(of, func(a, b R) int { return distance(a) - distance(b) })
		n := len(of)
		if policy != nil {
			n = min(n, policy.Counted(role))
		}
		counted, extra = append(counted, of[:n]...), append(extra, of[n:]...)
	}
	return counted, extra
}
