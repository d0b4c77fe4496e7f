// Package manager runs the controllers of dual pods in one process. It puts the parts
// together; each controller's package registers its own watches.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/dualpods/internal/wiring/logrelay"
	"hotseat.dev/hotseat/dualpods/internal/wiring/telemetry"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Options configure [Run].
type Options struct {
	// Config says where the API server is. Its rate limit is switched off: the
	// server's priority and fairness rules.
	Config *rest.Config
	// Namespace is the only one that is looked at; empty for all.
	Namespace string
	// LeaderElection lets one of several replicas work at a time; its Lease is in
	// LeaseNamespace.
	LeaderElection bool
	LeaseNamespace string
	// Identity tells this replica from others, and is the same when its process
	// is started again while nobody else can have it, as a Pod's UID is. Empty: a
	// random one for each process. It takes LeaseNamespace.
	Identity string
	// CANamespace is where the Secret of the certificate authority is, and the agents of
	// nodes; empty: where the Lease is, or else the controller's own.
	CANamespace string
	// WriteAhead has requesters bound by the kubelet's word before their programs run.
	WriteAhead bool
	// RequireTLS has requesters refused that anybody could give orders to.
	RequireTLS bool
	// ModelCache says from where engines have their models where neither their
	// requesters nor their namespaces say: one of podmeta.ModelCacheModes, or empty.
	ModelCache     string
	MetricsAddress string // "0" for none
	ProbesAddress  string // "0" for none
	PprofAddress   string // of Go's profiles; "0" for none
	// AdmissionPort is where the API server asks whether a model cache may be deleted, at
	// PodIP, the address of this replica; 0: nowhere.
	AdmissionPort int
	PodIP         string
	LauncherPort  int
	// LauncherImage is copied from into the launchers that LauncherConfigs ask for.
	LauncherImage string
	// RequesterImage is that of the requesters that ModelServings ask for by the name of an
	// InferenceServerConfig.
	RequesterImage string
	// LauncherPriorityClass is the PriorityClass of launchers whose template names none;
	// empty: none.
	LauncherPriorityClass string
	Drain                 time.Duration
	Nodes                 int // how many are looked at side by side
	Log                   logr.Logger
}

// ownNamespace is where the Secret of the certificate authority is, and the agents of nodes.
func (o *Options) ownNamespace() (string, error) {
	return authority.Namespace(cmp.Or(o.CANamespace, o.LeaseNamespace))
}

