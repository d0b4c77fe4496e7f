package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestSecretAndNodeConcernTheirLauncherConfigs(t *testing.T) {
	config := func(name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}}}
	}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: Labels("vllm")}}
	assert.Equal(t, config("vllm"), configOfSecret(t.Context(), token))

	launcher := func(name, node, config string) *corev1.Pod {
		pod := pending(node)
		pod.Name, pod.Labels = name, Labels(config)
		return pod
	}
	placed := launcher("placed", "n7", "placed")
	placed.Spec.NodeName = "n7"
	api := fake.NewClientBuilder().
		WithObjects(launcher("a", "n7", "vllm"), launcher("b", "n8", "other"), placed, asking("llama", func(pod *corev1.Pod) { pod.Spec.NodeName = "" })).
		WithIndex(&corev1.Pod{}, dualpods.IndexNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{List: listed}).Build()
	assert.Equal(t, append(config("vllm"), config("placed")...), configsOfNode(api)(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n7"}}))
	assert.True(t, changesPlaces().Delete(event.DeleteEvent{}))
	plain := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n7"}}
	for name, change := range map[string]func(*corev1.Node){
		"relabelled": func(n *corev1.Node) { n.Labels = map[string]string{"pool": "yes"} },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
		},
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
	} {
		changed := plain.DeepCopy()
		change(changed)
		assert.True(t, changesPlaces().Update(event.UpdateEvent{ObjectOld: changed, ObjectNew: plain}), name)
		assert.True(t, changesPlaces().Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: changed}), name)
	}
	heard := plain.DeepCopy()
	heard.Status.Phase = "changed"
	assert.False(t, changesPlaces().Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: heard}), "nodes change every few seconds")
}

func TestObjectConcernsTheLauncherConfigsThatUseIt(t *testing.T) {
	config := func(namespace, name string, of *v1alpha1.LauncherModelCache) *v1alpha1.LauncherConfig {
		c := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		c.Spec.ModelCache = of
		return c
	}
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	uses := &v1alpha1.LauncherModelCache{NodeGroup: "gpu", Claims: []string{"models"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config("a", "plain", nil), config("a", "uses", uses), config("b", "uses", uses)).Build()
	named := func(requests []reconcile.Request) (names []string) {
		for _, r := range requests {
			names = append(names, r.String())
		}
		return names
	}
	group, claim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "models"}}
	assert.Equal(t, []string{"a/plain", "a/uses", "b/uses"}, named(configsThat(api, anyConfig)(t.Context(), group)))
	assert.Equal(t, []string{"a/uses", "b/uses"}, named(configsThat(api, namesGroup)(t.Context(), group)))
	assert.Equal(t, []string{"b/uses"}, named(configsThat(api, mountsClaim)(t.Context(), claim)), "a claim is of one namespace")
}
