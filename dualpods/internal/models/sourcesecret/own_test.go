package sourcesecret

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// An API server that keeps objects in memory stands in for the real one, and for the
// watch of it; the real ones are in test/cluster/e2e.
func TestASecretIsReadAgainOnceItHasChanged(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "hub"}, Data: map[string][]byte{"HF_TOKEN": []byte("a")}}
	reads := 0
	api := fake.NewClientBuilder().WithObjects(secret).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, whole := o.(*corev1.Secret); whole {
				reads++
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	s := &OwnSecrets{heard: api, api: api, read: map[string]*corev1.Secret{}}
	value := func() string {
		t.Helper()
		is, err := s.Get(t.Context(), client.ObjectKeyFromObject(secret))
		require.NoError(t, err)
		return string(is.Data["HF_TOKEN"])
	}
	for range 3 {
		assert.Equal(t, "a", value())
	}
	assert.Equal(t, 1, reads)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	secret.Data["HF_TOKEN"] = []byte("b")
	require.NoError(t, api.Update(t.Context(), secret))
	assert.Equal(t, "b", value())
	require.NoError(t, api.Delete(t.Context(), secret))
	_, err := s.Get(t.Context(), client.ObjectKeyFromObject(secret))
	assert.True(t, apierrors.IsNotFound(err))
	assert.Empty(t, s.read, "what is gone is not kept")
}

func TestOfTheSecretsThatAreWatchedNothingIsKeptThatMayHaveAValueInIt(t *testing.T) {
	is := aSecret()
	is.Name, is.ResourceVersion, is.Annotations = "hub", "7", map[string]string{corev1.LastAppliedConfigAnnotation: `{"data": {"HF_TOKEN": "aGY="}}`}
	kept, err := versionAlone(is)
	require.NoError(t, err)
	assert.Equal(t, &metav1.PartialObjectMetadata{TypeMeta: is.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "hub", ResourceVersion: "7"}}, kept)
}
