package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gangs says what groups wait for.
type gangs map[string]string

func (g gangs) Waits(serving types.UID, group string) string { return g[string(serving)+" "+group] }

func TestPodsOfAGangHaveTheGateAndSayWhy(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) { m.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{} }, nil)
	s.passes(1)
	var pod corev1.Pod
	require.True(t, s.read(entry, &pod))
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: podmeta.GateGang}}, pod.Spec.SchedulingGates)
	s.passes(1)
	assert.Equal(t, []any{v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForGang, "Pod " + entry + " gets a node together with the others"}, said(s.groups()[0]))

	s.c.opts.Gangs = gangs{"s llama-0": "1 Pod needs 1 GPU"}
	s.passes(1)
	assert.Equal(t, []any{v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForGang, "1 Pod needs 1 GPU"}, said(s.groups()[0]))
}

func said(g v1alpha1.ServingGroupStatus) []any { return []any{g.State, g.Reason, g.Message} }

func TestRecordOfAGangStaysWhileThereIsAPolicy(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas, m.Spec.Template.GangPolicy = new(int32(2)), &v1alpha1.GangPolicy{}
	}, nil)
	s.passes(1)
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	record := &v1alpha1.ServingGroupGang{State: v1alpha1.GangAdmitted, Since: metav1.NewTime(now.Local()), Misses: 2}
	serving.Status.Groups[1].Gang = record
	require.NoError(t, s.api.Status().Update(t.Context(), &serving))
	s.passes(2)
	assert.Nil(t, s.groups()[0].Gang)
	require.NotNil(t, s.groups()[1].Gang)
	assert.True(t, record.Since.Equal(&s.groups()[1].Gang.Since))
	assert.EqualValues(t, 2, s.groups()[1].Gang.Misses)

	first := s.groups()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.GangPolicy = nil })
	s.passes(1)
	assert.Nil(t, s.groups()[1].Gang)
	assert.Equal(t, first[1].Name, s.groups()[1].Name)
}

func TestWorkersOfAGangDoNotWaitForTheDomainOfTheirEntry(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		slices4(m)
		m.Annotations, m.Spec.Template.GangPolicy = map[string]string{podmeta.AnnotationExclusiveTopology: "zone"}, &v1alpha1.GangPolicy{}
	}, nil)
	s.passes(1)
	var worker corev1.Pod
	require.True(t, s.read("llama-0-prefill-0-1", &worker))
	assert.Empty(t, worker.Spec.NodeSelector)
	assert.Len(t, worker.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 1)
}

func TestGangPolicyIsNoPartOfTheRevision(t *testing.T) {
	a, b := llama(), llama()
	b.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}}
	assert.Equal(t, content(&a.Spec.Template), content(&b.Spec.Template))
	b.Spec.Template.GangPolicy, b.Spec.Template.LowerGangPolicy = nil, b.Spec.Template.GangPolicy
	assert.Equal(t, content(&a.Spec.Template), content(&b.Spec.Template), "in the other spelling")
}
