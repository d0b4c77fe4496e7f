package groups

import (
	appsv1 "k8s.io/api/apps/v1"

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
	Pods []string              // names, the entry first
}

// WantedGroups returns the groups that a ModelServing should have, each by the revision that the
// status names. revisions are the ControllerRevisions of the ModelServing.
func WantedGroups(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision) []WantedGroup {
	present := hash(content(&serving.Spec.Template))
	plans := map[string]*plan{}
	for i := range revisions {
		if template, revision := readRevision(serving, &revisions[i]); template != nil {
			plans[revision] = &plan{template: template}
		}
	}
	plans[present] = &plan{template: &serving.Spec.Template}
	plans[""] = plans[present] // nothing was said of revisions yet
	listed := map[string]*v1alpha1.ServingGroupStatus{}
	for i := range serving.Status.Groups {
		listed[serving.Status.Groups[i].Name] = &serving.Status.Groups[i]
	}
	all := make([]WantedGroup, serving.Spec.Count())
	for ordinal := range all {
		g := &all[ordinal]
		g.Ordinal, g.Name = ordinal, place{serving: serving.Name, group: ordinal}.groupName()
		if status := listed[g.Name]; status != nil && plans[status.Revision] != nil {
			g.Status, g.Replicas = status, plans[status.Revision].wantedReplicas(serving.Name, ordinal)
		}
	}
	return all
}

// wantedReplicas returns the replicas of a group.
func (of *plan) wantedReplicas(serving string, group int) (all []WantedReplica) {
	for _, p := range of.placesOf(serving, group) {
		if p.isEntry() {
			all = append(all, WantedReplica{Role: &of.template.Roles[p.order]})
		}
		last := &all[len(all)-1]
		last.Pods = append(last.Pods, p.name())
	}
	return all
}
