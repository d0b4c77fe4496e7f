//go:build cluster && podgroups

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// podGroup returns the minimum of the PodGroup of a group, and what the scheduler says of it; 0:
// there is none. told is empty before the scheduler has said anything.
func (s *site) podGroup(name string) (minimum int32, told metav1.Condition) {
	s.t.Helper()
	var group scheduling.PodGroup
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &group); err != nil {
		require.True(s.t, apierrors.IsNotFound(err), "%v", err)
		return 0, told
	}
	if c := meta.FindStatusCondition(group.Status.Conditions, scheduling.PodGroupInitiallyScheduled); c != nil {
		told = *c
	}
	return group.Spec.SchedulingPolicy.Gang.MinCount, told
}

// TestKubernetesPlacesCountedPodsTogether needs a cluster whose feature gate GenericWorkload is on:
// `make test-cluster-podgroups`.
func TestKubernetesPlacesCountedPodsTogether(t *testing.T) {
	s := newPool(t, nil)
	require.Equal(t, 4, s.cluster.Nodes*s.cluster.GPUs)
	s.gang("llama", 4, 4, func(serving *v1alpha1.ModelServing) {
		serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, v1alpha1.ServingRole{Name: "other", EntryTemplate: raw(t, server{app: "other"}.template(t))})
	})
	// Four Pods of one role would fit, and none of the other.
	var pods corev1.PodList
	list := func() []corev1.Pod {
		require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "llama"}))
		return pods.Items
	}
	s.eventually("the scheduler says that there is no room", func() bool {
		if len(list()) != 5 {
			return false
		}
		minimum, told := s.podGroup("llama-0")
		return minimum == 5 && told.Reason == scheduling.PodGroupReasonUnschedulable
	})
	for _, pod := range pods.Items {
		assert.Empty(t, pod.Spec.SchedulingGates, pod.Name)
		require.NotNil(t, pod.Spec.SchedulingGroup, pod.Name)
		assert.Equal(t, "llama-0", *pod.Spec.SchedulingGroup.PodGroupName, pod.Name)
	}
	s.stays("no Pod of it has a node", func() bool { placed, _ := s.onNodes("llama"); return placed == 0 })

	// A group without nodes takes another policy at once: three of one role and one of the other.
	s.kubectl("patch", "ms/llama", "--type=merge", `-p={"spec":{"template":{"gangPolicy":{"minRoleReplicas":{"server":3}}}}}`)
	s.eventually("the counted Pods have nodes", func() bool { placed, _ := s.onNodes("llama"); return placed == 4 })
	s.eventually("the scheduler says so", func() bool {
		minimum, told := s.podGroup("llama-0")
		return minimum == 4 && told.Status == metav1.ConditionTrue
	})
	s.eventually("the extra Pod is Pending, without a gate", func() bool {
		extra := s.pod("llama-0-server-3-0")
		return extra.Spec.SchedulingGroup == nil && len(extra.Spec.SchedulingGates) == 0 && extra.Status.Phase == corev1.PodPending
	})
	s.served("llama", 3)
	s.served("other", 1)
	assert.True(t, meta.IsStatusConditionTrue(s.modelServing("llama").Status.Conditions, v1alpha1.ConditionPodGroups))

	// A Pod that is replaced joins the PodGroup again.
	s.kubectl("patch", "ms/llama", "--type=merge", `-p={"spec":{"template":{"roles":[`+s.roleOf("llama", 3)+`,{"name":"other","entryTemplate":`+string(raw(t, server{app: "other"}.template(t)).Raw)+`}]}}}`)
	s.eventually("the extra Pod is gone", func() bool { return len(list()) == 4 })
	before := s.pod("llama-0-other-0-0").UID
	s.kubectl("delete", "pod/llama-0-other-0-0", "--timeout="+patience.Wait().String())
	s.eventually("another Pod serves in its place", func() bool {
		served := s.pods("other")
		return len(served) == 1 && served[0].UID != before && readyPod(&served[0]) && served[0].Spec.SchedulingGroup != nil
	})
	s.kubectl("delete", "ms/llama", "--timeout="+patience.Wait().String())
	s.eventually("the PodGroup goes with the ModelServing", func() bool {
		var left scheduling.PodGroupList
		require.NoError(t, s.api.List(t.Context(), &left, client.InNamespace(s.ns)))
		return len(left.Items) == 0
	})
}
