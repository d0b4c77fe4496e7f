package launcherpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// fixed is an authority that never changes.
type fixed struct{ now *authority.Authorities }

func (f fixed) Current(context.Context) (*authority.Authorities, error) { return f.now, nil }

func fixedAuthority(t *testing.T) fixed {
	t.Helper()
	made, _, err := authority.Next(nil, false, time.Now())
	require.NoError(t, err)
	return fixed{made}
}

// secrets is an API with Secrets that have tokens, by namespace and name.
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

func TestLauncherGetsOnlyTheTokenThatItsPodMounts(t *testing.T) {
	pool := New(Options{API: secrets{tokens: map[client.ObjectKey]string{
		{Namespace: "ours", Name: "launcher-token"}: "sesame\n", {Namespace: "ours", Name: "other"}: "of something else", {Namespace: "ours", Name: "empty"}: "\n",
	}}})
	mounting := func(namespace, secret, path string) *corev1.Pod {
		pod := launcherPod("l", "", func(p *corev1.Pod) { p.Labels = Labels("vllm") })
		pod.Namespace = namespace
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}
		pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: path}}}}
		return pod
	}
	assert.Equal(t, nodeview.Access{Token: "sesame"}, pool.Access(mounting("ours", "launcher-token", "/etc/hotseat")))
	bare := mounting("ours", "launcher-token", "/etc/hotseat")
	bare.Spec.Containers = nil
	for what, c := range map[string]struct {
		pod *corev1.Pod
		why string
	}{
		"a Pod of another namespace": {mounting("theirs", "launcher-token", "/etc/hotseat"), "cannot read the Secret launcher-token that it mounts"},
		"a Secret mounted elsewhere": {mounting("ours", "launcher-token", "/elsewhere"), "it mounts no Secret at /etc/hotseat"},
		"labels alone":               {bare, "it mounts no Secret at /etc/hotseat"},
		"a Secret without a token":   {mounting("ours", "empty", "/etc/hotseat"), "the Secret empty that it mounts has no token"},
	} {
		got := pool.Access(c.pod)
		assert.Contains(t, got.Refused, c.why, what)
		assert.Equal(t, nodeview.Access{Refused: got.Refused}, got, what)
	}
}

func TestLauncherWithClientCAGetsNoToken(t *testing.T) {
	pool := New(Options{API: secrets{tokens: map[client.ObjectKey]string{{Namespace: "ours", Name: "s"}: "sesame"}}})
	pod := launcherPod("l", "", func(p *corev1.Pod) { p.Labels = Labels("vllm") })
	template, problems := Template(configOf(t, plain), image, "s", nil, "")
	require.Empty(t, problems)
	pod.Namespace, pod.Spec = "ours", template.Spec
	assert.Equal(t, nodeview.Access{Name: "vllm.ours.launchers.hotseat.dev"}, pool.Access(pod))
}

func TestMountedSecretsAreRenewed(t *testing.T) {
	token := tlsSecret(func(s *corev1.Secret) {
		s.Name, s.Data = "vllm-launcher-token", map[string][]byte{tokenKey: []byte("sesame")}
	})
	before := tlsSecret(func(s *corev1.Secret) { s.Name = "vllm-launcher-tls-before" })
	unused := tlsSecret(func(s *corev1.Secret) { s.Name = "vllm-launcher-tls-unused" })
	pool, config, _ := poolOf(t, v1alpha1.PerNode, token, before, unused)
	mounting := func(secret string) *corev1.Pod {
		template, _ := Template(config, image, secret, nil, "")
		return &corev1.Pod{Spec: template.Spec}
	}
	ca := pool.opts.Authority.(fixed).now
	_, err := pool.ensureSecrets(t.Context(), config, ca, []*corev1.Pod{mounting(token.Name), mounting(before.Name)})
	require.NoError(t, err)
	var all corev1.SecretList
	require.NoError(t, pool.opts.API.List(t.Context(), &all))
	good := map[string]bool{}
	for i := range all.Items {
		_, good[all.Items[i].Name] = hasValidCertificate(&all.Items[i], config, ca, time.Now())
	}
	assert.Equal(t, map[string]bool{"vllm-launcher-tls": true, before.Name: true, token.Name: false}, good, "a token Secret stays as it is")
}
