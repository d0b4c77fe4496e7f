package modelcache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestCacheOfAllNamespacesSaysWhetherItsModelIsAwaited(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.ClusterModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/m"}, NodeGroup: "all", OnMissing: v1alpha1.MissingWait,
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).Build()
	of := func(only, model string) *dualpods.ModelKeeper {
		t.Helper()
		keeper, wrong := ReadKeeper(api, only)(t.Context(), modelref.Name{Model: model}, "n1")
		assert.Empty(t, wrong)
		return keeper
	}
	require.NotNil(t, of("", "org/m"))
	assert.True(t, of("", "org/m").Waits)
	assert.Contains(t, of("", "org/m").Node, "n1")
	assert.Nil(t, of("", "org/other"))
	assert.Nil(t, of("", ""))
	assert.Nil(t, of("ours", "org/m"), "it is of the whole cluster")
	_, wrong := ReadKeeper(fake.NewClientBuilder().Build(), "")(t.Context(), modelref.Name{Model: "org/m"}, "n1") // its scheme has no such objects
	assert.NotEmpty(t, wrong)
}