// Run works until ctx ends, or another replica leads.
func Run(ctx context.Context, opts Options) (err error) {
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1
	mgr, lock, err := newManager(ctx, config, opts)
	if err != nil {
		return err
	}
	own, err := opts.ownNamespace()
	if err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	defer end()
	var again, counts, models, claims, servings requests
	keeper, trusted, err := openAuthority(ctx, mgr, config, own, opts.Log, &counts)
	if err != nil {
		return err
	}
	requesters, kubelets := spi.New(keeper.Requester), allocations.New(keeper.Launcher)
	defer requesters.Close()
	defer kubelets.Close()
	var (
		binder *binding.Controller
		pool   *launcherpool.Pool
		relay  *logrelay.Relay
	)
	heard := ears{
		nodeOf:   func(launcher string) (string, bool) { return binder.NodeOf(launcher) },
		configOf: func(launcher string) (client.ObjectKey, bool) { return pool.ConfigOf(launcher) },
		nodes:    &again, configs: &counts, models: &models,
		claimsOf: func(config client.ObjectKey) []reconcile.Request {
			return modelclaim.CachesOfLauncher(life, mgr.GetClient(), config)
		}, claims: &claims,
		servingsOn: func(node string) []reconcile.Request { return groups.OnNode(life, mgr.GetClient(), node) }, servings: &servings,
	}
	views := nodeview.New(nodeview.Options{TLS: keeper.Launcher, Header: telemetry.Header, ModelsChanged: heard.modelsChanged, Changed: heard.changed, Logger: slogOf(opts.Log.WithName("nodeview"))})
	pool = launcherpool.New(launcherpool.Options{
		API: mgr.GetClient(), Views: views, Recorder: mgr.GetEventRecorder("hotseat"),
		Launcher: launcherpool.Image{Name: opts.LauncherImage, Port: int32(opts.LauncherPort)}, Authority: keeper, Again: counts.addLater,
		Need: form.Source{API: mgr.GetClient()}.Need, PriorityClass: opts.LauncherPriorityClass,
	})
	watcher, closeWatcher, err := openTelemetry(ctx, views, func() int { return relay.Followers() }, opts.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatcher()) }()
	relay = logrelay.New(life, logrelay.Options{Launcher: logsOf(views), Requesters: watcher.Printers(requesters), Log: opts.Log.WithName("logrelay")})
	slices := newEndpoints(mgr, &again, leading(lock), opts)
	binder = binding.New(life, binding.Options{
		API: mgr.GetClient(), Pods: binding.ReadPods(mgr.GetAPIReader(), opts.Namespace), Providers: watched{views, watcher, relay}, Requesters: watcher.Requesters(requesters), Allocations: kubelets, Endpoints: slices, AgentNamespace: own, Recorder: mgr.GetEventRecorder("hotseat"),
		LauncherPort: opts.LauncherPort, Access: pool.Access, WriteAhead: opts.WriteAhead, RequireTLS: opts.RequireTLS, ModelCache: binding.ReadModelCache(mgr.GetClient(), opts.Namespace, opts.ModelCache), Keeper: modelcache.ReadKeeper(mgr.GetClient(), opts.Namespace), Launchers: pool, Drain: opts.Drain,
		Again: again.add, SwapMoved: func(node string) { servings.addAll(groups.OnNode(life, mgr.GetClient(), node)) }, Observer: crashes(binding.Observers{watcher, relay}), RelayLog: relay.Flush, Now: time.Now, Leads: leading(lock),
	}, opts.Log.WithName("binding"))
	caches, err := newModels(life, mgr, views, config, &models, opts)
	if err != nil {
		return err
	}
	defer relay.Close()
	defer binder.Close()
	defer views.Close()
	defer caches.Close()
	defer end()
	gangs := newGangs(mgr, views, &servings, leading(lock))
	podGroups := readPodGroups(config)
	if err := setUp(life, mgr, config, parts{binder, pool, caches, views, slices, newGroups(mgr, views, binder, gangs, podGroups, watcher.Restarted, leading(lock), opts), gangs, podGroups, leading(lock), keeper, trusted, own}, heard, opts); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("cannot run the controllers: %w", err)
	}
	return nil
}

// newManager returns the manager once the API server answers, and the lock of its leader election;
// nil: there is none.
func newManager(ctx context.Context, config *rest.Config, opts Options) (ctrl.Manager, resourcelock.Interface, error) {
	mopts, err := managerOptions(config, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := awaitAPI(ctx, config, opts.Log); err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(config, mopts)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make the manager: %w", err)
	}
	return mgr, mopts.LeaderElectionResourceLockInterface, nil
}

func slogOf(log logr.Logger) *slog.Logger { return slog.New(logr.ToSlogHandler(log)) }

// managerOptions say what the controllers watch, and how they elect a leader.
func managerOptions(config *rest.Config, opts Options) (ctrl.Options, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(volcano.AddToScheme(scheme))
	own, err := ownOnly(opts)
	if err == nil {
		err = volumesOnly(own)
	}
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("cannot say what is watched: %w", err)
	}
	mopts := ctrl.Options{
		Scheme: scheme, Logger: opts.Log,
		Cache:                  cache.Options{DefaultTransform: slim, ByObject: own},
		Metrics:                server.Options{BindAddress: opts.MetricsAddress},
		HealthProbeBindAddress: opts.ProbesAddress,
		PprofBindAddress:       opts.PprofAddress,
	}
	if opts.Namespace != "" {
		mopts.Cache.DefaultNamespaces = map[string]cache.Config{opts.Namespace: {}}
		if err := withAgents(own, opts); err != nil {
			return ctrl.Options{}, err
		}
	}
	return mopts, elect(&mopts, config, opts)
}
