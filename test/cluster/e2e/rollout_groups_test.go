//go:build cluster

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// threeGroups creates a ModelServing of three groups, each of a requester for org/MODEL.
func (s *site) threeGroups(model string) {
	s.t.Helper()
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas = new(int32(3))
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "all", EntryTemplate: s.entryOf(model)}}
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
}

func (s *site) entryOf(model string) *runtime.RawExtension {
	s.t.Helper()
	raw, err := json.Marshal(server{app: model}.template(s.t))
	require.NoError(s.t, err)
	return &runtime.RawExtension{Raw: raw}
}

// changeServing changes the ModelServing llama.
func (s *site) changeServing(change func(*v1alpha1.ModelServingSpec)) {
	s.t.Helper()
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		serving := s.modelServing("llama")
		change(&serving.Spec)
		return s.api.Update(s.t.Context(), serving)
	}))
}

// models returns the model that each group's Pod asks for, and its UID, by the group's ordinal.
func (s *site) models() (models []string, uids []types.UID) {
	s.t.Helper()
	for group := range 3 {
		var pod corev1.Pod
		err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: fmt.Sprintf("llama-%d-all-0-0", group)}, &pod)
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
		models, uids = append(models, pod.Labels["app"]), append(uids, pod.UID)
	}
	return models, uids
}

func TestTemplateIsRolledOutToOneGroupAfterTheOther(t *testing.T) {
	s := newPool(t, nil)
	s.threeGroups("one")
	s.runs("llama", 3)

	// The first group is kept.
	_, before := s.models()
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Template.Roles[0].EntryTemplate = s.entryOf("two")
		spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
	})
	s.eventually("the upper two groups are updated, one after the other", func() bool {
		status := s.modelServing("llama").Status
		ready := 0
		var pods corev1.PodList
		require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "llama"}))
		for i := range pods.Items {
			if readyPod(&pods.Items[i]) && pods.Items[i].DeletionTimestamp.IsZero() {
				ready++
			}
		}
		require.GreaterOrEqual(t, ready, 2, "two groups serve at every moment")
		return status.UpdatedReplicas == 2 && status.ReadyReplicas == 3
	})
	models, after := s.models()
	assert.Equal(t, []string{"one", "two", "two"}, models)
	assert.Equal(t, before[0], after[0])
	assert.NotEqual(t, before[1], after[1])

	// A kept group that goes comes back as it was.
	s.delete("llama-0-all-0-0", "--wait=false")
	s.eventually("the first group is there again", func() bool {
		_, uids := s.models()
		return uids[0] != before[0] && uids[0] != "" && s.modelServing("llama").Status.ReadyReplicas == 3
	})
	models, _ = s.models()
	assert.Equal(t, []string{"one", "two", "two"}, models)

	// Another number of replicas alone reaches the groups that have the present template.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Replicas, spec.Template.Roles[0].Replicas = new(int32(2)), new(int32(2))
	})
	s.eventually("the second group has two Pods, and the kept one its own", func() bool {
		var pods corev1.PodList
		require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "llama"}))
		return len(pods.Items) == 3 && s.modelServing("llama").Status.ReadyReplicas == 2
	})
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Replicas, spec.Template.Roles[0].Replicas = new(int32(3)), new(int32(1))
	})

	// Without a partition, the template reaches the first group too, which answers by it.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.RolloutStrategy.RollingUpdateConfiguration.Partition = nil })
	s.eventually("all groups are updated", func() bool {
		status := s.modelServing("llama").Status
		return status.UpdatedReplicas == 3 && status.ReadyReplicas == 3 && status.CurrentRevision == status.Revision
	})
	models, _ = s.models()
	assert.Equal(t, []string{"two", "two", "two"}, models)
	answered, err := s.ask(s.leadsToLauncher("llama-0-all-0-0"), "org/two")
	require.NoError(t, err)
	assert.Equal(t, "org/two", answered)
}
