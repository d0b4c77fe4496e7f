package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// setUpVolumes has the volumes and claims of model caches looked at, all at once,
// whenever something changes that they rest on. A controller that looks at one namespace
// leaves them, as it does the caches, and says so to the Pods that wait for a claim.
func setUpVolumes(ctx context.Context, mgr ctrl.Manager, namespace string) error {
	if err := indexClaims(ctx, mgr); err != nil {
		return err
	}
	controller := &modelvolume.Controller{API: mgr.GetClient(), Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now, Namespace: namespace}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request("") })
	volumes := ctrl.NewControllerManagedBy(mgr).Named("modelvolume").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(namesModel)))
	if namespace != "" {
		return volumes.Complete(controller)
	}
	return volumes.
		Watches(&v1alpha1.ClusterModelCache{}, all).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, all).
		Watches(&corev1.PersistentVolumeClaim{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(ofModel))).
		WithOptions(triedAgain()).
		Complete(controller)
}

// indexClaims has the Pods found that name the claims of models.
func indexClaims(ctx context.Context, mgr ctrl.Manager) error {
	index := func(o client.Object) []string { return modelvolume.Indexed(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, modelvolume.Index, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	return nil
}

// ofModel says that a claim is the controller's, by which Pods mount a model.
func ofModel(o client.Object) bool { return o.GetLabels()[podmeta.LabelModelVolume] != "" }

// namesModel says that a Pod has a volume that is a model, though it may have finished.
func namesModel(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		_, is := modelvolume.Names(&v)
		return is
	})
}

// volumesOnly keeps the volumes of others out of the cache. Claims are there all: those
// that ModelCaches name are users' own.
func volumesOnly(into map[client.Object]cache.ByObject) error {
	ours, err := labels.Parse(podmeta.LabelModelVolume) // whatever its value
	if err != nil {
		return err
	}
	into[&corev1.PersistentVolume{}] = cache.ByObject{Label: ours}
	return nil
}
