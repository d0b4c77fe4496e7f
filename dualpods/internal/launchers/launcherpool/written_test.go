package launcherpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sets is an API with one DaemonSet. It fills in defaults as the API server does.
type sets struct {
	client.Client // nil
	set           *appsv1.DaemonSet
	writes        int
}

func (s *sets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.set == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "daemonsets"}, key.Name)
	}
	s.set.DeepCopyInto(into.(*appsv1.DaemonSet))
	return nil
}

func (s *sets) write(o client.Object) error {
	s.writes++
	set := o.(*appsv1.DaemonSet)
	set.UID = "set"
	for i := range set.Spec.Template.Spec.Containers {
		if probe := set.Spec.Template.Spec.Containers[i].ReadinessProbe; probe != nil && probe.TimeoutSeconds == 0 {
			probe.TimeoutSeconds = 1
		}
	}
	set.Generation++
	s.set = set.DeepCopy()
	return nil
}

func (s *sets) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return s.write(o)
}

func (s *sets) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.write(o)
}

func TestDaemonSetIsWrittenAgainOnlyAfterAChange(t *testing.T) {
	api := &sets{}
	pool, config := New(Options{API: api}), &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "uid"}}
	found := &observation{config: config}
	found.template.Annotations = map[string]string{"hotseat.dev/template-hash": "1"}
	found.template.Spec.Containers = []corev1.Container{{Name: "inference-server", Image: "vllm", ReadinessProbe: &corev1.Probe{PeriodSeconds: 1}}}
	ensure := func() { require.NoError(t, pool.ensureDaemonSet(t.Context(), found)) }
	for range 3 {
		ensure()
	}
	assert.Equal(t, 1, api.writes, "defaults are no change")
	found.template.Annotations = map[string]string{"hotseat.dev/template-hash": "2"}
	ensure()
	ensure()
	assert.Equal(t, 2, api.writes)
	api.set.Generation++
	api.set.Spec.Template.Spec.Containers[0].Image = "another image"
	ensure()
	ensure()
	assert.Equal(t, 3, api.writes)
	assert.Equal(t, "vllm", api.set.Spec.Template.Spec.Containers[0].Image)
	pool = New(Options{API: api})
	ensure()
	ensure()
	assert.Equal(t, 4, api.writes, "a new controller does not know the last writer")
}
