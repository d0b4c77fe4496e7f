package manager

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
)

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
		API: mgr.GetClient(), Launchers: modelcache.LaunchersOf(views), Namespace: secrets.namespace, Recorder: mgr.GetEventRecorder("hotseat"),
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
