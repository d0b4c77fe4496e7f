package act

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [Index], and reconciles a Model when it changes, one of its objects or Pods, a
// ResourceProfile, or a SeatPool. others is the source of requests for what these watches do not report: demand.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, Indexed); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	api := mgr.GetClient()
	ofProfile := func(ctx context.Context, _ client.Object) (all []reconcile.Request) {
		var models v1alpha1.ModelList
		if api.List(ctx, &models, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		for i := range models.Items {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&models.Items[i])})
		}
		return all
	}
	ofPool := func(ctx context.Context, pool client.Object) (all []reconcile.Request) {
		var models v1alpha1.ModelList
		if api.List(ctx, &models, client.InNamespace(pool.GetNamespace()), client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		for i := range models.Items {
			if slices.ContainsFunc(models.Items[i].Specs, func(e v1alpha1.ModelEntry) bool { return e.SeatPool == pool.GetName() }) {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&models.Items[i])})
			}
		}
		return all
	}
	inNamespace := func(ctx context.Context, config client.Object) (all []reconcile.Request) {
		var models v1alpha1.ModelList
		if api.List(ctx, &models, client.InNamespace(config.GetNamespace()), client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		for i := range models.Items {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&models.Items[i])})
		}
		return all
	}
	return ctrl.NewControllerManagedBy(mgr).Named("model").
		For(&v1alpha1.Model{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&v1alpha1.InferenceServerConfig{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&v1alpha1.ResourceProfile{}, handler.EnqueueRequestsFromMapFunc(ofProfile)).
		Watches(&v1alpha1.LauncherConfig{}, handler.EnqueueRequestsFromMapFunc(inNamespace), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.SeatPool{}, handler.EnqueueRequestsFromMapFunc(ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

// comesOrGoes lets creations and deletions through: Models need to know only whether an object is there.
var comesOrGoes = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// modelOf returns the Model that an object is labelled with. There may be none.
func modelOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[podmeta.LabelModel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}
