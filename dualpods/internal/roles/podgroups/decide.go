package podgroups

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision about one ModelServing.
type World struct {
	Serving    *v1alpha1.ModelServing
	Wanted     []groups.WantedGroup
	Has        []*volcano.PodGroup // that have the names of its groups, or that it controls
	Definition                     // of PodGroups
	Kubernetes *Kubernetes         // about PodGroups of Kubernetes
}

// Action is a write.
type Action string

// The actions. The empty Action writes nothing.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
)

// Step is what a row says about a PodGroup.
type Step struct {
	Row    string
	Name   string // of the group
	Do     Action
	Object client.Object
	Pods   []*corev1.Pod // are deleted
	// Labelled means that the PodGroup was there without its labels, and has them again.
	Labelled bool
	// Reason and Why tell what is in the way; empty: nothing is.
	Reason, Why string
}

// rowLeaves is the row of both tables about a PodGroup that is being deleted.
const rowLeaves = "being deleted"

// rule is a row of the table. fits reports whether the row applies, and then fills the step. of is
// nil for a PodGroup whose group is not wanted, and has is nil for a group without a PodGroup.
type rule struct {
	row  string
	fits func(w *World, of *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool
}

var rows = []rule{
	{"no Volcano", func(w *World, _ *groups.WantedGroup, _ *volcano.PodGroup, s *Step) bool {
		return w.Lacking && s.waits(v1alpha1.ReasonNoVolcano, "the cluster has no podgroups.scheduling.volcano.sh: install Volcano, or set gangScheduler to Gated and remove schedulerName")
	}},
	{"name taken", func(w *World, _ *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool {
		return has != nil && !metav1.IsControlledBy(has, w.Serving) && s.isTaken()
	}},
	{rowLeaves, func(_ *World, _ *groups.WantedGroup, has *volcano.PodGroup, _ *Step) bool {
		return has != nil && !has.DeletionTimestamp.IsZero()
	}},
	{"surplus", func(_ *World, of *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool {
		return of == nil && s.writes(Delete, has)
	}},
	{"not listed", func(_ *World, of *groups.WantedGroup, _ *volcano.PodGroup, _ *Step) bool { return of.Status == nil }},
	{"create", func(w *World, of *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool {
		return has == nil && s.writes(Create, newPodGroup(w.Serving, of, w.Subgroups))
	}},
	{"unchanged", func(w *World, of *groups.WantedGroup, has *volcano.PodGroup, _ *Step) bool {
		return equality.Semantic.DeepEqual(has, w.changed(of, has))
	}},
	{"placed", func(_ *World, of *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool {
		same := has.Annotations[podmeta.LabelServingRevision] == of.Status.Revision
		fits := int(has.Spec.MinMember) <= podsOf(of) // else Volcano would schedule none of them
		return same && fits && has.Status.Phase == volcano.PodGroupRunning && s.waits(v1alpha1.ReasonPodGroupKept, "group "+of.Name+" keeps the minimum that it got its nodes with until it is created again")
	}},
	{"change", func(w *World, of *groups.WantedGroup, has *volcano.PodGroup, s *Step) bool {
		return s.writes(Change, w.changed(of, has))
	}},
}

// Decide decides about Volcano's PodGroups of a ModelServing by the table in spec/roles.md. There are no
// steps for a ModelServing that is being deleted: Kubernetes deletes its PodGroups.
func Decide(w *World) (steps []*Step) {
	if !w.Serving.DeletionTimestamp.IsZero() {
		return nil
	}
	left := map[string]*volcano.PodGroup{}
	for _, has := range w.Has {
		left[has.Name] = has
	}
	if w.Serving.Spec.UsesVolcano() {
		for i := range w.Wanted {
			of := &w.Wanted[i]
			steps = append(steps, w.firstOf(of.Name, of, left[of.Name]))
			delete(left, of.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if metav1.IsControlledBy(left[name], w.Serving) { // a surplus one of others is not ours
			steps = append(steps, w.firstOf(name, nil, left[name]))
		}
	}
	return steps
}

func (w *World) firstOf(name string, of *groups.WantedGroup, has *volcano.PodGroup) *Step {
	for _, r := range rows {
		s := &Step{Row: r.row, Name: name}
		if r.fits(w, of, has, s) {
			return s
		}
	}
	panic("the last row always fits")
}

// changed returns a PodGroup as it should be. Fields that this package does not write stay.
func (w *World) changed(of *groups.WantedGroup, has *volcano.PodGroup) *volcano.PodGroup {
	is, should := has.DeepCopy(), newPodGroup(w.Serving, of, w.Subgroups)
	for key, value := range should.Labels {
		metav1.SetMetaDataLabel(&is.ObjectMeta, key, value)
	}
	for key, value := range should.Annotations {
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, key, value)
	}
	should.Spec.PriorityClassName = is.Spec.PriorityClassName
	if should.Spec.Queue == "" {
		should.Spec.Queue = is.Spec.Queue // the API server sets it
	}
	is.Spec = should.Spec
	return is
}

// waits says what is in the way. It returns true.
func (s *Step) waits(reason, why string) bool {
	s.Reason, s.Why = reason, why
	return true
}

// isTaken says that another object has the name. It returns true.
func (s *Step) isTaken() bool {
	return s.waits(v1alpha1.ReasonNameTaken, fmt.Sprintf("PodGroup %s exists and was not created for this ModelServing: delete it, or give the ModelServing another name", s.Name))
}

// writes says what the row does. It returns true.
func (s *Step) writes(do Action, o client.Object) bool {
	s.Do, s.Object = do, o
	return true
}
