package installation

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// An API server that keeps objects in memory stands in for a real one, which refuses
// nothing at will; the real one is in test/cluster/e2e (an uninstall).
func TestNodesAndModelCachesAreLetGoOfWhateverElseCannotBe(t *testing.T) {
	labelled := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{podmeta.ModelLabel("llama"): podmeta.ModelReady, "zone": "a"}}}
	}
	ours := map[string]string{"zone": "a"}
	all := map[string]string{podmeta.ModelLabel("llama"): podmeta.ModelReady, "zone": "a"}
	for name, c := range map[string]struct {
		faults    interceptor.Funcs
		namespace string
		says      string
		n1, n2    map[string]string
		finalizer bool
	}{
		"all is let go of": {n1: ours, n2: ours},
		"definitions are gone": {
			faults: interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*v1alpha1.ClusterModelCacheList); ok {
					return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "ClusterModelCache"}}
				}
				return c.List(ctx, list, opts...)
			}},
			n1: ours, n2: ours, finalizer: true,
		},
		"a node cannot be written": {
			faults: interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if o.GetName() == "n1" {
					return apierrors.NewForbidden(corev1.Resource("nodes"), "n1", errors.New("the policy says no"))
				}
				return c.Patch(ctx, o, p, opts...)
			}},
			says: "cannot remove the labels of models from node n1", n1: all, n2: ours,
		},
		"a release for one namespace has none": {namespace: "ns", n1: all, n2: all, finalizer: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
			cache := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "llama", Finalizers: []string{podmeta.FinalizerModelCache}}}
			claimed := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama", Finalizers: []string{podmeta.FinalizerModelCache}}}
			model := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama", Finalizers: []string{podmeta.FinalizerModel}}}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(labelled("n1"), labelled("n2"), cache, claimed, model).WithInterceptorFuncs(c.faults).Build()
			err := letGoOfModels(t.Context(), api, LetGoOptions{Namespace: c.namespace, Log: logr.Discard()})
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			for name, labels := range map[string]map[string]string{"n1": c.n1, "n2": c.n2} {
				var node corev1.Node
				require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: name}, &node))
				assert.Equal(t, labels, node.Labels, name)
			}
			require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "llama"}, cache))
			assert.Equal(t, c.finalizer, len(cache.Finalizers) > 0)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(claimed), claimed))
			assert.Empty(t, claimed.Finalizers)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(model), model))
			assert.Empty(t, model.Finalizers)
		})
	}
}

func TestOnlyLaunchersEndWithTheController(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	marks := map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm", podmeta.LabelManagedBy: podmeta.ManagedBy}
	controller := func(kind, name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "any/v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	}
	pod := func(name string, by []metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: marks, OwnerReferences: by}}
	}
	unmarked := func(name string, by []metav1.OwnerReference) *corev1.Pod { // somebody has taken a label that selects no launcher
		p := pod(name, by)
		p.Labels = map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm"}
		return p
	}
	set := func(name string, uid types.UID, by []metav1.OwnerReference) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, Labels: marks, OwnerReferences: by}}
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "config"}},
		set("vllm-launcher", "set", controller("LauncherConfig", "vllm", "config")), set("theirs-launcher", "theirs", nil),
		pod("of-the-set", controller("DaemonSet", "vllm-launcher", "set")), pod("of-the-config", controller("LauncherConfig", "vllm", "config")),
		unmarked("of-the-config-unmarked", controller("LauncherConfig", "vllm", "config")),
		pod("of-theirs", controller("DaemonSet", "theirs-launcher", "theirs")), pod("labels-alone", nil),
	).Build()
	require.NoError(t, LetGo(t.Context(), api, LetGoOptions{Engines: Stop, Log: logr.Discard()}), "strangers do not hold it up")
	var pods corev1.PodList
	var sets appsv1.DaemonSetList
	require.NoError(t, errors.Join(api.List(t.Context(), &pods), api.List(t.Context(), &sets)))
	var left []string
	for i := range pods.Items {
		left = append(left, pods.Items[i].Name)
	}
	assert.ElementsMatch(t, []string{"of-theirs", "labels-alone"}, left)
	require.Len(t, sets.Items, 1)
	assert.Equal(t, "theirs-launcher", sets.Items[0].Name)
}

func TestStoppedEnginesTakeTheSlicesOfTheirRequestersWithThem(t *testing.T) {
	slice := func(namespace, name, keeper string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelManagedBy: keeper}}}
	}
	for engines, left := range map[Engines][]string{Stop: {"theirs"}, Leave: {"ours", "theirs"}} {
		scheme := runtime.NewScheme()
		require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
		api := fake.NewClientBuilder().WithScheme(scheme).
			WithObjects(slice("ns", "ours", podmeta.ManagedByEndpoints), slice("ns", "theirs", "endpointslice-controller.k8s.io")).Build()
		require.NoError(t, LetGo(t.Context(), api, LetGoOptions{Deployment: client.ObjectKey{Namespace: "system", Name: "none"}, Engines: engines, Log: logr.Discard()}))
		var slices discoveryv1.EndpointSliceList
		require.NoError(t, api.List(t.Context(), &slices))
		var names []string
		for _, s := range slices.Items {
			names = append(names, s.Name)
		}
		assert.Equal(t, left, names, engines)
	}
}
