package manager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods/internal/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/nodeview"
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
	caches := modelclaim.New(modelclaim.Options{
		API: api, Launchers: views, Secret: secrets.get, Class: classOf(mgr.GetAPIReader()), Image: opts.LauncherImage,
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
		Complete(caches)
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

func cachesOfSecret(ctx context.Context, api client.Reader, secret client.ObjectKey) []reconcile.Request {
	return cachesThat(ctx, api, secret.Namespace, func(c *v1alpha1.ModelCache) bool { return modelclaim.SecretName(c) == secret.Name })
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

// namedSecrets are Secrets that ModelCaches name. Nothing is watched before the first is
// asked for; from then on it is heard which there are, and that one has changed. What is
// in one is asked for by its name.
type namedSecrets struct {
	watch   cache.Cache // of metadata
	api     client.Reader
	changed func(client.ObjectKey)
	open    sync.Mutex
	heard   bool // of changes, from the watch
}

func newNamedSecrets(mgr ctrl.Manager, config *rest.Config, opts Options, changed func(client.ObjectKey)) (*namedSecrets, error) {
	o := cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), DefaultTransform: versionAlone}
	if opts.Namespace != "" {
		o.DefaultNamespaces = map[string]cache.Config{opts.Namespace: {}}
	}
	watch, err := cache.New(config, o)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the Secrets of model caches: %w", err)
	}
	return &namedSecrets{watch: watch, api: mgr.GetAPIReader(), changed: changed}, mgr.Add(watch)
}

// listen hears of changes from the first call on.
func (s *namedSecrets) listen(ctx context.Context) error {
	s.open.Lock()
	defer s.open.Unlock()
	if s.heard {
		return nil
	}
	informer, err := s.watch.GetInformer(ctx, aSecret())
	if err == nil {
		tell := func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if secret, ok := o.(*metav1.PartialObjectMetadata); ok {
				s.changed(client.ObjectKeyFromObject(secret))
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell})
	}
	if err != nil {
		return fmt.Errorf("cannot watch the Secrets of model caches: %w", err)
	}
	s.heard = true
	return nil
}

// get reads a Secret, by a list of the one of that name: the controller may list Secrets,
// among which are those of its launchers, and may get none.
func (s *namedSecrets) get(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	var secrets corev1.SecretList
	if err := s.api.List(ctx, &secrets, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}); err != nil {
		return nil, fmt.Errorf("cannot read Secret %s: %w", key, err)
	}
	if len(secrets.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	return &secrets.Items[0], nil
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
