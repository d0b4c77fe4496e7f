package podgroups

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sample is a ModelServing whose only group has four replicas of each of two roles, of an entry and
// a worker each, as the status lists it.
func sample(least map[string]int32) *v1alpha1.ModelServing {
	s := &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sample", UID: "sample"}}
	s.Spec.SchedulerName = "volcano"
	for _, name := range []string{"prefill", "decode"} {
		s.Spec.Template.Roles = append(s.Spec.Template.Roles, v1alpha1.ServingRole{Name: name, Replicas: new(int32(4)), WorkerReplicas: new(int32(1)), InferenceServerConfig: "a", GPUs: new(int32(2))})
	}
	if least != nil {
		s.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: least}
	}
	list(s)
	return s
}

// list has the status list the groups.
func list(s *v1alpha1.ModelServing) {
	s.Status.Groups = nil
	for n := range s.Spec.Count() {
		s.Status.Groups = append(s.Status.Groups, v1alpha1.ServingGroupStatus{Name: fmt.Sprintf("%s-%d", s.Name, n), State: v1alpha1.GroupProgressing})
	}
}

func worldOf(s *v1alpha1.ModelServing) *World {
	return &World{Serving: s, Wanted: groups.WantedGroups(s, nil, nil), Definition: Definition{Subgroups: true}}
}

// created returns the PodGroups that are created.
func created(t *testing.T, w *World) (all []*volcano.PodGroup) {
	t.Helper()
	for _, s := range Decide(w) {
		require.Equal(t, Create, s.Do)
		all = append(all, s.Object.(*volcano.PodGroup))
	}
	return all
}

func TestPodGroupCountsThePodsOfTheMinimum(t *testing.T) {
	for name, c := range map[string]struct {
		least map[string]int32
		want  int32
	}{
		"two of each":         {map[string]int32{"prefill": 2, "decode": 2}, 8},
		"no policy":           {nil, 16},
		"two and a single":    {map[string]int32{"prefill": 2, "decode": 1}, 6},
		"a role is not named": {map[string]int32{"prefill": 1}, 10},
		"none of a role":      {map[string]int32{"prefill": 0}, 8},
	} {
		all := created(t, worldOf(sample(c.least)))
		require.Len(t, all, 1, name)
		assert.Equal(t, c.want, all[0].Spec.MinMember, name)
		gpus := (*all[0].Spec.MinResources)[podmeta.ResourceGPU]
		assert.Equal(t, int64(2*c.want), gpus.Value(), "%s: each Pod requests two", name)
	}
}

func TestPodGroupHasSubgroupsOrTasks(t *testing.T) {
	s := sample(map[string]int32{"prefill": 2, "decode": 2})
	s.Annotations = map[string]string{volcano.QueueNameAnnotationKey: "inference"}
	s.Spec.Template.NetworkTopology = &v1alpha1.NetworkTopology{
		GroupPolicy: &v1alpha1.NetworkTopologyPolicy{Mode: "hard", HighestTierAllowed: new(int32(2))}, RolePolicy: &v1alpha1.NetworkTopologyPolicy{Mode: "soft", HighestTierName: "rack"},
	}
	w := worldOf(s)
	g := created(t, w)[0]
	assert.Equal(t, "sample-0", g.Name)
	assert.Equal(t, "inference", g.Spec.Queue)
	assert.Equal(t, map[string]string{podmeta.LabelServing: "sample", podmeta.LabelServingGroup: "sample-0", podmeta.LabelManagedBy: podmeta.ManagedBy}, g.Labels)
	assert.True(t, metav1.IsControlledBy(g, s), "Kubernetes deletes it with the ModelServing")
	assert.Equal(t, &volcano.NetworkTopologySpec{Mode: volcano.HardNetworkTopologyMode, HighestTierAllowed: new(2)}, g.Spec.NetworkTopology)
	assert.Empty(t, g.Spec.MinTaskMember)
	require.Len(t, g.Spec.SubGroupPolicy, 2)
	for n, role := range []string{"prefill", "decode"} {
		assert.Equal(t, volcano.SubGroupPolicySpec{
			Name: role, SubGroupSize: new(int32(2)), MinSubGroups: new(int32(2)), MatchLabelKeys: []string{podmeta.LabelServingRoleID},
			NetworkTopology: &volcano.NetworkTopologySpec{Mode: volcano.SoftNetworkTopologyMode, HighestTierName: "rack"},
			LabelSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{podmeta.LabelServing: "sample", podmeta.LabelServingGroup: "sample-0", podmeta.LabelServingRole: role}},
		}, g.Spec.SubGroupPolicy[n])
	}

	w.Subgroups = false
	g = created(t, w)[0]
	assert.Empty(t, g.Spec.SubGroupPolicy)
	assert.Equal(t, map[string]int32{"prefill-0": 2, "prefill-1": 2, "decode-0": 2, "decode-1": 2}, g.Spec.MinTaskMember)
}

