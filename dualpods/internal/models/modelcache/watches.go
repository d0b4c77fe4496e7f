package modelcache

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [IndexStore], and runs a pass whenever something
// changes that the caches depend on. others is the source of requests for changes that these
// watches do not report. Caches are cluster-scoped: a controller that watches one namespace
// does not call SetupWithManager.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source) error {
	index := func(o client.Object) []string { return IndexedStore(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexStore, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("modelcache").
		Watches(&v1alpha1.ClusterModelCache{}, pass).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, pass).
		Watches(&v1alpha1.LauncherConfig{}, pass, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, pass, builder.WithPredicates(nodeChanged())).
		Watches(&corev1.Pod{}, pass, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && (len(IndexedStore(pod)) > 0 || modelvolume.NamesModel(pod))
		}))).
		WatchesRawSource(others).
		Complete(c)
}

// nodeChanged accepts a change of whether a node is to have models, or of whether its
// launchers can be reached.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, too := e.ObjectNew.(*corev1.Node)
		return !ok || !too || !maps.Equal(before.Labels, after.Labels) || Down(before) != Down(after)
	}}
}

// LaunchersOf returns the launchers that nodeview watches.
func LaunchersOf(views *nodeview.Set) Launchers { return launchersOf{views} }

type launchersOf struct{ *nodeview.Set }

func (l launchersOf) Client(key string) Client {
	if c := l.Set.Client(key); c != nil {
		return c
	}
	return nil
}
