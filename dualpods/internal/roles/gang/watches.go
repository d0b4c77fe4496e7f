package gang

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [Index], and runs a pass whenever a Pod of a ModelServing or a
// Pod with GPUs gets further, a node has other room, or a ModelServing changes. The cache must
// also have the index groups.Index.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	index := func(o client.Object) []string { return Indexed(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	concerns := predicate.NewPredicateFuncs(func(o client.Object) bool { return isConcerned(o.(*corev1.Pod)) })
	gets := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return getsFurther(e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod))
	}}
	changes := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return hasOtherRoom(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
	}}
	return ctrl.NewControllerManagedBy(mgr).Named("gang").
		Watches(&corev1.Pod{}, pass, builder.WithPredicates(concerns, gets)).
		Watches(&corev1.Node{}, pass, builder.WithPredicates(changes)).
		Watches(&v1alpha1.ModelServing{}, pass).
		Complete(c)
}

func isConcerned(pod *corev1.Pod) bool {
	return podmeta.AwaitsGang(pod) || podmeta.ServingOf(pod) != nil || pod.Spec.NodeName != "" && podmeta.ReservedGPUs(&pod.Spec) > 0
}

// getsFurther reports whether a Pod has changed in what decisions depend on.
func getsFurther(was, is *corev1.Pod) bool {
	return was.Spec.NodeName != is.Spec.NodeName || dualpods.RequesterOf(was).IsOver() != dualpods.RequesterOf(is).IsOver() ||
		podmeta.Finished(was) != podmeta.Finished(is) || !slices.Equal(was.Spec.SchedulingGates, is.Spec.SchedulingGates)
}

// hasOtherRoom reports whether a node has changed in what decisions depend on.
func hasOtherRoom(was, is *corev1.Node) bool {
	had, has := was.Status.Allocatable[podmeta.ResourceGPU], is.Status.Allocatable[podmeta.ResourceGPU]
	return was.Spec.Unschedulable != is.Spec.Unschedulable || had.Cmp(has) != 0 ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints)
}
