package groups

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// committed makes a site with a group whose change to another model is committed: its Pod was told of it,
// and its launcher has not answered yet.
func committed(t *testing.T) *site {
	t.Helper()
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.UpdateMode = v1alpha1.UpdateInPlace
		m.Spec.Template.Roles[0].EntryTemplate = patched(oldPatch)
	}, nil)
	s.settle()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = patched(newPatch) })
	s.passes(1)
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	to := serving.Status.Groups[0].Change
	to.State, to.Since = v1alpha1.ChangeCommitted, metav1.NewTime(s.now)
	require.NoError(t, s.api.Status().Update(t.Context(), &serving))
	var pod corev1.Pod
	require.True(t, s.read(entry, &pod))
	pod.Annotations[podmeta.AnnotationSwapTo] = podmeta.SwapTo{Revision: to.Revision, Try: to.Try}.Encode()
	pod.Annotations[podmeta.AnnotationServerPatch] = newPatch
	require.NoError(t, s.api.Update(t.Context(), &pod))
	return s
}

// loseRevision deletes a ControllerRevision, as a user may.
func (s *site) loseRevision(revision string) {
	s.t.Helper()
	require.NoError(s.t, s.api.Delete(s.t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-" + revision}}))
}

func TestCommittedChangeOutlivesItsControllerRevision(t *testing.T) {
	s := committed(t)
	to := s.status().Groups[0].Change.Revision
	s.loseRevision(to)
	s.now = s.now.Add(hearLimit) // until then it may be the one that was just created
	s.passes(2)
	assert.True(t, s.read("llama-"+to, &appsv1.ControllerRevision{}), "it is that of the present template")
	assert.Equal(t, v1alpha1.ChangeCommitted, s.status().Groups[0].Change.State)
	assert.Empty(t, s.events.Events)

	// Once the template has changed again, nobody knows what the Pods were to get.
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate = patched(strings.ReplaceAll(newPatch, "org/b", "org/c"))
	})
	s.passes(1)
	s.loseRevision(to)
	s.writes = nil
	s.passes(1)
	assert.Equal(t, []string{"delete Pod " + entry}, s.writes)
	s.told("ChangeEnded Pod " + entry + " is created again: its template cannot be read any more: ControllerRevision llama-" + to)
	s.settle()
	var pod corev1.Pod
	require.True(t, s.read(entry, &pod))
	assert.Contains(t, pod.Annotations[podmeta.AnnotationServerPatch], "org/c")
	assert.Equal(t, s.status().Revision, pod.Labels[podmeta.LabelServingRevision])
	assert.Nil(t, s.status().Groups[0].Change)
	assert.Equal(t, v1alpha1.GroupRunning, s.status().Groups[0].State)
}

func TestControllerThatBeginsLateGivesOrdersBeforePodsAreCreatedAgain(t *testing.T) {
	s := committed(t)
	s.now = s.now.Add(changeLimit) // without a controller
	s.again()
	s.writes = nil
	last := s.passes(2)
	assert.NotContains(t, s.writes, "delete Pod "+entry)
	assert.Equal(t, changeLimit, last.RequeueAfter)
	s.now = s.now.Add(changeLimit)
	s.passes(1)
	assert.Contains(t, s.writes, "delete Pod "+entry)
}

func TestCommittedChangeEndsThoughALauncherNeverAnswers(t *testing.T) {
	s := committed(t)
	last := s.passes(2)
	group := s.status().Groups[0]
	assert.Equal(t, v1alpha1.ReasonChanging, group.Reason)
	assert.Contains(t, group.Message, "; Pod "+entry+" waits for a launcher, and is created again at ")
	assert.Equal(t, changeLimit, last.RequeueAfter, "it looks again then")
	var before, after corev1.Pod
	require.True(t, s.read(entry, &before))
	s.now = s.now.Add(changeLimit)
	s.passes(1)
	s.told("ChangeEnded Pod " + entry + " is created again: its launcher has not confirmed the change of models within 15m")
	s.settle()
	require.True(t, s.read(entry, &after))
	assert.NotEqual(t, before.UID, after.UID)
	assert.Equal(t, newPatch, after.Annotations[podmeta.AnnotationServerPatch])
	assert.Nil(t, s.status().Groups[0].Change)
	assert.Equal(t, v1alpha1.GroupRunning, s.status().Groups[0].State)
	assert.Empty(t, s.events.Events)
}
