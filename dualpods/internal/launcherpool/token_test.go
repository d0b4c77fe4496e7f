package launcherpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

// secrets are those that the controller sees, by namespace and name.
type secrets struct {
	client.Client // nil
	tokens        map[client.ObjectKey]string
}

func (s secrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	token, ok := s.tokens[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	into.(*corev1.Secret).Data = map[string][]byte{"token": []byte(token)}
	return nil
}

func TestALauncherIsToldTheTokenThatItsPodMountsAndNoOther(t *testing.T) {
	pool := New(Options{API: secrets{tokens: map[client.ObjectKey]string{
		{Namespace: "ours", Name: "launcher-token"}: "sesame\n", {Namespace: "ours", Name: "other"}: "of something else",
	}}})
	mounting := func(namespace, secret, path string) *corev1.Pod {
		pod := launcherPod("l", "", func(p *corev1.Pod) { p.Labels = Labels("vllm") })
		pod.Namespace = namespace
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}
		pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: path}}}}
		return pod
	}
	assert.Equal(t, "sesame", pool.Token(mounting("ours", "launcher-token", "/etc/hotseat")))
	assert.Empty(t, pool.Token(mounting("theirs", "launcher-token", "/etc/hotseat")), "a Pod of another namespace")
	assert.Empty(t, pool.Token(mounting("ours", "launcher-token", "/elsewhere")))
	bare := mounting("ours", "launcher-token", "/etc/hotseat")
	bare.Spec.Containers = nil
	assert.Empty(t, pool.Token(bare), "labels alone")
}
