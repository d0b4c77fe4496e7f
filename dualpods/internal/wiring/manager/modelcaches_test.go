package manager

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestANamespaceSaysFromWhereItsEnginesHaveTheirModelsOrElseTheController(t *testing.T) {
	named := func(name, mode string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mode != "" {
			ns.Annotations = map[string]string{podmeta.AnnotationModelCache: mode, "other": "x"}
		}
		return ns
	}
	api := fake.NewClientBuilder().WithObjects(named("silent", ""), named("requires", "require"), named("usual", "auto"), named("wrong", "of")).Build()
	for name, c := range map[string]struct{ namespace, only, usual, mode, wrong string }{
		"the controller's flag":           {namespace: "silent", usual: "off", mode: "off"},
		"which is auto":                   {namespace: "silent", usual: "auto"},
		"the namespace":                   {namespace: "requires", usual: "off", mode: "require"},
		"the namespace, as usual":         {namespace: "usual", usual: "off", mode: "auto"},
		"a namespace that says no word":   {namespace: "wrong", usual: "off", wrong: `annotation hotseat.dev/model-cache of namespace wrong: "of" is none of auto`},
		"a namespace that is not there":   {namespace: "young", usual: "off", mode: "off"},
		"namespaces that are not read":    {namespace: "requires", only: "requires", usual: "off", mode: "off"},
		"nobody says anything, nor reads": {namespace: "requires", only: "requires"},
	} {
		mode, wrong := modelCacheOf(api, c.only, c.usual)(t.Context(), c.namespace)
		assert.Equal(t, c.mode, mode, name)
		if c.wrong == "" {
			assert.Empty(t, wrong, name)
		} else if assert.Len(t, wrong, 1, name) {
			assert.Contains(t, wrong[0].String(), c.wrong, name)
		}
	}
}

func TestThoseNodesAreLookedAtWhereAModelMayBeWaitedFor(t *testing.T) {
	api := pods{all: []corev1.Pod{launcherOn("n1", "vllm"), requesterOn("ours", "n2", "llama"), requesterOn("theirs", "n3", "llama")}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	looked := func() (nodes []string) {
		for queue.Len() > 0 {
			r, _ := queue.Get()
			queue.Done(r)
			nodes = append(nodes, r.Name)
		}
		slices.Sort(nodes)
		return nodes
	}
	before := &v1alpha1.ClusterModelCache{Spec: v1alpha1.ClusterModelCacheSpec{OnMissing: v1alpha1.MissingWait}}
	fetches, elsewhere := before.DeepCopy(), before.DeepCopy()
	fetches.Status.Nodes = []v1alpha1.ModelNode{{Node: "n3", State: v1alpha1.ModelNodeDownloading}}
	elsewhere.Spec.OnMissing = v1alpha1.MissingDownload
	events := waitingFor(api)
	events.Create(t.Context(), event.CreateEvent{Object: before}, queue)
	assert.Equal(t, []string{"n2", "n3"}, looked(), "it may be the one that counts")
	events.Delete(t.Context(), event.DeleteEvent{Object: before}, queue)
	assert.Equal(t, []string{"n2", "n3"}, looked())
	events.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: elsewhere}, queue)
	assert.Equal(t, []string{"n2", "n3"}, looked())
	events.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: fetches}, queue)
	assert.Equal(t, []string{"n3"}, looked())
	events.Update(t.Context(), event.UpdateEvent{ObjectOld: fetches, ObjectNew: fetches}, queue)
	assert.Empty(t, looked())
}

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
	ns := aNamespace()
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
