package groups

import (
	"encoding/json"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"hotseat.dev/hotseat/dualpods/internal/roles/rollout"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// plan is what the groups of a revision consist of.
type plan struct {
	revision  string
	template  *v1alpha1.ServingGroupTemplate // with the numbers of replicas
	templates []templates                    // of Pods, by role
}

// newPlan reads a template, and says what is wrong with it. image has the requester program.
func newPlan(revision string, template *v1alpha1.ServingGroupTemplate, image string) (*plan, []podmeta.Problem) {
	p := &plan{revision: revision, template: template}
	var problems []podmeta.Problem
	for i := range template.Roles {
		made, wrong := templatesOf(&template.Roles[i], image)
		p.templates, problems = append(p.templates, made), append(problems, wrong...)
	}
	return p, problems
}

// planOf reads a ControllerRevision; nil: it cannot be read, as if somebody had made it the
// ModelServing's.
func planOf(r *appsv1.ControllerRevision, image string) *plan {
	var template v1alpha1.ServingGroupTemplate
	if json.Unmarshal(r.Data.Raw, &template) != nil {
		return nil
	}
	revision := r.Labels[podmeta.LabelServingRevision]
	if revision != hash(content(&template)) {
		return nil
	}
	replicas := map[string]int32{}
	_ = json.Unmarshal([]byte(r.Annotations[podmeta.AnnotationReplicas]), &replicas) // else each role has one
	for i := range template.Roles {
		if n, ok := replicas[template.Roles[i].Name]; ok {
			template.Roles[i].Replicas = &n
		}
	}
	p, problems := newPlan(revision, &template, image)
	if len(problems) > 0 {
		return nil
	}
	return p
}

// replicasOf returns the value of AnnotationReplicas for a template.
func replicasOf(template *v1alpha1.ServingGroupTemplate) string {
	replicas := map[string]int{}
	for i := range template.Roles {
		replicas[template.Roles[i].Name] = template.Roles[i].Count()
	}
	text, err := json.Marshal(replicas)
	if err != nil {
		panic(err) // a map of numbers can be written
	}
	return string(text)
}

// chooseRevisions decides which revision each group has, by its present Pods.
func (w *World) chooseRevisions(members map[string]*Member) {
	groups := make([]rollout.Group, w.Serving.Spec.Count())
	for ordinal := range groups {
		groups[ordinal] = w.observedGroup(ordinal, members)
	}
	update := w.Serving.Spec.RolloutStrategy.RollingUpdateConfiguration
	current := w.Serving.Status.CurrentRevision
	if w.plans[current] == nil {
		current = ""
	}
	targets := rollout.Decide(&rollout.World{
		Strategy: rollout.Resolve(update.Partition, update.MaxUnavailable, len(groups)),
		Present:  w.Revision, Current: current, Held: len(w.Problems) > 0, Groups: groups,
	})
	w.groups = nil
	for _, target := range targets {
		w.groups = append(w.groups, w.plans[target.Revision])
	}
}

// wantedPlaces returns the places of the ModelServing, in the order in which Pods are created.
func (w *World) wantedPlaces() (all []place) {
	for ordinal, of := range w.groups {
		all = append(all, of.placesOf(w.Serving.Name, ordinal)...)
	}
	return all
}

// planOf returns the plan of a place that is wanted.
func (w *World) planOf(p place) *plan { return w.groups[p.group] }

// templatesOf returns the Pod templates of a place that is wanted.
func (w *World) templatesOf(p place) *templates { return &w.planOf(p).templates[p.order] }

// observedGroup returns what the rollout needs to know of a group. Pods whose revision nobody can
// read any more count for nothing: they are replaced.
func (w *World) observedGroup(ordinal int, members map[string]*Member) (g rollout.Group) {
	ready := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		m := members[name]
		if m.group != ordinal || m.Pod.Is == nil || m.podLeaves() {
			continue
		}
		revision := m.Pod.Is.Labels[podmeta.LabelServingRevision]
		if w.plans[revision] != nil && !slices.Contains(g.Revisions, revision) {
			g.Revisions = append(g.Revisions, revision)
		}
		ready[name] = podmeta.Ready(m.Pod.Is)
	}
	if len(g.Revisions) == 1 {
		places := w.plans[g.Revisions[0]].placesOf(w.Serving.Name, ordinal)
		g.Runs = !slices.ContainsFunc(places, func(p place) bool { return !ready[p.name()] })
	}
	return g
}
