package manager

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// modelLaunchers are launchers as package modelcache asks for them.
type modelLaunchers struct{ *nodeview.Set }

func (l modelLaunchers) Client(key string) modelcache.Client {
	if c := l.Set.Client(key); c != nil {
		return c
	}
	return nil
}

// newModels makes the controller of model caches.
func newModels(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, config *rest.Config, again *requests, opts Options) (*modelcache.Controller, error) {
	secrets, err := openSecrets(ctx, mgr, config, opts, func() { again.add("") })
	if err != nil {
		return nil, err
	}
	accounts := newAccounts(mgr, func(account client.ObjectKey) {
		if account.Namespace == secrets.namespace {
			again.add("")
		}
	})
	return modelcache.New(ctx, modelcache.Options{
		API: mgr.GetClient(), Launchers: modelLaunchers{views}, Namespace: secrets.namespace, Recorder: mgr.GetEventRecorder("hotseat"),
		Credentials: sourcesecret.Reader{Secret: secrets.get, Account: accounts.get},
		Again:       func() { again.add("") }, Now: time.Now, Log: opts.Log.WithName("modelcache"),
	}), nil
}

// newClaims makes the controller of ModelCaches.
func newClaims(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, config *rest.Config, again *requests, opts Options) (*modelclaim.Controller, error) {
	api := mgr.GetClient()
	secrets, err := newNamedSecrets(mgr, config, opts, func(secret client.ObjectKey) { again.addAll(modelclaim.CachesOfSecret(ctx, api, secret)) })
	if err != nil {
		return nil, err
	}
	accounts := newAccounts(mgr, func(account client.ObjectKey) { again.addAll(modelclaim.CachesOfAccount(ctx, api, account)) })
	return modelclaim.New(modelclaim.Options{
		API: api, Launchers: views, Credentials: sourcesecret.Reader{Secret: secrets.get, Account: accounts.get}, Class: modelclaim.ReadClass(mgr.GetAPIReader()), Image: opts.LauncherImage,
		Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now,
	}), nil
}

// setUpModels has the model caches looked at, all at once, whenever something
// changes that they rest on. They are of the whole cluster: a controller that looks at
// one namespace leaves them to one that looks at all.
func setUpModels(ctx context.Context, mgr ctrl.Manager, caches *modelcache.Controller, again *requests, namespace string) error {
	if namespace != "" {
		return nil
	}
	index := func(o client.Object) []string { return modelcache.IndexedStore(o.(*corev1.Pod)) }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, modelcache.IndexStore, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request("") })
	return ctrl.NewControllerManagedBy(mgr).Named("modelcache").
		Watches(&v1alpha1.ClusterModelCache{}, all).
		Watches(&v1alpha1.ModelCacheNodeGroup{}, all).
		Watches(&corev1.Node{}, all, builder.WithPredicates(placeChanged())).
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && (len(modelcache.IndexedStore(pod)) > 0 || modelvolume.NamesModel(pod))
		}))).
		WatchesRawSource(source.Func(again.begin)).
		Complete(caches)
}

// placeChanged lets through what changes whether a node is to have models, and
// whether it can be spoken to.
func placeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, too := e.ObjectNew.(*corev1.Node)
		return !ok || !too || !maps.Equal(before.Labels, after.Labels) || modelcache.Down(before) != modelcache.Down(after)
	}}
}

// configsOfGroup are the LauncherConfigs whose launchers have the models of a group.
func configsOfGroup(api client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var configs v1alpha1.LauncherConfigList
		if err := api.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var these []reconcile.Request
		for i := range configs.Items {
			if of := configs.Items[i].Spec.ModelCache; of != nil && of.NodeGroup == o.GetName() {
				these = append(these, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
			}
		}
		return these
	}
}
