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

// tokens has Secrets, and a cache that has heard of some.
type tokens struct {
	client.Client // nil
	there         bool
	cached        []corev1.Secret
}

func (s *tokens) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*corev1.SecretList).Items = s.cached
	return nil
}

func (s *tokens) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if s.there {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, o.GetName())
	}
	s.there = true
	return nil
}

func TestWhatSomebodyMakesInPlaceOfWhatThePoolHadMadeIsSomebodyElses(t *testing.T) {
	api := &tokens{}
	pool, config := New(Options{API: api}), &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "uid"}}
	ensure := func() error { return pool.ensureToken(t.Context(), config, nil) }
	require.NoError(t, ensure())
	require.NoError(t, ensure(), "the cache has not heard of it")
	api.cached = []corev1.Secret{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: secretName(config), OwnerReferences: []metav1.OwnerReference{ownedBy(config)}},
		Data:       map[string][]byte{tokenKey: []byte("sesame")},
	}}
	require.NoError(t, ensure(), "the cache has heard of it")
	assert.Empty(t, pool.made, "what the cache knows need not be kept")
	api.cached = nil // it was deleted, and one that the cache does not show is there
	assert.ErrorContains(t, ensure(), "somebody else's")
}