func TestEachGroupHasAPodGroup(t *testing.T) {
	s := sample(nil)
	s.Spec.Replicas = new(int32(3))
	list(s)
	var names []string
	for _, g := range created(t, worldOf(s)) {
		assert.Equal(t, int32(16), g.Spec.MinMember)
		names = append(names, g.Name)
	}
	assert.Equal(t, []string{"sample-0", "sample-1", "sample-2"}, names)
}

// TestEachRowOfPodGroups has an example for each row.
func TestEachRowOfPodGroups(t *testing.T) {
	has := func(w *World) *volcano.PodGroup {
		g := newPodGroup(w.Serving, &w.Wanted[0], true)
		w.Has = []*volcano.PodGroup{g}
		return g
	}
	policy := func(w *World) {
		w.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}}
	}
	for _, c := range []struct {
		row    string
		change func(*World)
		do     Action
		reason string
	}{
		{"no Volcano", func(w *World) { w.Lacking = true }, "", v1alpha1.ReasonNoVolcano},
		{"name taken", func(w *World) { has(w).OwnerReferences = nil }, "", v1alpha1.ReasonNameTaken},
		{"being deleted", func(w *World) { has(w).DeletionTimestamp = new(metav1.Now()) }, "", ""},
		{"surplus", func(w *World) { has(w); w.Wanted = nil }, Delete, ""},
		{"surplus", func(w *World) { has(w); w.Serving.Spec.GangScheduler = v1alpha1.GangGated }, Delete, ""},
		{"not listed", func(w *World) { w.Serving.Status.Groups = nil; w.Wanted = groups.WantedGroups(w.Serving, nil, nil) }, "", ""},
		{"create", func(*World) {}, Create, ""},
		{"unchanged", func(w *World) { has(w).Spec.Queue = "default" }, "", ""},
		{"placed", func(w *World) { has(w).Status.Phase = volcano.PodGroupRunning; policy(w) }, "", v1alpha1.ReasonPodGroupKept},
		{"change", func(w *World) { has(w); policy(w) }, Change, ""},
		{"change", func(w *World) { // fewer Pods than the minimum are left
			g := has(w)
			g.Status.Phase, g.Spec.MinMember = volcano.PodGroupRunning, 17
		}, Change, ""},
		{"change", func(w *World) { // the group gets another revision
			g := has(w)
			g.Status.Phase, g.Annotations = volcano.PodGroupRunning, map[string]string{podmeta.LabelServingRevision: "older"}
			policy(w)
		}, Change, ""},
	} {
		w := worldOf(sample(nil))
		c.change(w)
		steps := Decide(w)
		require.Len(t, steps, 1, c.row)
		assert.Equal(t, []string{c.row, string(c.do), c.reason}, []string{steps[0].Row, string(steps[0].Do), steps[0].Reason}, c.row)
	}
	page, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	for _, r := range rows {
		assert.Contains(t, string(page), "\n| "+r.row+" |", "spec/roles.md has the row %s", r.row)
	}
	_, section, _ := strings.Cut(string(page), "\n### Volcano\n")
	section, _, _ = strings.Cut(section, "\n#")
	assert.Equal(t, len(rows), strings.Count(section, "\n| ")-1, "rows of the page, without its head")
}

func TestOthersPodGroupsAreLeftAlone(t *testing.T) {
	w := worldOf(sample(nil))
	other := newPodGroup(w.Serving, &w.Wanted[0], true)
	other.Name, other.OwnerReferences = "sample-7", nil // somebody has given it the label
	w.Has = []*volcano.PodGroup{other}
	for _, s := range Decide(w) {
		assert.Equal(t, "create", s.Row)
	}
	w.Serving.DeletionTimestamp = new(metav1.Now())
	assert.Empty(t, Decide(w))
}

func TestChangeKeepsWhatOthersWrite(t *testing.T) {
	w := worldOf(sample(nil))
	has := newPodGroup(w.Serving, &w.Wanted[0], true)
	has.Spec.MinMember, has.Spec.Queue, has.Spec.PriorityClassName = 1, "default", "high"
	has.Labels["theirs"] = "kept"
	w.Has = []*volcano.PodGroup{has}
	steps := Decide(w)
	require.Equal(t, Change, steps[0].Do)
	after := steps[0].Object.(*volcano.PodGroup)
	assert.Equal(t, int32(16), after.Spec.MinMember)
	assert.Equal(t, "default", after.Spec.Queue)
	assert.Equal(t, "high", after.Spec.PriorityClassName)
	assert.Equal(t, "kept", after.Labels["theirs"])
}

func TestAmountsAreAddedUp(t *testing.T) {
	sum := corev1.ResourceList{}
	addTimes(sum, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}, 3)
	addTimes(sum, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}, 2)
	addTimes(sum, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}, 0)
	cpu, memory := sum[corev1.ResourceCPU], sum[corev1.ResourceMemory]
	assert.Equal(t, "2750m", cpu.String())
	assert.Equal(t, "2Gi", memory.String())
}
