package modelvolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [Index], and runs a pass whenever something changes
// that the volumes and claims of caches depend on. With a Namespace the controller
// watches only Pods, and reports to them that it creates no claims. It then ignores
// options.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	index := func(o client.Object) []string { return Indexed(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	volumes := ctrl.NewControllerManagedBy(mgr).Named("modelvolume").
		Watches(&corev1.Pod{}, pass, builder.WithPredicates(predicate.NewPredicateFuncs(NamesModel)))
	if c.Namespace != "" {
		return volumes.Complete(c)
	}
	return volumes.
		Watches(&v1alpha1.ClusterModelCache{}, pass).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, pass, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, pass).
		Watches(&corev1.PersistentVolumeClaim{}, pass, builder.WithPredicates(predicate.NewPredicateFuncs(isModelClaim))).
		WithOptions(options).
		Complete(c)
}

// isModelClaim reports whether the controller created a claim by which Pods mount a model.
func isModelClaim(o client.Object) bool { return o.GetLabels()[podmeta.LabelModelVolume] != "" }

// NamesModel reports whether an object is a Pod with a volume that is a model. Finished Pods
// count.
func NamesModel(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		_, is := Names(&v)
		return is
	})
}
