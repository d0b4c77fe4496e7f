package modelclaim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestAModelCacheIsLookedAtWhenItsAccountOrASecretThatThisMayListChanges(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	cache := func(namespace, name, secret, account string) *v1alpha1.ModelCache {
		c := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.ModelCacheSpec{
			Credentials: &v1alpha1.ModelClaimCredentials{ServiceAccountName: account},
		}}
		if secret != "" {
			c.Spec.Credentials.SecretRef = &v1alpha1.SecretReference{Name: secret}
		}
		return c
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		cache("ours", "secret", "hub", ""), cache("ours", "account", "", "reader"), cache("ours", "both", "hub", "reader"), cache("theirs", "account", "", "reader"),
		&v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "none"}},
	).Build()
	names := func(all []reconcile.Request) (names []string) {
		for _, r := range all {
			assert.Equal(t, "ours", r.Namespace)
			names = append(names, r.Name)
		}
		return names
	}
	of := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ours", Name: name} }
	assert.ElementsMatch(t, []string{"secret", "account", "both"}, names(CachesOfSecret(t.Context(), api, of("hub"))))
	assert.ElementsMatch(t, []string{"account"}, names(CachesOfSecret(t.Context(), api, of("another"))))
	assert.ElementsMatch(t, []string{"account", "both"}, names(CachesOfAccount(t.Context(), api, of("reader"))))
	assert.Empty(t, CachesOfAccount(t.Context(), api, of("another")))
}
