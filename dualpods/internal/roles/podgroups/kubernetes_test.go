package podgroups

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// counted is the sample with two replicas of each role counted, in a cluster that has PodGroups of
// Kubernetes and no Volcano. Its Pods are there, as package groups creates them.
func counted(change func(*v1alpha1.ModelServing)) *Kubernetes {
	s := sample(map[string]int32{"prefill": 2, "decode": 2})
	s.Spec.SchedulerName = ""
	if change != nil {
		change(s)
	}
	k := &Kubernetes{Serving: s, Wanted: groups.WantedGroups(s, nil, nil), Pods: map[string]*corev1.Pod{}, Uses: true}
	for _, g := range k.Wanted {
		for _, r := range g.Replicas {
			for _, name := range r.Pods {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
				if groups.IsCounted(s, r.Role, ordinalOf(r.ID)) {
					pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(g.Name)}
				} else {
					pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.GateGang}}
				}
				k.Pods[name] = pod
			}
		}
	}
	return k
}

func minimum(g *scheduling.PodGroup) int32 { return g.Spec.SchedulingPolicy.Gang.MinCount }

func TestPodGroupOfKubernetesCountsItsMembers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(k *Kubernetes)
		want   int32
	}{
		"two of each":            {func(*Kubernetes) {}, 8},
		"no Pod is there yet":    {func(k *Kubernetes) { clear(k.Pods) }, 8},
		"a Pod is being deleted": {func(k *Kubernetes) { k.Pods["sample-0-decode-1-1"].DeletionTimestamp = new(metav1.Now()) }, 8},
		"a Pod was made by gates": {func(k *Kubernetes) {
			pod := k.Pods["sample-0-decode-1-1"]
			pod.Spec.SchedulingGroup, pod.Spec.NodeName = nil, "a"
		}, 7},
		"the cluster lost its gate": {func(k *Kubernetes) { k.Uses = false; k.Pods["sample-0-decode-0-0"].Spec.NodeName = "a" }, 8},
		"a lost Pod comes by a gate": {func(k *Kubernetes) {
			k.Uses = false
			k.Pods["sample-0-decode-0-0"].Spec.NodeName = "a"
			delete(k.Pods, "sample-0-decode-1-1")
		}, 7},
	} {
		k := counted(nil)
		c.change(k)
		steps := DecideKubernetes(k)
		require.Len(t, steps, 1, name)
		require.Equal(t, "create", steps[0].Row, name)
		g := steps[0].Object.(*scheduling.PodGroup)
		assert.Equal(t, c.want, minimum(g), name)
		assert.Equal(t, "sample-0", g.Name, name)
		assert.True(t, metav1.IsControlledBy(g, k.Serving), name)
		assert.Equal(t, "sample", g.Labels[podmeta.LabelServing], name)
	}
}

func TestPodGroupOfKubernetesHasThePriorityOfItsPods(t *testing.T) {
	k := counted(func(s *v1alpha1.ModelServing) {
		s.Spec.Template.Roles[1].EntryTemplate = &runtime.RawExtension{Raw: []byte(`{"spec": {"priorityClassName": "high", "containers": [{"name": "a"}]}}`)}
	})
	assert.Equal(t, "high", DecideKubernetes(k)[0].Object.(*scheduling.PodGroup).Spec.PriorityClassName)
}

