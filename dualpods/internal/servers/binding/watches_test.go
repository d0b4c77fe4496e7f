package binding

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// pods are those in the cache, with the indexes that the controllers make.
type pods struct {
	client.Client // nil
	all           []corev1.Pod
}

func (p pods) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
		return errors.New("copies all Pods, of which there may be thousands")
	}
	for _, pod := range p.all {
		if o.Namespace != "" && o.Namespace != pod.Namespace {
			continue
		}
		if o.FieldSelector != nil {
			if node, ok := o.FieldSelector.RequiresExactMatch(dualpods.IndexNode); ok && pod.Spec.NodeName != node {
				continue
			}
			if name, ok := o.FieldSelector.RequiresExactMatch(serverconfig.IndexConfig); ok && !slices.Contains(serverconfig.IndexedConfig(&pod), name) {
				continue
			}
		}
		list := into.(*corev1.PodList)
		list.Items = append(list.Items, pod)
	}
	return nil
}

func pod(namespace, node string, labels, annotations map[string]string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels, Annotations: annotations}}
	p.Spec.NodeName = node
	return p
}

func launcherOn(node, config string) corev1.Pod {
	return pod("ours", node, launcherpool.Labels(config), nil)
}

func requesterOn(namespace, node, config string) corev1.Pod {
	return pod(namespace, node, nil, map[string]string{podmeta.AnnotationInferenceServerConfig: config})
}

func names(requests []reconcile.Request) (nodes []string) {
	for _, r := range requests {
		nodes = append(nodes, r.Name)
	}
	slices.Sort(nodes)
	return nodes
}

func TestWhatChangesHasTheNodesLookedAtThatItConcerns(t *testing.T) {
	cache := pods{all: []corev1.Pod{
		launcherOn("n1", "vllm"), launcherOn("n2", "other"),
		requesterOn("ours", "n3", "llama"), requesterOn("ours", "n3", "llama"), requesterOn("ours", "n4", "qwen"), requesterOn("theirs", "n5", "llama"),
		pod("ours", "n6", nil, nil), requesterOn("ours", "", "llama"),
	}}
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "llama"}}
	assert.Equal(t, []string{"", "n3"}, names(nodesOfConfig(cache)(t.Context(), config)), "each once, and those without a node, for their input may be wrong")
	launchers := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "vllm"}}
	assert.Equal(t, []string{"n3", "n4"}, names(nodesOfNamespace(cache)(t.Context(), launchers)))
	assert.Equal(t, []string{"n1", "n3", "n4"}, names(nodesOfLauncherConfig(cache)(t.Context(), launchers)), "its launchers are such by it alone")
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "vllm-launcher"}}
	assert.Equal(t, []string{"n1"}, names(nodesOfDaemonSet(cache)(t.Context(), set)))
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Labels: launcherpool.Labels("vllm")}}
	assert.Equal(t, []string{"n1", "n3", "n4"}, names(nodesOfSecret(cache)(t.Context(), token)), "launchers that have it, and requesters that may wait for one")

	c := New(t.Context(), Options{}, logr.Discard())
	for node, p := range map[string]corev1.Pod{"n1": cache.all[0], "n3": cache.all[2], "": cache.all[7]} {
		assert.Equal(t, []string{node}, names(c.nodeOfPod(t.Context(), &p)))
	}

	other := cache.all[6]
	assert.Empty(t, c.nodeOfPod(t.Context(), &other), "a Pod that is neither")
}

func TestAStatusThatOnlyCountsHasNoNodeLookedAt(t *testing.T) {
	before := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	changed := func(change func(*v1alpha1.LauncherConfig)) bool {
		after := before.DeepCopy()
		change(after)
		return configChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	assert.False(t, changed(func(c *v1alpha1.LauncherConfig) { c.Status.Asleep, c.Status.SleepsOn = 3, "n1" }))
	assert.True(t, changed(func(c *v1alpha1.LauncherConfig) { c.Generation = 2 }))
	assert.True(t, changed(func(c *v1alpha1.LauncherConfig) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
	}))
}

func TestStatusOfANodeBeginsNoPass(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm"}}
	config.Spec.Population.NodeSelector = map[string]string{"zone": "a"}
	selects := nodeChanged(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build())
	unread := nodeChanged(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build())
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"gpu": "yes"}}}
	changed := func(change func(*corev1.Node)) bool {
		after := before.DeepCopy()
		change(after)
		return selects.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	assert.False(t, changed(func(n *corev1.Node) {
		n.ResourceVersion, n.Annotations = "2", map[string]string{"a": "b"}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"vllm"}}}
		n.Labels["model.hotseat.dev/llama"] = "ready"
	}))
	labelled := before.DeepCopy()
	labelled.Labels["model.hotseat.dev/llama"] = "ready"
	assert.True(t, unread.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: labelled}), "who selects it cannot be told")
	for name, change := range map[string]func(*corev1.Node){
		"it has a taint":                   func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} },
		"it is cordoned":                   func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"it is being deleted":              func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now },
		"it has a label that is asked for": func(n *corev1.Node) { n.Labels["zone"] = "a" },
		"it is another one":                func(n *corev1.Node) { n.UID = "u2" },
	} {
		assert.True(t, changed(change), name)
	}
	assert.True(t, selects.Create(event.CreateEvent{Object: before}))
	assert.True(t, selects.Delete(event.DeleteEvent{Object: before}))
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
		mode, wrong := ReadModelCache(api, c.only, c.usual)(t.Context(), c.namespace)
		assert.Equal(t, c.mode, mode, name)
		if c.wrong == "" {
			assert.Empty(t, wrong, name)
		} else if assert.Len(t, wrong, 1, name) {
			assert.Contains(t, wrong[0].String(), c.wrong, name)
		}
	}
}
