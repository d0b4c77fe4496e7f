package modelcache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestLabelChangesSetAndRemoveLabels(t *testing.T) {
	label := podmeta.ModelLabel("llama")
	for _, tt := range []struct {
		has     map[string]string
		wanted  map[string]bool
		changes map[string]any
	}{
		{nil, map[string]bool{"llama": true}, map[string]any{label: "ready"}},
		{map[string]string{label: "ready", "other": "x"}, map[string]bool{"llama": true}, map[string]any{}},
		{map[string]string{label: "no"}, map[string]bool{"llama": true}, map[string]any{label: "ready"}},
		{map[string]string{label: "ready"}, map[string]bool{"llama": false}, map[string]any{}},
		{nil, map[string]bool{"llama": false}, map[string]any{}},
		{map[string]string{label: "ready", podmeta.ModelLabel("gone"): "ready", "other": "x"}, nil, map[string]any{label: nil, podmeta.ModelLabel("gone"): nil}},
	} {
		assert.Equal(t, tt.changes, labelChanges(tt.has, tt.wanted), "%v %v", tt.has, tt.wanted)
	}
}

// This test uses a fake API server, which can refuse writes on demand. The tests in
// test/cluster/e2e use a real one.

func TestFailedLabelWriteIsRetriedAndDelaysNoOther(t *testing.T) {
	const nodes = 40
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	w := &World{Now: now, Nodes: map[string]Node{}}
	plan := &Plan{Labels: map[string]map[string]bool{}}
	var objects []client.Object
	for n := range nodes {
		name := fmt.Sprint("n", n)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.Nodes[name], plan.Labels[name] = Node{}, map[string]bool{"llama": true}
	}
	w.Nodes["gone"], plan.Labels["gone"] = Node{}, map[string]bool{"llama": true}
	var writes atomic.Int32
	api := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes.Add(1)
			_, bounded := ctx.Deadline()
			assert.True(t, bounded)
			if o.GetName() == "n7" {
				return apierrors.NewForbidden(corev1.Resource("nodes"), "n7", errors.New("the policy says no"))
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	c := New(t.Context(), Options{API: api, Log: logr.Discard()})
	defer c.Close()
	assert.Equal(t, now.Add(labelPause), c.writeLabels(t.Context(), w, plan))
	var list corev1.NodeList
	require.NoError(t, api.List(t.Context(), &list, client.HasLabels{podmeta.ModelLabel("llama")}))
	assert.Len(t, list.Items, nodes-1)

	writes.Store(0)
	for name := range w.Nodes {
		if name != "n7" {
			delete(w.Nodes, name)
		}
	}
	w.Now = now.Add(time.Second)
	assert.Equal(t, now.Add(labelPause), c.writeLabels(t.Context(), w, plan))
	assert.Zero(t, writes.Load(), "it is not tried again at once")
	w.Now = now.Add(labelPause)
	assert.Equal(t, w.Now.Add(labelPause), c.writeLabels(t.Context(), w, plan))
	assert.EqualValues(t, 1, writes.Load())
}
