//go:build cluster && llamacpp

package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// realStandby is a Model whose standby is real llama-server on a processor, with its model on a claim.
const realStandby = `
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: e2e-llama-cpp}
spec:
  requests: {cpu: 10m}
  limits: {memory: 512Mi}
  images: {LlamaCpp: 'hotseat.local/llama-server:dev'}
---
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  scaleDownDelaySeconds: 3
specs:
- name: a
  url: hf://org/llama
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4]
- name: standby
  url: pvc://models/tiny-a.gguf
  engine: LlamaCpp
  resourceProfile: e2e-llama-cpp
  args: [--ctx-size, "256", --threads, "1", --no-warmup]
  minReplicas: 1
  targetRequests: 0
`

func TestLlamaServerOnAProcessorIsAStandby(t *testing.T) {
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	s := newPool(t, nil)
	folder := filepath.Join(filepath.Dir(filepath.Dir(real.Program)), "program")
	// The program finds its libraries beside it.
	program, base := filepath.Join(folder, "llama-server"), filepath.Join(folder, "libggml-base.so")
	require.NoError(t, s.cluster.LoadImage(t.Context(), "hotseat.local/llama-server:dev", images.Image{
		Files: map[string]string{program: program}, Links: map[string]string{"/usr/local/bin/llama-server": program, base: base + ".0"},
		Entrypoint: []string{program},
	}))
	s.modelClaim("models", filepath.Dir(real.ModelA))
	s.declare(realStandby)
	s.serves("llama", "standby (1)")
	assert.Equal(t, v1alpha1.RunsInPods, s.entry("llama", "standby").RunsIn)
	status, text := s.chat("llama")
	require.Equal(t, http.StatusOK, status, text)
	t.Log(text)
	assert.True(t, strings.Contains(text, `"timings"`), "llama-server tells its timings: %s", text)
	s.eventually("the preferred entry serves", func() bool {
		status, text = s.chat("llama")
		require.Equal(t, http.StatusOK, status, text)
		return s.model("llama").Status.Serving == "a (1)"
	})
	s.serves("llama", "standby (1)")
	status, text = s.chat("llama")
	require.Equal(t, http.StatusOK, status, text)
}

// modelClaim makes a claim to a folder of the machine, which all nodes have.
func (s *site) modelClaim(name, folder string) {
	s.t.Helper()
	size, kind := resource.MustParse("1Gi"), corev1.HostPathDirectory
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: s.ns, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: size},
	}}
	volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: folder, Type: &kind}
	require.NoError(s.t, s.api.Create(s.t.Context(), volume))
	s.t.Cleanup(func() { assert.NoError(s.t, s.api.Delete(context.Background(), volume)) })
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &s.ns, VolumeName: volume.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}}
	require.NoError(s.t, s.api.Create(s.t.Context(), claim))
}
