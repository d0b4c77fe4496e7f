package launcherpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// secretsOnly is an API with one Secret and a cache that may not show it yet.
type secretsOnly struct {
	client.Client // nil
	made          *corev1.Secret
	cached        []corev1.Secret
}

func (s *secretsOnly) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*corev1.SecretList).Items = s.cached
	return nil
}

func (s *secretsOnly) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if s.made != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, o.GetName())
	}
	s.made = o.(*corev1.Secret)
	return nil
}

func TestRecreatedSecretOfAnotherOwnerIsRefused(t *testing.T) {
	api := &secretsOnly{}
	pool, config := New(Options{API: api}), &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "uid"}}
	ca := fixedAuthority(t).now
	ensure := func() error { _, err := pool.ensureSecrets(t.Context(), config, ca, nil); return err }
	require.NoError(t, ensure())
	require.NoError(t, ensure(), "the cache does not show it yet")
	api.cached = []corev1.Secret{*api.made}
	require.NoError(t, ensure(), "the cache shows it")
	assert.Empty(t, pool.unconfirmed, "a Secret in the cache is not tracked any more")
	api.cached = nil // it was deleted, and another owner created one
	assert.ErrorContains(t, ensure(), "belongs to another owner")
}
