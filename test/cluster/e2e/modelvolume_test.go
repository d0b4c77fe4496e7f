//go:build cluster

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// mounting is a Pod that mounts the model of a cache at /models.
func (s *site) mounting(name, cache string, readOnly bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Volumes: []corev1.Volume{{Name: "model", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: "hotseat-model-" + cache, ReadOnly: readOnly,
			}}}},
			Containers: []corev1.Container{{
				Name: "c", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "GPU-none"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "model", MountPath: "/models"}},
			}},
		},
	}
}

func TestAPodOfAnotherNamespaceMountsAModelByItsClaimAndCannotWriteIt(t *testing.T) {
	s, other := newModelSite(t, nil), newBareSite(t)
	s.hub.Put("org/mounted", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte(`{"of": "mounted"}`)}})
	s.allReady()
	err := s.api.Create(t.Context(), other.mounting("writer", "tiny", false))
	require.ErrorContains(t, err, "volume model: the claim hotseat-model-tiny holds a model, which Pods must mount read-only: set readOnly: true in its persistentVolumeClaim")
	pod := other.mounting("reader", "tiny", true)
	require.NoError(t, s.api.Create(t.Context(), pod))
	other.eventually("an Event says that there is no such cache", func() bool {
		return strings.Contains(other.kubectl("get", "events", "--field-selector=reason=NoSuchModelCache", "-o", "jsonpath={.items[*].message}{.items[*].note}"), "there is no ClusterModelCache tiny")
	})

	c := s.keep("tiny", "org/mounted")
	other.eventually("the Pod runs", func() bool {
		return s.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && readyOrRuns(pod)
	})
	file := filepath.Join(filepath.Dir(filepath.Dir(s.networkOf(t, pod.Name))), "root", "models", "config.json")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, `{"of": "mounted"}`, string(text))
	_, err = os.OpenFile(file, os.O_WRONLY, 0)
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorIs(t, os.Remove(file), syscall.EROFS)

	other.apply("examples/model-volume/engine.yaml")
	other.kubectl("rollout", "status", "deployment/own-engine", "--timeout="+patience.Wait().String())
	other.kubectl("delete", "deployment/own-engine")
	other.gone("own-engine")
	user := "Pod " + other.ns + "/reader"
	status := s.told(c.Name, "it is in use", func(s *v1alpha1.ClusterModelCacheStatus) bool { return s.InUse == 1 })
	assert.Equal(t, "hotseat-model-tiny", status.Claim)
	assert.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionMountable))
	if s.asksBeforeDeletions() {
		s.refusesDeletion(c, "on node "+pod.Spec.NodeName+" by "+user)
	} else {
		require.NoError(t, s.api.Delete(t.Context(), c, client.DryRunAll))
	}

	other.kubectl("patch", "pod/reader", "--type=merge", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	other.eventually("the Pod has finished, and uses no copy", func() bool {
		return s.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && pod.Status.Phase == corev1.PodFailed
	})
	s.told(c.Name, "it is not in use", func(s *v1alpha1.ClusterModelCacheStatus) bool { return s.InUse == 0 })
	next := other.mounting("next", "tiny", true)
	require.NoError(t, s.api.Create(t.Context(), next))
	other.eventually("the next Pod mounts it, though the first is there still", func() bool {
		return s.api.Get(t.Context(), client.ObjectKeyFromObject(next), next) == nil && readyOrRuns(next)
	})
	require.NoError(t, s.api.Delete(t.Context(), next))
	require.NoError(t, s.api.Delete(t.Context(), pod))
	other.eventually("claim and volume are gone", func() bool {
		var claim corev1.PersistentVolumeClaim
		var volume corev1.PersistentVolume
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKey{Namespace: other.ns, Name: "hotseat-model-tiny"}, &claim)) &&
			apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKey{Name: "hotseat-model-tiny." + other.ns}, &volume))
	})
	require.NoError(t, s.api.Delete(t.Context(), c))
}
