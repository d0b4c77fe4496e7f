package serverconfig

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

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gatherPeriod is the delay before a changed InferenceServerConfig is reconciled. Its
// status counts for people, and what it names may be created a moment later, from the
// same folder.
const gatherPeriod = time.Second

// SetupWithManager indexes Pods by [IndexConfig], and reconciles an
// InferenceServerConfig when it changes, a Pod that names it, or its LauncherConfig.
// The status of the LauncherConfig changes when instances fall asleep.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	index := func(o client.Object) []string { return IndexedConfig(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexConfig, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("serverconfig").
		Watches(&v1alpha1.InferenceServerConfig{}, later(itself), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, later(configOfPod)).
		Watches(&v1alpha1.LauncherConfig{}, later(configsOfLauncherConfig(mgr.GetClient()))).
		Complete(c)
}

// concerns returns the InferenceServerConfigs that an object concerns.
type concerns func(context.Context, client.Object) []client.ObjectKey

func itself(_ context.Context, o client.Object) []client.ObjectKey {
	return []client.ObjectKey{client.ObjectKeyFromObject(o)}
}

// configOfPod returns the InferenceServerConfig that a Pod names.
func configOfPod(_ context.Context, o client.Object) (keys []client.ObjectKey) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	for _, name := range IndexedConfig(pod) {
		keys = append(keys, client.ObjectKey{Namespace: pod.Namespace, Name: name})
	}
	return keys
}

// configsOfLauncherConfig returns the InferenceServerConfigs that name a LauncherConfig.
func configsOfLauncherConfig(api client.Client) concerns {
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

// later enqueues what an object concerns, after gatherPeriod.
func later(of concerns) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			for _, key := range of(ctx, o) {
				q.AddAfter(reconcile.Request{NamespacedName: key}, gatherPeriod)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}
