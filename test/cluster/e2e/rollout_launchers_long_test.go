//go:build cluster && clusterlong

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// maxUnavailable sets the budget of rollouts.
func (s *site) maxUnavailable(most intstr.IntOrString) {
	s.t.Helper()
	s.eventually("the budget is changed", func() bool { // the controller writes the status meanwhile
		config := s.config()
		changed := config.DeepCopy()
		changed.Spec.Rollout.MaxUnavailable = &most
		return s.api.Patch(s.t.Context(), changed, client.MergeFrom(config)) == nil
	})
}

func TestSleepersOutlastAPausedRolloutAndGoLast(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.scale("model-a", 0)
	s.gone("model-a")
	s.configTold("a model sleeps", func(status v1alpha1.LauncherConfigStatus) bool {
		return status.Asleep == 1 && status.SleepsOn == cluster.NodeName(1)
	})
	before := s.poolPods()
	s.maxUnavailable(intstr.FromInt32(0))
	s.template(func(c map[string]any) {
		c["env"] = append([]any{map[string]any{"name": "EDITED", "value": "another template"}}, c["env"].([]any)...)
	})
	s.configTold("the rollout is paused", func(status v1alpha1.LauncherConfigStatus) bool {
		return status.Outdated == 2 && status.Ready == 2 && conditionIs(status, v1alpha1.ConditionUpToDate, v1alpha1.ReasonPaused, metav1.ConditionFalse)
	})
	s.stays("nothing is replaced", func() bool {
		now := s.poolPods()
		return now[cluster.NodeName(1)].UID == before[cluster.NodeName(1)].UID && now[cluster.NodeName(2)].UID == before[cluster.NodeName(2)].UID
	})

	s.maxUnavailable(intstr.FromString("50%"))
	s.eventually("the launcher with the sleeper is replaced", func() bool {
		now := s.poolPods()
		first, last := now[cluster.NodeName(2)], now[cluster.NodeName(1)]
		if last.UID == before[cluster.NodeName(1)].UID {
			return false
		}
		require.NotEqual(t, before[cluster.NodeName(2)].UID, first.UID, "the launcher without sleepers comes first")
		require.True(t, podmeta.Ready(&first), "its successor is ready first")
		return last.Name != ""
	})
	s.allReady()
	s.configTold("the rollout is over", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionUpToDate, v1alpha1.ReasonUpToDate, metav1.ConditionTrue)
	})
	s.eventually("Events say what ended", func() bool {
		var list eventsv1.EventList
		require.NoError(t, s.api.List(t.Context(), &list, client.InNamespace(s.ns)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "Replaced" && strings.HasSuffix(e.Note, "was made from an earlier template; instances that ended with it: 1")
		})
	})
}

func TestLaunchersHaveThePriorityOfTheChart(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	for _, pod := range s.poolPods() {
		assert.Equal(t, "hotseat-launcher", pod.Spec.PriorityClassName)
		require.NotNil(t, pod.Spec.Priority)
		assert.EqualValues(t, 1000000, *pod.Spec.Priority)
		assert.Equal(t, corev1.PodQOSBurstable, pod.Status.QOSClass)
	}
	status := s.config().Status
	assert.True(t, conditionIs(status, v1alpha1.ConditionProtectedFromEviction, v1alpha1.ReasonPrioritized, metav1.ConditionTrue), "%+v", status.Conditions)
}
