//go:build cluster

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// requesters returns the Pods of the ModelServing llama that stay, by their names.
func (s *site) requesters() map[string]*corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "llama"}))
	all := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			all[pods.Items[i].Name] = &pods.Items[i]
		}
	}
	return all
}

// settles waits until all groups run, and llama has these Pods. meanwhile is called all the time.
func (s *site) settles(want []string, meanwhile func()) {
	s.t.Helper()
	s.eventually("all groups run with the Pods "+strings.Join(want, " "), func() bool {
		meanwhile()
		there := slices.Sorted(maps.Keys(s.requesters()))
		m := s.modelServing("llama")
		waits := func(g v1alpha1.ServingGroupStatus) bool { return g.State != v1alpha1.GroupRunning }
		return slices.Equal(want, there) && m.Status.ObservedGeneration == m.Generation && !slices.ContainsFunc(m.Status.Groups, waits) &&
			meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionProgressing)
	})
}

func nothing() {}

func TestRoleIsScaledFromTheHighestGroupDown(t *testing.T) {
	s := newPool(t, nil)
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas = new(int32(2))
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "all", EntryTemplate: s.entryOf("one")}}
	require.NoError(t, s.api.Create(t.Context(), serving))
	before := []string{"llama-0-all-0-0", "llama-1-all-0-0"}
	s.settles(before, nothing)
	revision, uid := s.modelServing("llama").Status.Revision, s.requesters()[before[0]].UID

	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles[0].Replicas = new(int32(2)) })
	higherRan := false
	all := []string{"llama-0-all-0-0", "llama-0-all-1-0", "llama-1-all-0-0", "llama-1-all-1-0"}
	s.settles(all, func() {
		if there := s.requesters(); there[all[1]] != nil && !higherRan {
			require.True(t, there[all[3]] != nil && readyPod(there[all[3]]), "the higher group is the first one")
			higherRan = true
		}
		scaling := 0
		for _, g := range s.modelServing("llama").Status.Groups {
			if g.State == v1alpha1.GroupScaling {
				scaling++
			}
		}
		require.LessOrEqual(t, scaling, 1, "one group at a time")
	})
	require.True(t, higherRan)

	// If all are ready, the cheapest one goes.
	s.kubectl("annotate", "pod/llama-0-all-0-0", corev1.PodDeletionCost+"=-1")
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles[0].Replicas = new(int32(1)) })
	s.settles([]string{"llama-0-all-1-0", "llama-1-all-0-0"}, nothing)
	assert.Equal(t, revision, s.modelServing("llama").Status.Revision)
	answered, err := s.ask(s.leadsToLauncher("llama-0-all-1-0"), "org/one")
	require.NoError(t, err)
	assert.Equal(t, "org/one", answered)

	// Another replica gets the number that is free.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles[0].Replicas = new(int32(2)) })
	s.settles(all, nothing)
	assert.NotEqual(t, uid, s.requesters()[before[0]].UID)
}

func TestNumberOfARoleIsThatOfItsRoleScalerAcrossARollout(t *testing.T) {
	s := newPool(t, nil)
	s.apply(exampleGroups)
	s.runs("llama", 1)
	mode := func(mode string) {
		s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
			spec.Template.Roles[1].Scaling = &v1alpha1.RoleScaling{Mode: mode}
		})
	}
	var scaler v1alpha1.RoleScaler
	found := func() bool {
		err := s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "llama-decode"}, &scaler)
		require.NoError(t, client.IgnoreNotFound(err))
		return !apierrors.IsNotFound(err)
	}
	uids := func() (all []types.UID) {
		for _, name := range []string{"llama-0-decode-0-0", "llama-0-prefill-0-0"} {
			all = append(all, s.requesters()[name].UID)
		}
		return all
	}
	before := uids()
	mode(v1alpha1.ScalingExternal)
	s.eventually("the role has a RoleScaler", func() bool { return found() && scaler.Status.Replicas == 1 })
	assert.EqualValues(t, 1, scaler.Spec.Replicas)

	s.kubectl("scale", "rolescaler/llama-decode", "--replicas=2")
	two := []string{"llama-0-decode-0-0", "llama-0-decode-1-0", "llama-0-prefill-0-0"}
	s.settles(two, nothing)
	assert.Equal(t, before, uids(), "nothing was made again")
	s.eventually("the RoleScaler says so", func() bool { return found() && scaler.Status.Replicas == 2 })
	selected := strings.Fields(s.kubectl("get", "pods", "-o=name", "-l", scaler.Status.Selector))
	assert.Equal(t, []string{"pod/llama-0-decode-0-0", "pod/llama-0-decode-1-0"}, slices.Sorted(slices.Values(selected)))

	// A rollout, and the number in the ModelServing, change nothing of that.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Template.Roles[0].EntryTemplate = s.entryOf("two")
		spec.Template.Roles[1].Replicas = new(int32(1))
	})
	s.eventually("the template is rolled out", func() bool {
		status, prefill := s.modelServing("llama").Status, s.requesters()["llama-0-prefill-0-0"]
		return status.CurrentRevision == status.Revision && status.UpdatedReplicas == 1 && prefill != nil && prefill.UID != before[1]
	})
	s.settles(two, nothing)
	require.True(t, found())
	assert.EqualValues(t, 2, scaler.Spec.Replicas)

	// A ratio holds the role back.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Template.RatioConstraint = &v1alpha1.RatioConstraint{NumeratorRole: "prefill", DenominatorRole: "decode", Numerator: 1, Denominator: 1}
	})
	s.settles([]string{"llama-0-decode-0-0", "llama-0-prefill-0-0"}, nothing)
	assert.Equal(t, "role decode gets 1 replicas, and not 2, as there are 1 of role prefill: change ratioConstraint, or that number",
		s.kubectl("get", "ms/llama", "-o", `jsonpath={.status.conditions[?(@.type=="ScalingLimited")].message}`))
	mode("Static")
	s.eventually("the RoleScaler is gone", func() bool { return !found() })
}
