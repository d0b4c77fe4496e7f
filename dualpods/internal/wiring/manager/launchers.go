package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gather is how long changes of launchers are gathered before their
// LauncherConfig is looked at: its counts are for people.
const gather = 200 * time.Millisecond

// setUpPool has the pool look at a LauncherConfig whenever something of it changes.
func setUpPool(ctx context.Context, mgr ctrl.Manager, pool *launcherpool.Pool, counts *requests) error {
	index := func(o client.Object) []string { return launcherpool.IndexedConfig(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, launcherpool.IndexConfig, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("launcherpool").
		For(&v1alpha1.LauncherConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&appsv1.DaemonSet{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(configOfSecret)).
		Watches(&corev1.Pod{}, launcherEvents()).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, handler.EnqueueRequestsFromMapFunc(configsOfGroup(mgr.GetClient())), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(configsOfClaim(mgr.GetClient())), builder.WithPredicates(comesOrGoes())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(configsOfNode(mgr.GetClient())), builder.WithPredicates(goneOnly())).
		WatchesRawSource(source.Func(counts.begin)).
		Complete(pool)
}

// configOfSecret is the LauncherConfig that a Secret is labelled for, its own or not.
func configOfSecret(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[podmeta.LabelLauncherConfig]}}}
}

// goneOnly lets through what is gone.
func goneOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}

// comesOrGoes lets through what is new, and what is gone.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// configsOfNode are the LauncherConfigs of the launchers that were made for a node
// and not placed.
func configsOfNode(api client.Client) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []reconcile.Request {
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.MatchingFields{dualpods.IndexNode: ""}, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var all []reconcile.Request
		for i := range pods.Items {
			pod := &pods.Items[i]
			for _, config := range launcherpool.IndexedConfig(pod) {
				if launcherpool.NodeOf(pod) == node.GetName() {
					all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: config}})
				}
			}
		}
		return all
	}
}

// launcherEvents have the LauncherConfig of a launcher Pod looked at, a moment later.
func launcherEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(o client.Object, q queue) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		for _, config := range launcherpool.IndexedConfig(pod) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: config}}, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

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

// configsOfClaim are the LauncherConfigs whose launchers mount a claim.
func configsOfClaim(api client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (these []reconcile.Request) {
		var configs v1alpha1.LauncherConfigList
		if err := api.List(ctx, &configs, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		for i := range configs.Items {
			if of := configs.Items[i].Spec.ModelCache; of != nil && slices.Contains(of.Claims, o.GetName()) {
				these = append(these, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
			}
		}
		return these
	}
}

// configsOfGroup are the LauncherConfigs whose launchers have the models of a group.
func configsOfGroup(api client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var configs v1alpha1.LauncherConfigList
		if err := api.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var these []reconcile.Request
		for i := range configs.Items {
			if of := configs.Items[i].Spec.ModelCache; of != nil && of.NodeGroup == o.GetName() {
				these = append(these, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
			}
		}
		return these
	}
}
