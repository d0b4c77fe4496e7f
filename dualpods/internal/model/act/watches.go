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

// SetupWithManager indexes Pods by [Index] and Models by [IndexName]. It reconciles a Model when one of these changes: the
// Model, its objects or Pods, a Model that shares a name with it, a ResourceProfile, or a SeatPool. others is a further
// source of requests to reconcile: changes of the demand.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, Indexed); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Model{}, IndexName, IndexedNames); err != nil {
		return fmt.Errorf("cannot index Models: %w", err)
	}
	all := func(client.Object, *v1alpha1.Model) bool { return true }
	inNamespace := func(o client.Object, m *v1alpha1.Model) bool { return m.Namespace == o.GetNamespace() }
	ofPool := func(pool client.Object, m *v1alpha1.Model) bool {
		return m.Namespace == pool.GetNamespace() && slices.ContainsFunc(m.Specs, func(e v1alpha1.ModelEntry) bool { return e.SeatPool == pool.GetName() })
	}
	models := func(fit func(client.Object, *v1alpha1.Model) bool) handler.EventHandler {
		return eachModel(mgr.GetClient(), fit)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("model").
		For(&v1alpha1.Model{}).
		Watches(&v1alpha1.Model{}, ofSameNames(mgr.GetClient()), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&v1alpha1.InferenceServerConfig{}, handler.EnqueueRequestsFromMapFunc(modelOf)).
		Watches(&v1alpha1.ResourceProfile{}, models(all)).
		Watches(&v1alpha1.LauncherConfig{}, models(inNamespace), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.SeatPool{}, models(ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

// eachModel reconciles the Models that fit a changed object.
func eachModel(api client.Client, fit func(changed client.Object, m *v1alpha1.Model) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) (all []reconcile.Request) {
		var models v1alpha1.ModelList
		if api.List(ctx, &models, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		for i := range models.Items {
			if m := &models.Items[i]; fit(changed, m) {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
			}
		}
		return all
	})
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
