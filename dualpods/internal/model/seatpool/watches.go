package seatpool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [Index], and reconciles a SeatPool when it changes, one of its seats, or an
// InferenceServerConfig of an entry that asks for them. others is the source of requests for what these watches do not
// report: demand.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, Index, Indexed); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("seatpool").
		For(&v1alpha1.SeatPool{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		Watches(&v1alpha1.InferenceServerConfig{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

// poolOf returns the SeatPool that an object is labelled with. There may be none.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[podmeta.LabelSeat]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}
