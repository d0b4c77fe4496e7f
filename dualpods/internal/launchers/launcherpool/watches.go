package launcherpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// GatherPeriod is the delay between a change of a launcher and the reconciliation of its
// LauncherConfig, whose counts are for people.
const GatherPeriod = 200 * time.Millisecond

// SetupWithManager indexes Pods by [IndexConfig], and reconciles a LauncherConfig when
// something of it changes. Requests for what these watches do not report come from
// others.
func (p *Pool) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source) error {
	index := func(o client.Object) []string { return IndexedConfig(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexConfig, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	api := mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).Named("launcherpool").
		Watches(&schedulingv1.PriorityClass{}, handler.EnqueueRequestsFromMapFunc(configsThat(api, anyConfig)), builder.WithPredicates(CreatedOrDeleted())).
		For(&v1alpha1.LauncherConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&appsv1.DaemonSet{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(configOfSecret)).
		Watches(&corev1.Pod{}, launcherEvents()).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, handler.EnqueueRequestsFromMapFunc(configsThat(api, namesGroup)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(configsThat(api, mountsClaim)), builder.WithPredicates(CreatedOrDeleted())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(configsOfNode(api)), builder.WithPredicates(changesPlaces())).
		WatchesRawSource(others).
		Complete(p)
}

// CreatedOrDeleted accepts everything but updates.
func CreatedOrDeleted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// launcherEvents enqueues the LauncherConfig of a launcher Pod, after GatherPeriod.
func launcherEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(o client.Object, q queue) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		for _, config := range IndexedConfig(pod) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: config}}, GatherPeriod)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// configOfSecret returns the LauncherConfig that a Secret is labelled for, whether the
// LauncherConfig owns the Secret or not.
func configOfSecret(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[podmeta.LabelLauncherConfig]}}}
}

// configsOfNode returns the LauncherConfigs of the launchers on a node, and of those that
// were created for it and are not scheduled.
func configsOfNode(api client.Client) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []reconcile.Request {
		var all []reconcile.Request
		for _, at := range []string{"", node.GetName()} {
			var pods corev1.PodList
			if err := api.List(ctx, &pods, client.MatchingFields{dualpods.IndexNode: at}, client.UnsafeDisableDeepCopy); err != nil {
				return nil
			}
			for i := range pods.Items {
				pod := &pods.Items[i]
				for _, config := range IndexedConfig(pod) {
					if NodeOf(pod) == node.GetName() {
						all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: config}})
					}
				}
			}
		}
		return all
	}
}

// configsThat returns the LauncherConfigs that an object concerns: those of its namespace, or
// of all if it has none.
func configsThat(api client.Reader, concerns func(of *v1alpha1.LauncherConfig, o client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (these []reconcile.Request) {
		var configs v1alpha1.LauncherConfigList
		if err := api.List(ctx, &configs, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		for i := range configs.Items {
			if concerns(&configs.Items[i], o) {
				these = append(these, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
			}
		}
		return these
	}
}

func anyConfig(*v1alpha1.LauncherConfig, client.Object) bool { return true }

// namesGroup reports whether the launchers of a LauncherConfig have the models of a group.
func namesGroup(config *v1alpha1.LauncherConfig, group client.Object) bool {
	of := config.Spec.ModelCache
	return of != nil && of.NodeGroup == group.GetName()
}

// mountsClaim reports whether the launchers of a LauncherConfig mount a claim.
func mountsClaim(config *v1alpha1.LauncherConfig, claim client.Object) bool {
	of := config.Spec.ModelCache
	return of != nil && slices.Contains(of.Claims, claim.GetName())
}
