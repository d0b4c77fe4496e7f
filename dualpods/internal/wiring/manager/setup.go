package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/dualpods/internal/roles/gang"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/roles/podgroups"
	"hotseat.dev/hotseat/dualpods/internal/servers/endpoints"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/dualpods/internal/trust/admission"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
)

// setUp makes the remaining controllers, and registers all of them with the manager.
// Each package registers its own watches; the queues carry what no watch reports.
func (c *controllers) setUp(ctx context.Context) error {
	mgr, opts := c.mgr, c.opts
	claims, err := newClaims(ctx, mgr, c.views, c.config, &c.claims, opts)
	if err != nil {
		return err
	}
	configs := serverconfig.New(serverconfig.Options{API: mgr.GetClient(), Views: c.views, Recorder: mgr.GetEventRecorder("hotseat")})
	publisher := &authority.Publisher{API: mgr.GetClient(), Current: c.keeper.Current}
	volumes := &modelvolume.Controller{API: mgr.GetClient(), Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now, Namespace: opts.Namespace}
	placer := placement.New(placement.Options{
		API: mgr.GetClient(), Views: c.views, Recorder: mgr.GetEventRecorder("hotseat"), Caches: opts.Namespace == "", Now: time.Now,
	})
	return errors.Join(
		c.binder.SetupWithManager(ctx, mgr, c.nodes.source(), opts.Namespace, controller.Options{MaxConcurrentReconciles: opts.Nodes}),
		c.pool.SetupWithManager(ctx, mgr, c.counts.source()),
		configs.SetupWithManager(ctx, mgr),
		setUpServers(mgr, c.config, c.own, c.keeper, c.trusted),
		publisher.SetupWithManager(mgr, c.trusted.namespaces.source(), opts.Namespace),
		setUpModels(ctx, mgr, c.caches, &c.models, opts),
		claims.SetupWithManager(ctx, mgr, c.claims.source(), triedAgain()),
		volumes.SetupWithManager(ctx, mgr, triedAgain()),
		placer.SetupWithManager(ctx, mgr),
		c.slices.SetupWithManager(ctx, mgr, sideBySide()),
		c.groups.SetupWithManager(ctx, mgr, c.servings.source(), sideBySide()),
		c.gangs.SetupWithManager(ctx, mgr),
		setUpPodGroups(mgr, c.podGroups, c.leads),
		c.setUpModel(ctx, configs),
		setUpAdmission(mgr, c.keeper, c.trusted, &admission.Guard{Uses: c.caches.Uses}, opts),
		setUpProbes(mgr),
	)
}

// setUpModels registers the controller of ClusterModelCaches, unless this process watches
// only one namespace: a controller of the whole cluster reconciles them then.
func setUpModels(ctx context.Context, mgr ctrl.Manager, caches *modelcache.Controller, again *requests, opts Options) error {
	if opts.Namespace != "" {
		return nil
	}
	return caches.SetupWithManager(ctx, mgr, again.source())
}

// newEndpoints makes the controller of the EndpointSlices of requesters.
func newEndpoints(mgr ctrl.Manager, nodes *requests, leads func() bool, opts Options) *endpoints.Controller {
	return endpoints.New(endpoints.Options{
		API: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("hotseat"),
		Left: nodes.add, Leads: leads, Now: time.Now, Log: opts.Log.WithName("endpoints"),
	})
}

// newGroups makes the controller of ModelServings.
func (c *controllers) newGroups() *groups.Controller {
	launcher := func(key string) groups.Launcher {
		if api := c.views.Client(key); api != nil { // not an interface that has nil
			return api
		}
		return nil
	}
	return groups.New(groups.Options{
		API: c.mgr.GetClient(), Views: c.views, Swaps: c.binder, Gangs: c.gangs, PodGroups: c.podGroups.OfKubernetes, Restarted: c.watcher.Restarted, Launcher: launcher,
		Image: c.opts.RequesterImage, Recorder: c.mgr.GetEventRecorder("hotseat"), Leads: c.leads, Now: time.Now,
	})
}

// newGangs makes the controller of the gates of groups whose Pods get nodes together.
func newGangs(mgr ctrl.Manager, views *nodeview.Set, servings *requests, leads func() bool) *gang.Controller {
	sleepers := placement.NewSleepers(placement.Options{API: mgr.GetClient(), Views: views, Now: time.Now})
	return gang.New(gang.Options{API: mgr.GetClient(), Sleepers: sleepers.Of, Changed: servings.addAll, Recorder: mgr.GetEventRecorder("hotseat"), Leads: leads, Now: time.Now})
}

