package manager

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
)

// setUpPlacement has the requesters that carry the scheduling gate looked at, all at
// once, whenever one comes.
func setUpPlacement(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, namespace string) error {
	index := func(o client.Object) []string { return placement.Indexed(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, placement.Index, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request("") })
	waits := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && placement.Awaits(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("placement").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(waits)).
		Complete(placement.New(placement.Options{
			API: mgr.GetClient(), Views: views, Recorder: mgr.GetEventRecorder("hotseat"), Caches: namespace == "", Now: time.Now,
		}))
}
