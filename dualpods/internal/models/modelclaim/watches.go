package modelclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by [IndexClaim], and reconciles a ModelCache when
// something changes that it depends on. others is the source of requests for changes that
// these watches do not report: see [CachesOfSecret], [CachesOfAccount] and [CachesOfLauncher].
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, options controller.Options) error {
	index := func(o client.Object) []string { return IndexedClaims(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexClaim, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	api := mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).Named("modelclaim").
		For(&v1alpha1.ModelCache{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return cachesOfClaims(ctx, api, o.GetNamespace(), []string{o.GetName()})
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return cachesOfClaims(ctx, api, o.GetNamespace(), IndexedClaims(o.(*corev1.Pod)))
		})).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

// cachesOfClaims returns the ModelCaches that depend on some claims of a namespace.
func cachesOfClaims(ctx context.Context, api client.Reader, namespace string, claims []string) []reconcile.Request {
	if len(claims) == 0 {
		return nil
	}
	return cachesThat(ctx, api, namespace, func(c *v1alpha1.ModelCache) bool {
		return slices.Contains(claims, ClaimName(c)) || slices.Contains(claims, SourceClaim(c))
	})
}

// CachesOfSecret returns the ModelCaches that name a Secret, or that name only an account,
// which may list the Secret.
func CachesOfSecret(ctx context.Context, api client.Reader, secret client.ObjectKey) []reconcile.Request {
	return cachesThat(ctx, api, secret.Namespace, func(c *v1alpha1.ModelCache) bool {
		named := Names(c)
		return named.Secret == secret.Name || named.Secret == "" && named.Account != ""
	})
}

// CachesOfAccount returns the ModelCaches that name a ServiceAccount.
func CachesOfAccount(ctx context.Context, api client.Reader, account client.ObjectKey) []reconcile.Request {
	return cachesThat(ctx, api, account.Namespace, func(c *v1alpha1.ModelCache) bool { return Names(c).Account == account.Name })
}

// CachesOfLauncher returns the ModelCaches whose claims the launchers of a
// LauncherConfig mount.
func CachesOfLauncher(ctx context.Context, api client.Reader, config client.ObjectKey) []reconcile.Request {
	var of v1alpha1.LauncherConfig
	if err := api.Get(ctx, config, &of); err != nil || of.Spec.ModelCache == nil {
		return nil
	}
	return cachesOfClaims(ctx, api, config.Namespace, of.Spec.ModelCache.Claims)
}

// cachesThat returns the ModelCaches of a namespace that depend on something.
func cachesThat(ctx context.Context, api client.Reader, namespace string, depends func(*v1alpha1.ModelCache) bool) (all []reconcile.Request) {
	var caches v1alpha1.ModelCacheList
	if err := api.List(ctx, &caches, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range caches.Items {
		if depends(&caches.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&caches.Items[i])})
		}
	}
	return all
}

// classTimeout bounds a read of a StorageClass. The read goes to the API server, not to a cache.
const classTimeout = 5 * time.Second

// ReadClass returns a function that reads from the API server whether a StorageClass
// exists.
func ReadClass(api client.Reader) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, name string) (bool, error) {
		ctx, stop := context.WithTimeout(ctx, classTimeout)
		defer stop()
		err := api.Get(ctx, client.ObjectKey{Name: name}, &storagev1.StorageClass{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("cannot read StorageClass %s: %w", name, err)
		}
		return err == nil, nil
	}
}
