package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// setUpClaims has a ModelCache looked at whenever something changes that it rests on.
func setUpClaims(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, config *rest.Config, again *requests, opts Options) error {
	index := func(o client.Object) []string { return modelclaim.IndexedClaims(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, modelclaim.IndexClaim, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	api := mgr.GetClient()
	secrets, err := newNamedSecrets(mgr, config, opts, func(secret client.ObjectKey) { again.addAll(cachesOfSecret(ctx, api, secret)) })
	if err != nil {
		return err
	}
	accounts := newAccounts(mgr, func(account client.ObjectKey) { again.addAll(cachesOfAccount(ctx, api, account)) })
	caches := modelclaim.New(modelclaim.Options{
		API: api, Launchers: views, Credentials: sourcesecret.Reader{Secret: secrets.get, Account: accounts.get}, Class: classOf(mgr.GetAPIReader()), Image: opts.LauncherImage,
		Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now,
	})
	return ctrl.NewControllerManagedBy(mgr).Named("modelclaim").
		For(&v1alpha1.ModelCache{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return cachesOfClaims(ctx, api, o.GetNamespace(), []string{o.GetName()})
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return cachesOfClaims(ctx, api, o.GetNamespace(), modelclaim.IndexedClaims(o.(*corev1.Pod)))
		})).
		WatchesRawSource(source.Func(again.begin)).
		WithOptions(triedAgain()).
		Complete(caches)
}

// longestRetry bounds the pause until what has failed is tried again, by default a quarter
// of an hour: of much that keeps a claim from being made, as a quota, nobody hears that it
// has been mended.
const longestRetry = 10 * time.Second

func triedAgain() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, longestRetry)}
}

// cachesOfClaims are the ModelCaches that rest on some claims of a namespace.
func cachesOfClaims(ctx context.Context, api client.Reader, namespace string, claims []string) []reconcile.Request {
	if len(claims) == 0 {
		return nil
	}
	return cachesThat(ctx, api, namespace, func(c *v1alpha1.ModelCache) bool {
		return slices.Contains(claims, modelclaim.ClaimName(c)) || slices.Contains(claims, modelclaim.SourceClaim(c))
	})
}

// cachesOfSecret are the ModelCaches that name a Secret, or an account, which may list it.
func cachesOfSecret(ctx context.Context, api client.Reader, secret client.ObjectKey) []reconcile.Request {
	return cachesThat(ctx, api, secret.Namespace, func(c *v1alpha1.ModelCache) bool {
		named := modelclaim.Names(c)
		return named.Secret == secret.Name || named.Secret == "" && named.Account != ""
	})
}

func cachesOfAccount(ctx context.Context, api client.Reader, account client.ObjectKey) []reconcile.Request {
	return cachesThat(ctx, api, account.Namespace, func(c *v1alpha1.ModelCache) bool { return modelclaim.Names(c).Account == account.Name })
}

func cachesThat(ctx context.Context, api client.Reader, namespace string, rests func(*v1alpha1.ModelCache) bool) (all []reconcile.Request) {
	var caches v1alpha1.ModelCacheList
	if err := api.List(ctx, &caches, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range caches.Items {
		if rests(&caches.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&caches.Items[i])})
		}
	}
	return all
}

// cachesOfLauncher are the ModelCaches whose claims the launchers of a LauncherConfig have.
func cachesOfLauncher(ctx context.Context, api client.Reader, config client.ObjectKey) []reconcile.Request {
	var of v1alpha1.LauncherConfig
	if err := api.Get(ctx, config, &of); err != nil || of.Spec.ModelCache == nil {
		return nil
	}
	return cachesOfClaims(ctx, api, config.Namespace, of.Spec.ModelCache.Claims)
}

// configsOfClaim are the LauncherConfigs whose launchers mount a claim.
func configsOfClaim(api client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (these []reconcile.Request) {
		var configs v1alpha1.LauncherConfigList
		if err := api.List(ctx, &configs, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		for i := range configs.Items {
			if of := configs.Items[i].Spec.ModelCache; of != nil && slices.Contains(of.Claims, o.GetName()) {
				these = append(these, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
			}
		}
		return these
	}
}

// classOf asks whether there is a StorageClass.
func classOf(api client.Reader) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, name string) (bool, error) {
		ctx, stop := context.WithTimeout(ctx, askLimit)
		defer stop()
		err := api.Get(ctx, client.ObjectKey{Name: name}, &storagev1.StorageClass{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("cannot read StorageClass %s: %w", name, err)
		}
		return err == nil, nil
	}
}

// addAll has some more looked at.
func (r *requests) addAll(all []reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range all {
		if r.queue != nil {
			r.queue.Add(one)
		}
	}
}
