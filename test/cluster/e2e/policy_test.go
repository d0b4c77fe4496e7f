//go:build cluster

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestOnlyTheControllerWritesRecordsAndStatus(t *testing.T) {
	s := newSite(t)
	s.apply("examples/dual-pods/requesters.yaml")
	requester := s.served("model-a", 1)[0]
	launcher := *s.pod("launcher-node-1")
	record := podmeta.AnnotationBindingPrefix + s.records("launcher-node-1")[0].Instance

	// change edits the newest version of a Pod as the cluster's administrator.
	change := func(pod corev1.Pod, edit func(annotations map[string]string)) error {
		now := s.pod(pod.Name)
		was := now.DeepCopy()
		edit(now.Annotations)
		return api.Patch(t.Context(), now, client.MergeFrom(was))
	}
	// changeStatus does so as the kubelet does, which writes the status.
	changeStatus := func(pod corev1.Pod, edit func(*corev1.Pod)) error {
		now := s.pod(pod.Name)
		was := now.DeepCopy()
		edit(now)
		return api.Status().Patch(t.Context(), now, client.StrategicMergeFrom(was))
	}
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"a record that is made up": {change(launcher, func(a map[string]string) { a[podmeta.AnnotationBindingPrefix+"x"] = "{}" }),
			"only the controller of hotseat writes the annotation " + podmeta.AnnotationBindingPrefix + "x"},
		"a record that is changed": {change(launcher, func(a map[string]string) { a[record] = "{}" }),
			"only the controller of hotseat writes the annotation " + record},
		"a record that is removed": {change(launcher, func(a map[string]string) { delete(a, record) }),
			"only the controller of hotseat removes the annotation " + record},
		"a status that is changed": {change(requester, func(a map[string]string) { a[podmeta.AnnotationStatus] = "{}" }),
			"only the controller of hotseat writes the annotation " + podmeta.AnnotationStatus},
		"labels that the controller would take for its own": {change(requester, func(a map[string]string) { a[podmeta.AnnotationRelayedLabels] = `["app"]` }),
			"only the controller of hotseat writes the annotation " + podmeta.AnnotationRelayedLabels},
		"a launcher that is said to be idle": {change(launcher, func(a map[string]string) { a[podmeta.AnnotationUnboundSince] = "2000-01-01T00:00:00Z" }),
			"only the controller of hotseat writes the annotation " + podmeta.AnnotationUnboundSince},
		"a record that is removed with the status": {changeStatus(launcher, func(p *corev1.Pod) { delete(p.Annotations, record) }),
			"only the controller of hotseat removes the annotation " + record},
		"a status that is changed with that of the Pod": {changeStatus(requester, func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationStatus] = "{}" }),
			"only the controller of hotseat writes the annotation " + podmeta.AnnotationStatus},
		"a Pod that is made with a record": {api.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "forged", Annotations: map[string]string{podmeta.AnnotationBindingPrefix + "x": "{}"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}), "only the controller of hotseat writes the annotation"},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err), "%s: %v", name, denied.err)
		require.ErrorContains(t, denied.err, denied.says, name)
	}
	require.NoError(t, change(requester, func(a map[string]string) { a["example.com/note"] = time.Now().String() }), "other annotations are anybody's")
	require.NoError(t, changeStatus(requester, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/noted", Status: corev1.ConditionTrue})
	}), "so is the rest of the status")
	s.answers("model-a")
}
