package manager

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/model/seatpool"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/roles/gang"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/roles/podgroups"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/endpoints"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/dualpods/internal/wiring/logrelay"
	"hotseat.dev/hotseat/dualpods/internal/wiring/telemetry"
)

// controllers are the controllers that other parts of a run use too, and what they share.
type controllers struct {
	opts   Options
	config *rest.Config
	mgr    ctrl.Manager
	leads  func() bool
	own    string // the controller's namespace

	nodes, counts, models, claims, servings, demands, poolDemands requests // what no watch reports

	keeper    *authority.Keeper
	trusted   *trust
	views     *nodeview.Set
	pool      *launcherpool.Pool
	watcher   *telemetry.Telemetry
	relay     *logrelay.Relay
	binder    *binding.Controller
	caches    *modelcache.Controller
	slices    *endpoints.Controller
	groups    *groups.Controller
	gangs     *gang.Controller
	podGroups podgroups.Definitions
	doors     *frontDoors
	seatPools *seatpool.Controller

	undo []func() error // closes what is open, the last first
}

// open makes the controllers that need one another. The caller closes them, after an error too.
func (c *controllers) open(ctx context.Context) error {
	mgr, lock, err := newManager(ctx, c.config, c.opts)
	if err != nil {
		return err
	}
	c.mgr, c.leads = mgr, leading(lock)
	if c.own, err = c.opts.ownNamespace(); err != nil {
		return err
	}
	if c.keeper, c.trusted, err = openAuthority(ctx, mgr, c.config, c.own, c.opts.Log, &c.counts); err != nil {
		return err
	}
	c.openLaunchers(ctx)
	if err := c.openServers(ctx); err != nil {
		return err
	}
	if c.caches, err = newModels(ctx, mgr, c.views, c.config, &c.models, c.opts); err != nil {
		return err
	}
	c.later(c.caches.Close)
	c.gangs = newGangs(mgr, c.views, &c.servings, c.leads)
	c.podGroups = readPodGroups(c.config)
	c.groups = c.newGroups()
	c.openFrontDoors()
	c.newSeatPools()
	return nil
}

func (c *controllers) later(f func()) { c.undo = append(c.undo, func() error { f(); return nil }) }

func (c *controllers) close() error {
	var errs []error
	for n := len(c.undo) - 1; n >= 0; n-- {
		errs = append(errs, c.undo[n]())
	}
	return errors.Join(errs...)
}

// ears have what a launcher says looked at by those that it concerns.
func (c *controllers) ears(ctx context.Context) ears {
	return ears{
		nodeOf:   func(launcher string) (string, bool) { return c.binder.NodeOf(launcher) },
		configOf: func(launcher string) (client.ObjectKey, bool) { return c.pool.ConfigOf(launcher) },
		claimsOf: func(config client.ObjectKey) []reconcile.Request {
			return modelclaim.CachesOfLauncher(ctx, c.mgr.GetClient(), config)
		},
		servingsOn: c.servingsOn(ctx),
		nodes:      &c.nodes, configs: &c.counts, models: &c.models, claims: &c.claims, servings: &c.servings,
	}
}

func (c *controllers) servingsOn(ctx context.Context) func(node string) []reconcile.Request {
	return func(node string) []reconcile.Request { return groups.OnNode(ctx, c.mgr.GetClient(), node) }
}

// openLaunchers makes the streams of launchers, and the controller that creates launchers.
func (c *controllers) openLaunchers(ctx context.Context) {
	heard := c.ears(ctx)
	c.views = nodeview.New(nodeview.Options{
		TLS: c.keeper.Launcher, Header: telemetry.Header, ModelsChanged: heard.modelsChanged, Changed: heard.changed, Logger: slogOf(c.opts.Log.WithName("nodeview")),
	})
	c.pool = launcherpool.New(launcherpool.Options{
		API: c.mgr.GetClient(), Views: c.views, Recorder: c.mgr.GetEventRecorder("hotseat"),
		Launcher: launcherpool.Image{Name: c.opts.LauncherImage, Port: int32(c.opts.LauncherPort)}, Authority: c.keeper, Again: c.counts.addLater,
		Need: form.Source{API: c.mgr.GetClient()}.Need, PriorityClass: c.opts.LauncherPriorityClass,
	})
}

// openServers makes the controller that binds requesters, and what it uses alone.
func (c *controllers) openServers(ctx context.Context) error {
	requesters, kubelets := spi.New(c.keeper.Requester), allocations.New(c.keeper.Launcher)
	c.later(requesters.Close)
	c.later(kubelets.Close)
	watcher, closeWatcher, err := openTelemetry(ctx, c.views, func() int { return c.relay.Followers() }, c.opts.Log)
	if err != nil {
		return err
	}
	c.watcher, c.undo = watcher, append(c.undo, closeWatcher)
	c.relay = logrelay.New(ctx, logrelay.Options{Launcher: logsOf(c.views), Requesters: watcher.Printers(requesters), Log: c.opts.Log.WithName("logrelay")})
	c.later(c.relay.Close)
	c.slices = newEndpoints(c.mgr, &c.nodes, c.leads, c.opts)
	servingsOn := c.servingsOn(ctx)
	opts, api := c.opts, c.mgr.GetClient()
	c.binder = binding.New(ctx, binding.Options{
		API: api, Pods: binding.ReadPods(c.mgr.GetAPIReader(), opts.Namespace), Providers: watched{c.views, watcher, c.relay}, Requesters: watcher.Requesters(requesters), Allocations: kubelets, Endpoints: c.slices, AgentNamespace: c.own, Recorder: c.mgr.GetEventRecorder("hotseat"),
		LauncherPort: opts.LauncherPort, Access: c.pool.Access, WriteAhead: opts.WriteAhead, RequireTLS: opts.RequireTLS, ModelCache: binding.ReadModelCache(api, opts.Namespace, opts.ModelCache), Keeper: modelcache.ReadKeeper(api, opts.Namespace), Launchers: c.pool, Drain: opts.Drain,
		Again: c.nodes.add, SwapMoved: func(node string) { c.servings.addAll(servingsOn(node)) }, Observer: crashes(binding.Observers{watcher, c.relay}), RelayLog: c.relay.Flush, Now: time.Now, Leads: c.leads,
	}, opts.Log.WithName("binding"))
	c.later(c.binder.Close)
	c.later(c.views.Close) // before the others: it calls them
	return nil
}
