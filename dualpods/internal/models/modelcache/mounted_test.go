package modelcache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// mounted adds two Pods on n1 that mount the model, and a Pod without a node that names its claim.
func (w *World) mounted() {
	w.Mounted = modelvolume.Users{"llama": {"n1": {"Pod team/a", "Pod team/b"}, "": {"Pod team/waits"}}}
}

func TestMountedCopyIsInUse(t *testing.T) {
	w := world()
	w.mounted()
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady, InUseBy: []string{"instance x"}})
	report := Decide(w).Reports["llama"]
	assert.Equal(t, []string{"instance x", "Pod team/a", "Pod team/b"}, report.Nodes[0].InUseBy)
	assert.Empty(t, report.Nodes[1].InUseBy)
	c := &w.Caches[0]
	report.writeStatus(c)
	assert.EqualValues(t, 3, c.Status.InUse)
	assert.Equal(t, "id", c.Status.ID)
	assert.Equal(t, "hotseat-model-llama", c.Status.Claim)
	assert.Equal(t, "3 Pods name the claim hotseat-model-llama", meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionMountable).Message)

	w.Launchers[0].Models = map[string]nodeview.Model{}
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
	w.delete()
	plan := Decide(w)
	assert.Empty(t, plan.Calls)
	assert.False(t, plan.Reports["llama"].NothingLeft)
	assert.Equal(t, "node n1: it is in use by Pod team/a, Pod team/b", plan.Reports["llama"].Blocked)
	w.Caches = nil // as after a user removed the finalizer
	assert.Empty(t, Decide(w).Calls)
	w.Mounted = nil
	assert.Equal(t, []Call{{Launcher: "l1", Holder: holder, Remove: "id"}}, Decide(w).Calls)
}

func TestMountedCopyIsNotEvicted(t *testing.T) {
	w := world()
	w.Caches[0].Spec.Retention = v1alpha1.RetentionLRU
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
	w.has(1, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
	require.Empty(t, Decide(w).Calls)
	w.mounted()
	plan := Decide(w)
	assert.Len(t, plan.Calls, 2, "launchers record it")
	assert.Equal(t, launcherapi.RetentionKeep, plan.Pulls[holder].Retention)
	assert.Equal(t, v1alpha1.RetentionLRU, w.Caches[0].Spec.Retention)
}

func TestReportedVersionStaysWhileAStoreHasIt(t *testing.T) {
	w := world()
	w.Caches[0].Status.ID = "second"
	assert.Equal(t, "second", Decide(w).Reports["llama"].ID, "no launcher reports a version")
	w.has(0, launcherapi.Model{ID: "first", State: launcherapi.ModelReady})
	w.has(1, launcherapi.Model{ID: "second", State: launcherapi.ModelDownloading})
	assert.Equal(t, "second", Decide(w).Reports["llama"].ID)
	delete(w.Launchers[1].Models, "second")
	assert.Equal(t, "first", Decide(w).Reports["llama"].ID)
}

func TestSeveralVersionsHaveNoClaim(t *testing.T) {
	w := world()
	w.mounted()
	w.has(0, launcherapi.Model{ID: "first", State: launcherapi.ModelReady})
	w.has(1, launcherapi.Model{ID: "second", State: launcherapi.ModelReady})
	c := &w.Caches[0]
	c.Status.ID = "first"
	Decide(w).Reports["llama"].writeStatus(c)
	assert.Empty(t, c.Status.ID)
	assert.Empty(t, c.Status.Claim)
	assert.Equal(t, v1alpha1.ReasonSeveralVersions, meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionMountable).Reason)
}

func TestMountableExplainsWhyThereIsNoClaim(t *testing.T) {
	w := world()
	w.gated("HF_TOKEN", "x")
	c := &w.Caches[0]
	report := Decide(w).Reports["llama"]
	report.writeStatus(c)
	assert.Empty(t, c.Status.Claim)
	assert.Nil(t, meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionMountable))
	w.mounted()
	report = Decide(w).Reports["llama"]
	report.writeStatus(c)
	is := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionMountable)
	assert.Equal(t, v1alpha1.ReasonPrivate, is.Reason)
	assert.Contains(t, is.Message, "spec.credentials.shared")
}

func TestPodOnAReadyNodeUsesItsMountedModel(t *testing.T) {
	s := newGatedSite(t)
	s.silent = true
	var cache v1alpha1.ClusterModelCache
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	volumes := []corev1.Volume{{Name: "m", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "hotseat-model-llama"}}}}
	for name, ready := range map[string]corev1.ConditionStatus{"n8": corev1.ConditionTrue, "n9": corev1.ConditionUnknown} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		require.NoError(t, s.api.Create(t.Context(), node))
	}
	for name, node := range map[string]string{"placed": "n8", "on-a-node-that-is-down": "n9", "on-one-that-is-gone": "n10", "waits": ""} {
		require.NoError(t, s.api.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: corev1.PodSpec{NodeName: node, Volumes: volumes}}))
	}
	uses, err := s.c.Uses(t.Context(), &cache)
	require.NoError(t, err)
	assert.Equal(t, []string{"on node n8 by Pod team/placed"}, uses)
}
