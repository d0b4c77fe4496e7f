package groups

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes objects by [Index], and reconciles a ModelServing when it changes,
// something that it owns, or a launcher of a node with its Pods. others is the source of requests
// for what these watches do not report: see [OnNode]. A ModelServing is also reconciled when its
// status changes: a pass that read an older status from the cache may have found nothing to write.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, options controller.Options) error {
	of := ctrl.NewControllerManagedBy(mgr).Named("groups").For(&v1alpha1.ModelServing{})
	for _, owned := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &appsv1.ControllerRevision{}, &v1alpha1.RoleScaler{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, owned, Index, Indexed); err != nil {
			return fmt.Errorf("cannot index what ModelServings own: %w", err)
		}
		of = of.Watches(owned, handler.EnqueueRequestsFromMapFunc(servingOf))
	}
	api := mgr.GetClient()
	launchers := func(ctx context.Context, o client.Object) []reconcile.Request {
		if pod, ok := o.(*corev1.Pod); ok && dualpods.LooksLike(pod) == dualpods.KindLauncher {
			return OnNode(ctx, api, pod.Spec.NodeName)
		}
		return nil
	}
	return of.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(launchers)).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

// servingOf returns the ModelServing of the name of an object's owner. It may be a later one, which
// waits until the object is gone.
func servingOf(_ context.Context, o client.Object) []reconcile.Request {
	owner := podmeta.ServingOf(o)
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}}}
}

// OnNode returns the ModelServings that have requesters on a node.
func OnNode(ctx context.Context, api client.Reader, node string) (all []reconcile.Request) {
	var pods corev1.PodList
	if node == "" || api.List(ctx, &pods, client.MatchingFields{dualpods.IndexNode: node}, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range pods.Items {
		if podmeta.IsRequester(&pods.Items[i]) {
			all = append(all, servingOf(ctx, &pods.Items[i])...)
		}
	}
	return all
}
