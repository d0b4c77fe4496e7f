//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// TestARequesterWaitsForItsModelOrFailsWithoutItAsItsCacheSays starts requesters on
// nodes that are in no group at first, so that nobody fetches their models.
func TestARequesterWaitsForItsModelOrFailsWithoutItAsItsCacheSays(t *testing.T) {
	label := "e2e.hotseat.dev/" + strings.TrimPrefix(t.Name(), "Test")[:20]
	lane := laneOf(t)
	t.Cleanup(func() {
		_, err := lane.cluster.Kubectl(context.Background(), nil, "label", "node", cluster.NodeName(1), label+"-")
		assert.NoError(t, err)
	})
	s := newModelSite(t, func(g *v1alpha1.ModelCacheNodeGroup) {
		slow := resource.MustParse("512Ki")
		g.Spec.NodeSelector, g.Spec.PerNode.BytesPerSecond = map[string]string{label: "yes"}, &slow
	})
	s.hub.Put("org/awaited", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{
		"config.json": []byte(`{}`), "model.safetensors": bytes.Repeat([]byte("w"), 1<<20),
	}})
	s.allReady()
	for name, missing := range map[string]v1alpha1.ModelMissing{"awaited": v1alpha1.MissingWait, "failing": v1alpha1.MissingFail} {
		s.keepThis(&v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterModelCacheSpec{
			Source: v1alpha1.ModelSource{URI: "hf://org/" + name}, NodeGroups: []string{s.group}, OnMissing: missing,
		}})
	}
	s.start(server{app: "awaited", node: 1})
	s.start(server{app: "failing", node: 2})
	var status podmeta.Status
	nobody := "no launcher fetches its model on node " + cluster.NodeName(1) + ", which is in none of the ModelCacheNodeGroups " + s.group
	s.eventually("it is told what it waits for", func() bool {
		status = s.status("awaited")
		return status.Reason == "ModelMissing" && strings.Contains(status.Message, nobody) && strings.Contains(status.Message, "ClusterModelCache awaited")
	})
	s.eventually("an Event says so that is no Warning", func() bool {
		return strings.Contains(s.kubectl("get", "events", "--field-selector", "reason=ModelMissing,type=Normal", "-o", "jsonpath={.items[*].message}"), "ClusterModelCache awaited")
	})
	s.waitsFor("failing", "cannot serve the model org/failing from the store")
	assert.Equal(t, "AttemptFailed", s.status("failing").Reason)

	_, err := s.cluster.Kubectl(t.Context(), nil, "label", "node", cluster.NodeName(1), label+"=yes")
	require.NoError(t, err)
	var told []string
	s.eventually("it is served", func() bool {
		if status = s.status("awaited"); status.State == "Waiting" && (len(told) == 0 || told[len(told)-1] != status.Message) {
			told = append(told, status.Message)
		}
		return status.State == "Serving"
	})
	i, err := s.launcher(status.Launcher).Get(t.Context(), status.Instance)
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom, i.ModelWhy)
	models := s.modelsOf(1)
	require.Len(t, models, 1)
	assert.False(t, i.CreatedAt.Before(*models[0].Published), "it was made once its model was whole")
	t.Logf("it was told, one after the other: %q; its instance was made %s after its model was whole", told, i.CreatedAt.Sub(*models[0].Published).Round(time.Millisecond))

	require.NoError(t, s.api.Delete(t.Context(), s.pod("awaited")))
	s.gone("awaited")
	_, err = s.launcher(status.Launcher).Delete(t.Context(), i.InstanceID) // else it keeps the model, and that the cache
	require.NoError(t, err)
}
