package placement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SetupWithManager indexes Pods by [Index], and runs a pass whenever a Pod changes that
// waits for its placement.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	index := func(o client.Object) []string { return Indexed(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	waits := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && Awaits(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("placement").
		Watches(&corev1.Pod{}, pass, builder.WithPredicates(waits)).
		Complete(c)
}
