package modelcache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestAnswersThatAreNotNeededAreForgotten(t *testing.T) {
	s := newGatedSite(t)
	w := world()
	w.has(1, launcherapi.Model{State: launcherapi.ModelReady})
	fails := func(tries int) Answer { return Answer{AnsweredAt: now, Tries: tries, Err: "no"} }
	yes := Answer{AnsweredAt: now.Add(-watchDelay), Tries: 3}
	s.c.answers = map[Call]Answer{
		fetch1:                           yes,
		{Launcher: "l2", Holder: holder}: yes,
		{Launcher: "l1", Holder: "ClusterModelCache/gone/u"}:     fails(1),
		{Launcher: "l2", Holder: "ClusterModelCache/gone/u"}:     {Running: true},
		{Launcher: "l9", Holder: holder}:                         fails(1),
		{Launcher: "l2", Holder: holder, Remove: "id"}:           fails(2),
		{Launcher: "l2", Holder: holder, Remove: "gone"}:         fails(2),
		{Launcher: "l2", Holder: holder, Remove: "done"}:         yes,
		{Launcher: "l2", Holder: holder, Remove: "just removed"}: {AnsweredAt: now},
	}
	s.c.updateAnswers(w)
	assert.Equal(t, map[Call]Answer{
		fetch1: yes, // it may still fail, and counts its failures
		{Launcher: "l2", Holder: "ClusterModelCache/gone/u"}:     {Running: true},
		{Launcher: "l2", Holder: holder, Remove: "id"}:           fails(2),
		{Launcher: "l2", Holder: holder, Remove: "just removed"}: {AnsweredAt: now},
	}, s.c.answers)
}

func TestFirstPassWaitsForUnheardLaunchers(t *testing.T) {
	for what, c := range map[string]struct {
		runs, refuses, down bool
		waits               bool
	}{
		"it runs, is not ready yet, and is unheard": {runs: true, waits: true},
		"its container does not run":                {},
		"its node is not ready":                     {runs: true, down: true},
		"its call failed":                           {runs: true, refuses: true},
	} {
		s := newGatedSite(t)
		s.silent, s.refuses = true, c.refuses
		var pod corev1.Pod
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "launcher-1"}, &pod))
		server := corev1.ContainerStatus{Name: podmeta.ServingContainer}
		if c.runs {
			server.State.Running = &corev1.ContainerStateRunning{}
		}
		pod.Status.PodIP, pod.Status.ContainerStatuses = "10.1.0.2", []corev1.ContainerStatus{server}
		require.NoError(t, s.api.Status().Update(t.Context(), &pod))
		var node corev1.Node
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "n1"}, &node))
		if !c.down {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		require.NoError(t, s.api.Status().Update(t.Context(), &node))
		passes := func() bool {
			result, err := s.c.Reconcile(t.Context(), reconcile.Request{})
			require.NoError(t, err)
			return result.RequeueAfter != unheardRecheck
		}
		assert.Equal(t, !c.waits, passes(), what)
		s.now = s.now.Add(maxUnheardWait - 1)
		assert.Equal(t, !c.waits, passes(), what)
		s.now = s.now.Add(1)
		assert.True(t, passes(), "%s: the wait is bounded", what)
	}
}

func TestLastFailureIsReportedDuringTheRetry(t *testing.T) {
	s := newGatedSite(t)
	s.token("HF_TOKEN", "wrong-token")
	s.pass()
	s.pass()
	var cache v1alpha1.ClusterModelCache
	degraded := func() metav1.Condition {
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "llama"}, &cache))
		return *meta.FindStatusCondition(cache.Status.Conditions, v1alpha1.ConditionDegraded)
	}
	failed := degraded()
	require.Equal(t, v1alpha1.ReasonAccessDenied, failed.Reason)
	assert.Contains(t, s.announced(), "Warning AccessDenied")

	s.gate.token = "wrong-token" // the source accepts the token now
	s.now = s.now.Add(firstBackoff)
	s.pass()
	assert.Equal(t, failed, degraded())
	require.Equal(t, commit, cache.Status.Revision, "the launcher has accepted")
	shows := func(state string) {
		s.models["id"] = nodeview.NewModel(launcherapi.Model{ID: "id", State: state, WantedBy: []string{holder}, PrivateBy: []string{holder}})
		s.pass()
	}
	shows(launcherapi.ModelDownloading)
	assert.Equal(t, failed, degraded())
	assert.Equal(t, v1alpha1.ModelNodeDownloading, cache.Status.Nodes[0].State)
	assert.Empty(t, s.announced(), "there is no new Event")
	shows(launcherapi.ModelReady)
	assert.Equal(t, v1alpha1.ReasonNoneFailed, degraded().Reason)
}
