package podgroups

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Kubernetes is the input of a decision about the PodGroups of Kubernetes that a ModelServing has.
type Kubernetes struct {
	Serving *v1alpha1.ModelServing
	Wanted  []groups.WantedGroup
	Pods    map[string]*corev1.Pod // of the ModelServing, by name
	Has     []*scheduling.PodGroup // that have the names of its groups, or that it controls
	Uses    bool                   // the Pods that are created now name their PodGroup
	Lacking bool                   // the cluster has no such PodGroups
}

// kubernetesRule is a row of the table. has is nil for a group without a PodGroup, and g for a
// PodGroup whose group is not wanted or has no members.
type kubernetesRule struct {
	row  string
	fits func(k *Kubernetes, g *members, has *scheduling.PodGroup, s *Step) bool
}

var kubernetesRows = []kubernetesRule{
	{"no PodGroups", func(k *Kubernetes, _ *members, _ *scheduling.PodGroup, s *Step) bool {
		return k.Lacking && s.waits(v1alpha1.ReasonNoPodGroups, "the cluster has no podgroups.scheduling.k8s.io/v1beta1, so the controller removes scheduling gates instead: switch on the feature gate GenericWorkload and this API, or set gangScheduler to Gated")
	}},
	{"name taken", func(k *Kubernetes, _ *members, has *scheduling.PodGroup, s *Step) bool {
		return has != nil && !metav1.IsControlledBy(has, k.Serving) && s.isTaken()
	}},
	{rowLeaves, func(_ *Kubernetes, _ *members, has *scheduling.PodGroup, _ *Step) bool {
		return has != nil && !has.DeletionTimestamp.IsZero()
	}},
	{"surplus", func(_ *Kubernetes, g *members, has *scheduling.PodGroup, s *Step) bool {
		return g == nil && s.writes(Delete, has)
	}},
	{"not listed", func(_ *Kubernetes, g *members, _ *scheduling.PodGroup, _ *Step) bool { return g.of.Status == nil }},
	{"other members", func(_ *Kubernetes, g *members, _ *scheduling.PodGroup, s *Step) bool {
		s.Pods = g.wrong
		return len(g.wrong) > 0 && !g.begun
	}},
	{"create", func(k *Kubernetes, g *members, has *scheduling.PodGroup, s *Step) bool {
		return has == nil && s.writes(Create, k.newPodGroup(g))
	}},
	{"change", func(_ *Kubernetes, g *members, has *scheduling.PodGroup, s *Step) bool {
		changed := has.DeepCopy()
		changed.Spec.SchedulingPolicy.Gang = &scheduling.GangSchedulingPolicy{MinCount: int32(g.count)}
		gang := has.Spec.SchedulingPolicy.Gang
		return (gang == nil || gang.MinCount != int32(g.count)) && s.writes(Change, changed)
	}},
	{"unchanged", func(*Kubernetes, *members, *scheduling.PodGroup, *Step) bool { return true }},
}

// DecideKubernetes decides about the PodGroups of Kubernetes by the table in spec/roles.md. There
// are no steps for a ModelServing that is being deleted.
func DecideKubernetes(k *Kubernetes) (steps []*Step) {
	if !k.Serving.DeletionTimestamp.IsZero() {
		return nil
	}
	if k.Lacking {
		return []*Step{k.firstOf(k.Serving.Name, nil, nil)}
	}
	left := map[string]*scheduling.PodGroup{}
	for _, has := range k.Has {
		left[has.Name] = has
	}
	for i := range k.Wanted {
		of := &k.Wanted[i]
		if g := k.membersOf(of); g.count+len(g.wrong) > 0 || k.Uses && of.Status == nil {
			steps = append(steps, k.firstOf(of.Name, g, left[of.Name]))
			delete(left, of.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if metav1.IsControlledBy(left[name], k.Serving) {
			steps = append(steps, k.firstOf(name, nil, left[name]))
		}
	}
	return steps
}

func (k *Kubernetes) firstOf(name string, g *members, has *scheduling.PodGroup) *Step {
	for _, r := range kubernetesRows {
		s := &Step{Row: r.row, Name: name}
		if r.fits(k, g, has, s) {
			return s
		}
	}
	panic("the last row always fits")
}

// members are the Pods of a group by whether they name its PodGroup. A Pod cannot change that.
type members struct {
	of    *groups.WantedGroup
	count int           // how many Pods name the PodGroup, or will when they are created
	begun bool          // one of them has a node
	wrong []*corev1.Pod // Pods without a node that name it and should not, or the other way round
}

func (k *Kubernetes) membersOf(of *groups.WantedGroup) *members {
	g := &members{of: of}
	for _, r := range of.Replicas {
		counted := k.Uses && groups.IsCounted(k.Serving, r.Role, ordinalOf(r.ID))
		for _, name := range r.Pods {
			pod := k.Pods[name]
			if pod == nil || dualpods.RequesterOf(pod).IsOver() {
				if counted {
					g.count++
				}
				continue
			}
			is := pod.Spec.SchedulingGroup != nil
			if is {
				g.count++
				g.begun = g.begun || pod.Spec.NodeName != ""
			}
			if is != counted && pod.Spec.NodeName == "" && (is || podmeta.AwaitsGang(pod)) {
				g.wrong = append(g.wrong, pod)
			}
		}
	}
	return g
}

// ordinalOf returns the number of a replica, such as 1 of prefill-1.
func ordinalOf(id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		panic(err) // package groups made it of a number
	}
	return n
}

// newPodGroup returns the PodGroup of a group. It has the priority of its first Pod: Kubernetes
// schedules no group whose Pods have another.
func (k *Kubernetes) newPodGroup(g *members) *scheduling.PodGroup {
	group := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Serving.Namespace, Name: g.of.Name,
		Labels:          map[string]string{podmeta.LabelServing: k.Serving.Name, podmeta.LabelServingGroup: g.of.Name, podmeta.LabelManagedBy: podmeta.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(k.Serving, v1alpha1.GroupVersion.WithKind(podmeta.KindServing))},
	}}
	group.Spec.SchedulingPolicy.Gang = &scheduling.GangSchedulingPolicy{MinCount: int32(g.count)}
	for _, r := range g.of.Replicas {
		group.Spec.PriorityClassName = cmp.Or(group.Spec.PriorityClassName, groups.PriorityClass(r.Role))
	}
	return group
}
