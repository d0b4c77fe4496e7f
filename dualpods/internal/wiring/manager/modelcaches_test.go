package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestANodeIsLookedAtWhenItsLauncherHasOtherModelsWhole(t *testing.T) {
	queued := func() (*requests, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		var r requests
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(queue.ShutDown)
		require.NoError(t, r.begin(t.Context(), queue))
		return &r, queue
	}
	nodes, looked := queued()
	models, told := queued()
	heard := ears{nodeOf: func(launcher string) (string, bool) { return "n1", launcher == "one" }, nodes: nodes, models: models}
	heard.modelsChanged("one", false)
	assert.Equal(t, 1, told.Len())
	assert.Zero(t, looked.Len(), "more of one is fetched")
	heard.modelsChanged("of before", true)
	assert.Zero(t, looked.Len(), "nobody knows it")
	heard.modelsChanged("one", true)
	assert.Equal(t, 1, looked.Len())
}

func TestOfNamespacesIsCachedFromWhereTheirModelsComeAlone(t *testing.T) {
	ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	ns.Name, ns.Labels, ns.Annotations = "n", map[string]string{"a": "b"}, map[string]string{podmeta.AnnotationModelCache: "off", "other": "x"}
	got, err := slim(ns)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{podmeta.AnnotationModelCache: "off"}, got.(*metav1.PartialObjectMetadata).Annotations)
	assert.Empty(t, got.(*metav1.PartialObjectMetadata).Labels)
}

func TestWhatCouldNotBeMadeIsTriedAgainSoon(t *testing.T) {
	limiter := triedAgain().RateLimiter
	for range 100 {
		assert.LessOrEqual(t, limiter.When(reconcile.Request{}), longestRetry)
	}
}
