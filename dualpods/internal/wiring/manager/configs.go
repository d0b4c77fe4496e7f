package manager

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gatherConfigs is how long changes are gathered before an InferenceServerConfig
// is looked at: what its status counts is for people, and what it names may be
// made a moment after it, from the same folder.
const gatherConfigs = time.Second

// setUpConfigs has an InferenceServerConfig looked at whenever something of it
// changes. The status of its LauncherConfig tells of instances that fall asleep.
func setUpConfigs(ctx context.Context, mgr ctrl.Manager, configs *serverconfig.Controller) error {
	index := func(o client.Object) []string { return serverconfig.IndexedConfig(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, serverconfig.IndexConfig, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	ofPod := func(_ context.Context, o client.Object) []client.ObjectKey {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil
		}
		var keys []client.ObjectKey
		for _, name := range serverconfig.IndexedConfig(pod) {
			keys = append(keys, client.ObjectKey{Namespace: pod.Namespace, Name: name})
		}
		return keys
	}
	itself := func(_ context.Context, o client.Object) []client.ObjectKey {
		return []client.ObjectKey{client.ObjectKeyFromObject(o)}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("serverconfig").
		Watches(&v1alpha1.InferenceServerConfig{}, later(itself), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, later(ofPod)).
		Watches(&v1alpha1.LauncherConfig{}, later(configsOfLauncherConfig(mgr.GetClient()))).
		Complete(configs)
}

// configsOfLauncherConfig are those that name a LauncherConfig.
func configsOfLauncherConfig(api client.Client) func(context.Context, client.Object) []client.ObjectKey {
	return func(ctx context.Context, o client.Object) []client.ObjectKey {
		var all v1alpha1.InferenceServerConfigList
		if err := api.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var keys []client.ObjectKey
		for i := range all.Items {
			if all.Items[i].Spec.LauncherConfigName == o.GetName() {
				keys = append(keys, client.ObjectKeyFromObject(&all.Items[i]))
			}
		}
		return keys
	}
}

// later has what an object concerns looked at when gatherConfigs is over.
func later(concerns func(context.Context, client.Object) []client.ObjectKey) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			for _, key := range concerns(ctx, o) {
				q.AddAfter(reconcile.Request{NamespacedName: key}, gatherConfigs)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}
