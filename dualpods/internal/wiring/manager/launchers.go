package manager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// configChanged lets through what changes which launchers a LauncherConfig gives.
func configChanged() predicate.Predicate {
	usable := func(o client.Object) string {
		config, ok := o.(*v1alpha1.LauncherConfig)
		if !ok {
			return ""
		}
		c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil {
			return ""
		}
		return string(c.Status) + c.Message
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || usable(e.ObjectOld) != usable(e.ObjectNew)
	}}
}

// nodesOfNamespace are those of the requesters in the namespace of an object.
func nodesOfNamespace(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, _ client.Object) bool { return podmeta.IsRequester(pod) })
}

// nodesOfSecret are those of the launchers that may have a token, and of the
// requesters that may wait for one.
func nodesOfSecret(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, secret client.Object) bool {
		return podmeta.IsRequester(pod) || dualpods.IsLauncher(pod) && pod.Labels[podmeta.LabelLauncherConfig] == secret.GetLabels()[podmeta.LabelLauncherConfig]
	})
}

// nodesOf are those of the Pods in the namespace of an object that concern it.
func nodesOf(api client.Client, concerns func(*corev1.Pod, client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var all []reconcile.Request
		seen := map[string]bool{"": true}
		for i := range pods.Items {
			if node := pods.Items[i].Spec.NodeName; !seen[node] && concerns(&pods.Items[i], o) {
				seen[node] = true
				all = append(all, request(node)...)
			}
		}
		return all
	}
}
