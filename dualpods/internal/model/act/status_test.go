package act

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestStatusIsWrittenOnceASecondUnlessAFailureIsNew(t *testing.T) {
	s := newSite(t, simple)
	const written = "status of Model llama"
	assert.Contains(t, s.pass(0), written)
	s.count.Held = 1
	assert.NotContains(t, s.pass(tellPause/2), written, "the last one is too young")
	result, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(t, err)
	assert.LessOrEqual(t, result.RequeueAfter, tellPause/2)
	assert.Contains(t, s.pass(tellPause/2), written)

	d := s.deployment("llama-default")
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota", LastTransitionTime: metav1.NewTime(s.now)}}
	require.NoError(t, s.api.Status().Update(t.Context(), d))
	writes := s.pass(0)
	require.NotEmpty(t, writes)
	assert.Equal(t, written, writes[0], "a failure is written before the number that rests on it")
	assert.NotContains(t, writes[1:], written)
	require.NotNil(t, s.model().Status.Specs[0].LastFailure)
	assert.Equal(t, "exceeded quota", s.model().Status.Specs[0].LastFailure.Message)

	s.change(func(m *v1alpha1.Model) { m.Spec.Args = []string{"--seed=1"} })
	assert.Contains(t, s.pass(0), written)
	assert.Equal(t, s.model().Generation, s.model().Status.ObservedGeneration)
}

func TestMemberThatSleepsOnAFreeGPUIsAskedAlone(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu}, specs: [{name: a, simultaneousScaleUpGroup: g}, {name: b, simultaneousScaleUpGroup: g, args: [--x]}, {name: c, args: [--y]}]}`)
	var asked []string
	s.c.opts.Sleepers = func(_ context.Context, pods []*corev1.Pod) (map[types.UID][]placement.Asleep, error) {
		asked = nil
		for _, pod := range pods {
			asked = append(asked, pod.Name)
			require.NotEmpty(t, pod.Annotations, "it is as the Deployment makes them")
		}
		on := placement.Asleep{Node: "n", GPUs: []string{"GPU-0"}}
		return map[types.UID][]placement.Asleep{"b": {on}, "c": {on}}, nil
	}
	s.pass(0)
	s.count.Held = 1
	s.pass(time.Second)
	assert.Equal(t, []string{"llama-a", "llama-b"}, asked, "members of groups alone")
	assert.Zero(t, *s.deployment("llama-a").Spec.Replicas)
	assert.Equal(t, int32(1), *s.deployment("llama-b").Spec.Replicas)
}

func TestSleepersOnTheSameGPUCountOnce(t *testing.T) {
	used := map[[2]string]bool{}
	assert.True(t, take(used, placement.Asleep{Node: "n", GPUs: []string{"0", "1"}}))
	assert.False(t, take(used, placement.Asleep{Node: "n", GPUs: []string{"2", "1"}}))
	assert.True(t, take(used, placement.Asleep{Node: "n", GPUs: []string{"2"}}), "the one that was refused took nothing")
	assert.True(t, take(used, placement.Asleep{Node: "other", GPUs: []string{"0"}}))
}

func TestModelWithoutAnEntryThatCanRunSaysSo(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m'}, specs: [{name: a, resourceProfile: none}, {name: b, resourceProfile: gpu}]}`)
	reason := func() string {
		s.pass(tellPause) // it may write a failure, and then the status waits
		s.pass(tellPause)
		return meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionAccepted).Reason
	}
	assert.Equal(t, v1alpha1.ReasonInvalid, reason(), "entry b can run")
	s.count.Held = 1
	s.pass(tellPause)
	s.addPod("p", "b", `{"state":"Waiting","errors":["the patch is no JSON"]}`)
	s.pass(tellPause)
	assert.Equal(t, v1alpha1.ReasonNoEntryCanRun, reason())
	assert.Contains(t, meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionAccepted).Message, "entry b: it is not tried before an edit: the patch is no JSON")
	s.change(func(m *v1alpha1.Model) { m.Specs[1].Args = []string{"--x"} })
	assert.Equal(t, v1alpha1.ReasonInvalid, reason())

	ending := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "llama-default", Finalizers: []string{"x/y"}}}
	s = newSite(t, simple, ending)
	assert.Equal(t, v1alpha1.ReasonNoEntryCanRun, reason(), "its name is taken")
	require.NoError(t, s.api.Delete(t.Context(), ending))
	assert.Equal(t, v1alpha1.ReasonInvalid, reason(), "its name will be free soon")
}
