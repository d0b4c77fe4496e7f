package groups

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func labelled(image, tier string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"metadata": {"labels": {"tier": "` + tier + `"}}, "spec": {"containers": [{"name": "router", "image": "` + image + `"}]}}`)}
}

func TestLabelsAloneAreChangedInThePods(t *testing.T) {
	s := routers(t)
	s.writes = nil
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.UpdateMode, m.Spec.Template.Roles[0].EntryTemplate = v1alpha1.UpdateInPlace, labelled("a", "gold")
	})
	s.passes(4)
	for _, name := range []string{"llama-0-r-0-0", "llama-1-r-0-0", "llama-2-r-0-0"} {
		var pod corev1.Pod
		require.True(t, s.read(name, &pod))
		assert.Equal(t, []string{"gold", s.status().Revision}, []string{pod.Labels["tier"], pod.Labels[podmeta.LabelServingRevision]}, name)
	}
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
	for _, write := range s.writes {
		assert.NotContains(t, write, " Pod ", "no Pod is made again")
	}
	assert.Empty(t, s.events.Events)

	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = labelled("b", "gold") })
	s.passes(1)
	assert.Contains(t, s.writes, "delete Pod llama-2-r-0-0", "another image makes other Pods")
	s.told("NotInPlace llama-2: Pod llama-2-r-0-0 of an older template is being replaced, and not changed in place: the change is one of the Pods (image of container router) of role r")
}

func TestChangeInPlaceIsWrittenBeforeItIsActedOn(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.UpdateMode = v1alpha1.UpdateInPlace
		m.Spec.Template.Roles[0].EntryTemplate = patched(oldPatch)
	}, nil)
	s.passes(1)
	s.become(entry, corev1.ConditionTrue)
	s.passes(1)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = patched(newPatch) })
	change := func() *v1alpha1.ServingGroupChange { return s.status().Groups[0].Change }
	told := func() (to podmeta.SwapTo, patch string) {
		var pod corev1.Pod
		require.True(t, s.read(entry, &pod))
		return podmeta.ReadSwapTo(&pod), pod.Annotations[podmeta.AnnotationServerPatch]
	}
	s.passes(1)
	assert.Equal(t, v1alpha1.ChangeBegun, change().State)
	to, _ := told()
	assert.Empty(t, to, "it is written first")

	// The Pod has no record: the change cannot be made, and the next try is a minute later.
	s.passes(1)
	assert.Equal(t, v1alpha1.ChangeUndoing, change().State)
	s.told("ChangeFailed llama-0: Pod llama-0-prefill-0-0 has lost its server")
	s.passes(1)
	assert.Equal(t, []any{v1alpha1.ChangeUndone, int64(1)}, []any{change().State, change().Try})
	last := s.passes(2)
	assert.Equal(t, v1alpha1.ChangeUndone, change().State)
	assert.Positive(t, last.RequeueAfter)
	assert.LessOrEqual(t, last.RequeueAfter, firstChangePause)
	progressing := meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionProgressing)
	assert.Equal(t, []string{"True", v1alpha1.ReasonChangeFailed}, []string{string(progressing.Status), progressing.Reason})
	group := s.status().Groups[0]
	assert.Equal(t, []any{v1alpha1.GroupRunning, v1alpha1.ReasonChangeFailed}, []any{group.State, group.Reason}, "it runs by the old template")
	s.now = s.now.Add(firstChangePause + time.Second)
	s.passes(1)
	assert.Equal(t, []any{v1alpha1.ChangeBegun, int64(2)}, []any{change().State, change().Try})
	_, patch := told()
	assert.Equal(t, oldPatch, patch)
	assert.Contains(t, s.images(), entry, "the Pod stays")

	// A change that is undone for another template has not failed.
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate = patched(strings.ReplaceAll(newPatch, "org/b", "org/c"))
	})
	s.passes(1)
	assert.Equal(t, []any{v1alpha1.ChangeUndoing, "the template was changed again"}, []any{change().State, change().Message})
	assert.Empty(t, s.events.Events)
}

func TestChangeGoesOnThoughTheClockHasNanoseconds(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.UpdateMode = v1alpha1.UpdateInPlace
		m.Spec.Template.Roles[0].EntryTemplate = patched(oldPatch)
	}, nil)
	s.now = s.now.Add(123456789)
	s.settle()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = patched(newPatch) })
	s.passes(1)
	require.Equal(t, v1alpha1.ChangeBegun, s.status().Groups[0].Change.State)
	s.passes(1) // the Pod has no record
	assert.Equal(t, v1alpha1.ChangeUndoing, s.status().Groups[0].Change.State)
}

func TestGroupWhoseChangeWasUndoneFollowsItsRoleScaler(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.UpdateMode = v1alpha1.UpdateInPlace
		m.Spec.Template.Roles[0].EntryTemplate = patched(oldPatch)
		external(m)
	}, nil)
	s.settle()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = patched(newPatch) })
	scale := func(n int32) {
		var sc v1alpha1.RoleScaler
		require.True(t, s.read("llama-prefill", &sc))
		sc.Spec.Replicas = n
		require.NoError(t, s.api.Update(t.Context(), &sc))
	}
	s.passes(1)
	require.Equal(t, v1alpha1.ChangeBegun, s.status().Groups[0].Change.State)
	scale(2)
	s.passes(1)
	assert.Equal(t, []string{entry}, s.names(), "the servers of a change stay the same")
	s.passes(2) // no Pod has a record, so it is undone
	require.Equal(t, v1alpha1.ChangeUndone, s.status().Groups[0].Change.State)
	s.settle()
	assert.Equal(t, []string{entry, "llama-0-prefill-1-0"}, s.names())
	var pod corev1.Pod
	require.True(t, s.read("llama-0-prefill-1-0", &pod))
	assert.Equal(t, oldPatch, pod.Annotations[podmeta.AnnotationServerPatch])
	assert.Equal(t, v1alpha1.ChangeUndone, s.status().Groups[0].Change.State)
	assert.False(t, s.status().Groups[0].BeingScaled)
}