// TestEachRowOfPodGroupsOfKubernetes has an example for each row.
func TestEachRowOfPodGroupsOfKubernetes(t *testing.T) {
	has := func(k *Kubernetes) *scheduling.PodGroup {
		g := k.newPodGroup(k.membersOf(&k.Wanted[0]))
		k.Has = []*scheduling.PodGroup{g}
		return g
	}
	least := func(k *Kubernetes, prefill int32) {
		k.Serving.Spec.Template.GangPolicy.MinRoleReplicas["prefill"] = prefill
	}
	for _, c := range []struct {
		row     string
		change  func(*Kubernetes)
		do      Action
		reason  string
		deletes []string
	}{
		{row: "no PodGroups", change: func(k *Kubernetes) { k.Lacking = true }, reason: v1alpha1.ReasonNoPodGroups},
		{row: "name taken", change: func(k *Kubernetes) { has(k).OwnerReferences = nil }, reason: v1alpha1.ReasonNameTaken},
		{row: "being deleted", change: func(k *Kubernetes) { has(k).DeletionTimestamp = new(metav1.Now()) }},
		{row: "surplus", change: func(k *Kubernetes) { has(k); k.Wanted = nil }, do: Delete},
		{row: "surplus", change: func(k *Kubernetes) { has(k); clear(k.Pods); k.Uses = false }, do: Delete},
		{row: "not listed", change: func(k *Kubernetes) {
			k.Serving.Status.Groups = nil
			k.Wanted = groups.WantedGroups(k.Serving, nil, nil)
		}},
		{row: "other members", change: func(k *Kubernetes) { has(k); least(k, 1) }, deletes: []string{"sample-0-prefill-1-0", "sample-0-prefill-1-1"}},
		{row: "other members", change: func(k *Kubernetes) { has(k); least(k, 3) }, deletes: []string{"sample-0-prefill-2-0", "sample-0-prefill-2-1"}},
		{row: "create", change: func(*Kubernetes) {}, do: Create},
		{row: "change", change: func(k *Kubernetes) { has(k).Spec.SchedulingPolicy.Gang.MinCount = 7 }, do: Change},
		{row: "unchanged", change: func(k *Kubernetes) { has(k) }},
		{row: "unchanged", change: func(k *Kubernetes) { // a group that has nodes keeps its members
			has(k)
			k.Pods["sample-0-decode-0-0"].Spec.NodeName = "a"
			least(k, 1)
		}},
	} {
		k := counted(nil)
		c.change(k)
		steps := DecideKubernetes(k)
		require.Len(t, steps, 1, c.row)
		var deletes []string
		for _, pod := range steps[0].Pods {
			deletes = append(deletes, pod.Name)
		}
		assert.Equal(t, []string{c.row, string(c.do), c.reason}, []string{steps[0].Row, string(steps[0].Do), steps[0].Reason}, c.row)
		assert.Equal(t, c.deletes, deletes, c.row)
	}
	page, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Kubernetes\n")
	section, _, _ = strings.Cut(section, "\n#")
	for _, r := range kubernetesRows {
		assert.Contains(t, section, "\n| "+r.row+" |", "spec/roles.md has the row %s", r.row)
	}
	assert.Equal(t, len(kubernetesRows), strings.Count(section, "\n| ")-1, "rows of the page, without its head")
}

func TestPodGroupsOfKubernetesComeAndGoWithThem(t *testing.T) {
	s := newSite(t)
	s.definition = Definition{Lacking: true, Kubernetes: true}
	changed := s.serving()
	changed.Spec.SchedulerName, changed.Spec.Template.GangPolicy = "", &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}}
	require.NoError(t, s.api.Update(t.Context(), changed))
	again, reason := s.pass()
	assert.Equal(t, restPause, again)
	assert.Equal(t, v1alpha1.ReasonPodGroupsCreated, reason)
	var all scheduling.PodGroupList
	list := func() []scheduling.PodGroup {
		require.NoError(t, s.api.List(t.Context(), &all))
		return all.Items
	}
	require.Len(t, list(), 1)
	assert.Equal(t, int32(10), minimum(&all.Items[0]))

	// A Pod that should not be a member, and has no node, is deleted.
	wrong := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sample-0-prefill-1-0", OwnerReferences: all.Items[0].OwnerReferences}}
	wrong.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("sample-0")}
	require.NoError(t, s.api.Create(t.Context(), wrong))
	again, _ = s.pass()
	assert.Equal(t, membersPause, again)
	var pods corev1.PodList
	require.NoError(t, s.api.List(t.Context(), &pods))
	assert.Empty(t, pods.Items)

	changed = s.serving()
	changed.Spec.GangScheduler = v1alpha1.GangGated
	require.NoError(t, s.api.Update(t.Context(), changed))
	_, reason = s.pass()
	assert.Empty(t, reason)
	assert.Empty(t, list())

	s.definition = Definition{Lacking: true}
	changed = s.serving()
	changed.Spec.GangScheduler = v1alpha1.GangKubernetes
	require.NoError(t, s.api.Update(t.Context(), changed))
	again, reason = s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, v1alpha1.ReasonNoPodGroups, reason)
	assert.Contains(t, <-s.events.Events, "GenericWorkload")
}
