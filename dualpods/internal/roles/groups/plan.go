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
	ordinals  [][]int                        // of the replicas, by role; nil: the lowest ones
	older     map[string]*plan               // of replicas that have another revision, by role-id
	follows   bool                           // Pods that stay get the label of the revision
	places    []place                        // of one whose template cannot be read: where there are Pods; else nil
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

// planOf reads a ControllerRevision; nil: it cannot be read.
func planOf(serving *v1alpha1.ModelServing, r *appsv1.ControllerRevision, image string) *plan {
	template, revision := readRevision(serving, r)
	if template == nil {
		return nil
	}
	p, problems := newPlan(revision, template, image)
	if len(problems) > 0 {
		return nil
	}
	return p
}

// readRevision returns the template of a ControllerRevision, and its name; nil: it cannot be read, or
// the name and the label are not those of what it has. A role whose number of replicas it does not
// have gets the present one.
func readRevision(serving *v1alpha1.ModelServing, r *appsv1.ControllerRevision) (template *v1alpha1.ServingGroupTemplate, revision string) {
	template, revision = &v1alpha1.ServingGroupTemplate{}, r.Labels[podmeta.LabelServingRevision]
	if !isRevision(serving, r) || !json.Valid(r.Data.Raw) || revision != hash(canonical(json.RawMessage(r.Data.Raw))) || json.Unmarshal(r.Data.Raw, template) != nil {
		return nil, ""
	}
	noted := map[string]int32{}
	_ = json.Unmarshal([]byte(r.Annotations[podmeta.AnnotationReplicas]), &noted)
	for i := range template.Roles {
		role := &template.Roles[i]
		if n, ok := noted[role.Name]; ok && n >= 0 && n <= maxReplicas {
			role.Replicas = &n
			continue
		}
		same := func(of v1alpha1.ServingRole) bool { return of.Name == role.Name }
		if at := slices.IndexFunc(serving.Spec.Template.Roles, same); at >= 0 {
			role.Replicas = serving.Spec.Template.Roles[at].Replicas
		}
	}
	return template, revision
}

// maxReplicas is how many replicas a role has at most, as its field says.
const maxReplicas = 1000

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
	w.countReplicas()
	w.standing, w.listed = standingOf(members), byNames(w.Serving.Status.Groups)
	groups := make([]rollout.Group, w.Serving.Spec.Count())
	for ordinal := range groups {
		groups[ordinal] = w.observedGroup(ordinal, members)
	}
	update := w.Serving.Spec.RolloutStrategy.RollingUpdateConfiguration
	current := w.Serving.Status.CurrentRevision
	if w.plans[current] == nil {
		current = ""
	}
	strategy := rollout.Resolve(update.Partition, update.MaxUnavailable, len(groups))
	for ordinal := range groups {
		was := w.changeOf(ordinal)
		groups[ordinal].Changing = was != nil && was.State == v1alpha1.ChangeBegun && was.Revision == w.Revision
		status := w.statusOf(ordinal)
		// A group that runs may have been taken down for an earlier template.
		isTaken := status != nil && status.BeingUpdated && (status.Revision == w.Revision || !groups[ordinal].Runs)
		groups[ordinal].Updating = isTaken || was != nil && was.State != v1alpha1.ChangeUndone
	}
	targets := rollout.Decide(&rollout.World{
		Strategy: strategy,
		Present:  w.Revision, Current: current, Held: len(w.Problems) > 0, Groups: groups,
	})
	w.updated = targets
	w.changes, w.notInPlace = map[int]*groupChange{}, map[int]string{}
	w.scaleGroups(targets, groups, strategy.Partition, members)
}

// planFor returns the plan of a group by its revision. If that cannot be read any more, as if
// somebody had deleted its ControllerRevision, the Pods that there are stay until the group is updated.
func (w *World) planFor(revision string, ordinal int, members map[string]*Member) *plan {
	if p := w.plans[revision]; p != nil {
		return p
	}
	present := w.plans[w.Revision]
	p := &plan{revision: revision, template: present.template, templates: present.templates, places: []place{}}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		m := members[name]
		if m.group == ordinal && m.Pod.Is != nil && m.order >= 0 && m.pod < present.templates[m.order].size {
			p.places = append(p.places, m.place)
		}
	}
	return p
}

// wantedPlaces returns the places of the ModelServing, in the order in which Pods are created.
func (w *World) wantedPlaces() (all []place) {
	for ordinal, of := range w.groups {
		all = append(all, of.placesOf(w.Serving.Name, ordinal)...)
	}
	return all
}

// planOf returns the plan of a place that is wanted.
func (w *World) planOf(p place) *plan { return w.groups[p.group].at(p) }

// templatesOf returns the Pod templates of a place that is wanted.
func (w *World) templatesOf(p place) *templates { return &w.planOf(p).templates[p.order] }

// observedGroup returns what the rollout needs to know of a group.
func (w *World) observedGroup(ordinal int, members map[string]*Member) (g rollout.Group) {
	ready := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		m := members[name]
		if m.group != ordinal || m.Pod.Is == nil || m.podLeaves() {
			continue
		}
		revision := m.Pod.Is.Labels[podmeta.LabelServingRevision]
		if !slices.Contains(g.Revisions, revision) {
			g.Revisions = append(g.Revisions, revision)
		}
		ready[name] = podmeta.Ready(m.Pod.Is)
	}
	switch {
	case len(g.Revisions) == 0:
		g.Runs = w.needsNoPod(ordinal, members)
	case byRole(w.Serving):
		w.observeRoles(&g, ordinal, members)
	case len(g.Revisions) == 1:
		places := w.givenPlaces(w.planFor(g.Revisions[0], ordinal, members), ordinal)
		g.Runs = !slices.ContainsFunc(places, func(p place) bool { return !ready[p.name()] })
	}
	return g
}
