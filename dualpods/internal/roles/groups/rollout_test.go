package groups

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// become says that a Pod is ready, or that it is not.
func (s *site) become(name string, ready corev1.ConditionStatus) {
	s.t.Helper()
	var pod corev1.Pod
	require.True(s.t, s.read(name, &pod), name)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	require.NoError(s.t, s.api.Status().Update(s.t.Context(), &pod))
}

// images returns the images of the Pods that there are, by their names.
func (s *site) images() map[string]string {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace("ns")))
	images := map[string]string{}
	for i := range pods.Items {
		images[pods.Items[i].Name] = pods.Items[i].Spec.Containers[0].Image
	}
	return images
}

// router returns the template of a plain Pod with an image.
func router(image string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"name": "router", "image": "` + image + `"}]}}`)}
}

// routers makes three groups of a router of the image a, which run.
func routers(t *testing.T) *site {
	t.Helper()
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas = new(int32(3))
		m.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "r", Replicas: new(int32(1)), EntryTemplate: router("a")}}
	}, nil)
	s.passes(1)
	for _, name := range []string{"llama-0-r-0-0", "llama-1-r-0-0", "llama-2-r-0-0"} {
		s.become(name, corev1.ConditionTrue)
	}
	s.passes(1)
	return s
}

func (s *site) status() v1alpha1.ModelServingStatus {
	s.t.Helper()
	var serving v1alpha1.ModelServing
	require.True(s.t, s.read("llama", &serving))
	return serving.Status
}

func TestTemplateIsRolledOutGroupByGroup(t *testing.T) {
	s := routers(t)
	first := s.status()
	assert.Equal(t, []any{int32(3), first.Revision}, []any{first.UpdatedReplicas, first.CurrentRevision})
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.RecoveryPolicy = v1alpha1.RecoverNone // no restarts have the status written
		m.Spec.Template.Roles[0].EntryTemplate = router("b")
	})
	s.before = func(o client.Object) {
		for _, g := range s.status().Groups {
			if strings.HasPrefix(o.GetName(), g.Name) {
				assert.True(t, g.BeingUpdated, "the status says which group is taken down, before it is")
			}
		}
	}
	for _, want := range []map[string]string{
		{"llama-0-r-0-0": "a", "llama-1-r-0-0": "a", "llama-2-r-0-0": "b"},
		{"llama-0-r-0-0": "a", "llama-1-r-0-0": "b", "llama-2-r-0-0": "b"},
		{"llama-0-r-0-0": "b", "llama-1-r-0-0": "b", "llama-2-r-0-0": "b"},
	} {
		s.passes(1)
		assert.Len(t, s.images(), 2, "the Pods of one group are deleted")
		s.passes(3)
		require.Equal(t, want, s.images(), "the next group waits until this one runs")
		status := s.status()
		assert.Equal(t, []any{first.Revision, int32(2)}, []any{status.CurrentRevision, status.ReadyReplicas})
		for name, image := range want {
			if image == "b" {
				s.become(name, corev1.ConditionTrue)
			}
		}
	}
	s.before = nil
	s.passes(2)
	status := s.status()
	assert.NotEqual(t, first.Revision, status.Revision)
	assert.Equal(t, []any{int32(3), int32(3), status.Revision}, []any{status.UpdatedReplicas, status.ReadyReplicas, status.CurrentRevision})
	var revisions appsv1.ControllerRevisionList
	require.NoError(t, s.api.List(t.Context(), &revisions))
	assert.Len(t, revisions.Items, 1, "that of the template before is not used any more")
}

func TestGroupThatRunsWithTheNewTemplateAndFailsAgainHoldsUpTheRollout(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.RecoveryPolicy = v1alpha1.RecoverNone
		m.Spec.Template.Roles[0].EntryTemplate = router("b")
	})
	s.passes(4)
	s.become("llama-2-r-0-0", corev1.ConditionTrue)
	s.passes(4)
	require.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "b", "llama-2-r-0-0": "b"}, s.images())
	s.become("llama-2-r-0-0", corev1.ConditionFalse)
	s.become("llama-1-r-0-0", corev1.ConditionTrue)
	s.passes(4)
	assert.Equal(t, "a", s.images()["llama-0-r-0-0"], "the last group that serves stays")
	s.become("llama-2-r-0-0", corev1.ConditionTrue)
	s.passes(4)
	assert.Equal(t, "b", s.images()["llama-0-r-0-0"])
	s.become("llama-0-r-0-0", corev1.ConditionTrue)
	s.passes(2)
	for _, g := range s.status().Groups {
		assert.False(t, g.BeingUpdated, "the rollout is over")
	}
}

func TestGroupsThatDoNotRunAnywayHoldUpNoRollout(t *testing.T) {
	s := routers(t)
	s.become("llama-0-r-0-0", corev1.ConditionFalse)
	s.become("llama-1-r-0-0", corev1.ConditionFalse)
	s.passes(1)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
		m.Spec.Template.Roles[0].EntryTemplate = router("b")
	})
	s.passes(3)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "b", "llama-2-r-0-0": "b"}, s.images(), "a kept group counts for nothing, and one that is broken goes at once")
	taken := func() (all []bool) {
		for _, g := range s.status().Groups {
			all = append(all, g.BeingUpdated)
		}
		return all
	}
	assert.Equal(t, []bool{false, false, true}, taken())

	// Another template in the middle: the group that was taken down counts still.
	s.become("llama-0-r-0-0", corev1.ConditionTrue)
	s.become("llama-1-r-0-0", corev1.ConditionTrue)
	s.passes(1)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = nil
		m.Spec.Template.Roles[0].EntryTemplate = router("a")
	})
	s.passes(4)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "b", "llama-2-r-0-0": "a"}, s.images(), "the old template again")
	assert.Equal(t, []bool{false, false, true}, taken())
	s.become("llama-2-r-0-0", corev1.ConditionTrue)
	s.passes(3)
	assert.Equal(t, []bool{false, true, false}, taken())
	s.become("llama-1-r-0-0", corev1.ConditionTrue)
	s.passes(2)
	assert.Equal(t, []bool{false, false, false}, taken())
}

func TestPodThatHasTheNewRevisionMeanwhileIsNotDeleted(t *testing.T) {
	s := routers(t)
	first := s.status().Revision
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = router("b") })
	s.before = func(o client.Object) {
		t.Log("delete", o.GetName(), s.status().Groups) // as a pass may have written it that the cache does not show yet
		s.before = nil
		var revisions appsv1.ControllerRevisionList
		require.NoError(t, s.api.List(t.Context(), &revisions))
		var pod corev1.Pod
		require.True(t, s.read(o.GetName(), &pod))
		for _, r := range revisions.Items {
			if hash := strings.TrimPrefix(r.Name, "llama-"); hash != first {
				pod.Labels[podmeta.LabelServingRevision] = hash
			}
		}
		require.NotEqual(t, first, pod.Labels[podmeta.LabelServingRevision])
		require.NoError(t, s.api.Update(t.Context(), &pod))
	}
	result := s.passes(1)
	assert.Equal(t, conflictPause, result.RequeueAfter)
	assert.Len(t, s.images(), 3)
	s.passes(1)
	assert.Len(t, s.images(), 2, "it counts as updated, and runs: it is the turn of the next group")
}

func TestGroupBelowThePartitionIsRebuiltFromItsOwnTemplate(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		role := &m.Spec.Template.Roles[0]
		role.EntryTemplate, role.Replicas = router("b"), new(int32(2))
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromString("50%"))
	})
	s.passes(4)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "a", "llama-2-r-0-0": "b", "llama-2-r-1-0": "b"}, s.images(), "the new number of replicas comes with the new template")
	for _, name := range []string{"llama-2-r-0-0", "llama-2-r-1-0"} {
		s.become(name, corev1.ConditionTrue)
	}
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-1-r-0-0"}}))
	s.passes(3)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "a", "llama-2-r-0-0": "b", "llama-2-r-1-0": "b"}, s.images())
	s.become("llama-1-r-0-0", corev1.ConditionTrue)

	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(0))
	})
	s.passes(4)
	assert.Equal(t, "b", s.images()["llama-1-r-1-0"])
	assert.Equal(t, "a", s.images()["llama-0-r-0-0"])
}

func TestNumberOfReplicasAloneIsNoted(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].Replicas = new(int32(2)) })
	s.passes(2)
	assert.Len(t, s.images(), 4, "group after group")
	var revision appsv1.ControllerRevision
	require.True(t, s.read("llama-"+s.status().Revision, &revision))
	assert.JSONEq(t, `{"r": 2}`, revision.Annotations[podmeta.AnnotationReplicas])
	assert.Equal(t, int32(3), s.status().UpdatedReplicas)
}

func TestGroupThatNeedsNoPodHoldsUpNoOther(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate, m.Spec.Template.Roles[0].Replicas = router("b"), new(int32(0))
	})
	s.settle()
	assert.Empty(t, s.names())
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
}

func TestWithoutTheRevisionOfItsTemplateNothingIsCreated(t *testing.T) {
	s := newSite(t, nil, func(o client.Object) error {
		if _, is := o.(*appsv1.ControllerRevision); is {
			return apierrors.NewForbidden(corev1.Resource("controllerrevisions"), o.GetName(), errors.New("exceeded quota"))
		}
		return nil
	})
	_, err := s.pass()
	require.ErrorContains(t, err, "exceeded quota")
	assert.Empty(t, s.writes)
	group := s.groups()[0]
	assert.Equal(t, []string{string(v1alpha1.GroupFailed), v1alpha1.ReasonRefused}, []string{string(group.State), group.Reason})
}

func TestGroupsWhoseRevisionIsLostStayUntilTheirTurn(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate = router("b")
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
	})
	require.NoError(t, s.api.DeleteAllOf(t.Context(), &appsv1.ControllerRevision{}, client.InNamespace("ns")))
	s.passes(4)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "a", "llama-2-r-0-0": "b"}, s.images())
	group := s.status().Groups[0]
	assert.Equal(t, []string{string(v1alpha1.GroupRunning), v1alpha1.ReasonRevisionLost}, []string{string(group.State), group.Reason})
	s.told("RevisionLost llama-0: ControllerRevision llama-" + group.Revision + " is gone or cannot be read")
	s.told("RevisionLost llama-1")
	assert.Empty(t, s.events.Events, "each group is told once")
	s.become("llama-2-r-0-0", corev1.ConditionTrue)
	s.passes(4)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-1-r-0-0": "b", "llama-2-r-0-0": "b"}, s.images())
}

func TestInvalidTemplateLeavesGroupsAsTheyWere(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate = &runtime.RawExtension{Raw: []byte(`{"spec": {}}`)}
	})
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-1-r-0-0"}}))
	s.passes(2)
	assert.Equal(t, map[string]string{"llama-0-r-0-0": "a", "llama-2-r-0-0": "a"}, s.images(), "nothing of that group tells its revision")
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(0)) })
	s.passes(2)
	kept := s.status().CurrentRevision
	assert.NotEqual(t, s.status().Revision, kept, "without groups nothing was rolled out")
}

func TestWorkerThatBecomesARequesterHasNoService(t *testing.T) {
	s := newSite(t, slices4, nil)
	s.passes(1)
	require.True(t, s.read("llama-0-prefill-0-1", &corev1.Service{}))
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.SubGroupPolicy = nil
		role := &m.Spec.Template.Roles[0]
		role.EntryTemplate, role.WorkerTemplate = &runtime.RawExtension{Raw: []byte(requesterEntry)}, &runtime.RawExtension{Raw: []byte(requesterEntry)}
	})
	s.passes(3)
	assert.False(t, s.read("llama-0-prefill-0-1", &corev1.Service{}))
	var pod corev1.Pod
	require.True(t, s.read("llama-0-prefill-0-1", &pod))
	assert.Equal(t, "1/5", pod.Annotations[podmeta.AnnotationRank])
}
