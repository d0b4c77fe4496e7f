package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
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
	assert.Equal(t, config("vllm"), configsOfNode(api)(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n7"}}))
	assert.True(t, deleted().Delete(event.DeleteEvent{}))
	assert.False(t, deleted().Update(event.UpdateEvent{}), "nodes change every few seconds")
}