// readPodGroups returns what asks the API server for the kinds of PodGroups that it has.
func readPodGroups(config *rest.Config) podgroups.Definitions {
	made := sync.OnceValues(func() (podgroups.Definitions, error) {
		api, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("cannot ask the API server for its schemas: %w", err)
		}
		return podgroups.ReadDefinition(api, time.Now), nil
	})
	return func() (podgroups.Definition, error) {
		read, err := made()
		if err != nil {
			return podgroups.Definition{}, err
		}
		return read()
	}
}

// setUpPodGroups registers the controller of the PodGroups of ModelServings.
func setUpPodGroups(mgr ctrl.Manager, definition podgroups.Definitions, leads func() bool) error {
	return podgroups.New(podgroups.Options{
		API: mgr.GetClient(), Live: mgr.GetAPIReader(), Definition: definition, Recorder: mgr.GetEventRecorder("hotseat"), Leads: leads,
	}).SetupWithManager(mgr)
}

// newModels makes the controller of model caches.
func newModels(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, config *rest.Config, again *requests, opts Options) (*modelcache.Controller, error) {
	namespace, err := opts.ownNamespace()
	if err != nil {
		return nil, err
	}
	secrets := &sourcesecret.OwnSecrets{}
	if opts.Namespace == "" { // else it keeps no ClusterModelCaches
		if secrets, err = sourcesecret.WatchOwn(ctx, mgr, config, namespace, func() { again.add("") }); err != nil {
			return nil, err
		}
	}
	accounts := sourcesecret.WatchAccounts(mgr, func(account client.ObjectKey) {
		if account.Namespace == namespace {
			again.add("")
		}
	})
	return modelcache.New(ctx, modelcache.Options{
		API: mgr.GetClient(), Launchers: modelcache.LaunchersOf(views), Namespace: namespace, Recorder: mgr.GetEventRecorder("hotseat"),
		Credentials: sourcesecret.Reader{Secret: secrets.Get, Account: accounts.Get},
		Again:       func() { again.add("") }, Now: time.Now, Log: opts.Log.WithName("modelcache"),
	}), nil
}

// newClaims makes the controller of ModelCaches.
func newClaims(ctx context.Context, mgr ctrl.Manager, views *nodeview.Set, config *rest.Config, again *requests, opts Options) (*modelclaim.Controller, error) {
	api := mgr.GetClient()
	secrets, err := sourcesecret.WatchNamed(mgr, config, opts.Namespace, func(secret client.ObjectKey) { again.addAll(modelclaim.CachesOfSecret(ctx, api, secret)) })
	if err != nil {
		return nil, err
	}
	accounts := sourcesecret.WatchAccounts(mgr, func(account client.ObjectKey) { again.addAll(modelclaim.CachesOfAccount(ctx, api, account)) })
	return modelclaim.New(modelclaim.Options{
		API: api, Launchers: views, Credentials: sourcesecret.Reader{Secret: secrets.Get, Account: accounts.Get}, Class: modelclaim.ReadClass(mgr.GetAPIReader()), Image: opts.LauncherImage,
		Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now,
	}), nil
}

// setUpAdmission has the API server ask the replica that leads whether a model cache
// may be deleted. A controller that keeps no model caches is not asked.
func setUpAdmission(mgr ctrl.Manager, keeper *authority.Keeper, on *trust, guard *admission.Guard, opts Options) error {
	if !answersAdmission(opts) {
		return nil
	}
	address, err := netip.ParseAddr(opts.PodIP)
	if err != nil {
		return fmt.Errorf("cannot be asked by the API server: --pod-ip: %w", err)
	}
	namespace, err := opts.ownNamespace()
	if err != nil {
		return err
	}
	server := admission.NewServer(opts.AdmissionPort, keeper.Serving(admission.ServerName(namespace)), guard)
	publisher := &admission.Publisher{
		API: mgr.GetClient(), Namespace: namespace, Address: address, Port: int32(opts.AdmissionPort),
		Certificates: func(ctx context.Context) ([]byte, error) {
			now, err := keeper.Current(ctx)
			if err != nil {
				return nil, err
			}
			return now.Certificates(), nil
		},
	}
	return errors.Join(
		mgr.Add(manager.RunnableFunc(server.Start)), // in the replica that leads
		publisher.SetupWithManager(mgr, on.asked.source()),
	)
}

func answersAdmission(opts Options) bool { return opts.AdmissionPort != 0 && opts.Namespace == "" }

func setUpProbes(mgr ctrl.Manager) error {
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("cannot answer probes: %w", err)
	}
	return nil
}
