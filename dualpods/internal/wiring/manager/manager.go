// Package manager runs the controllers of dual pods in one process.
package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/modelclaim"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/dualpods/internal/trust/admission"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/dualpods/internal/wiring/logrelay"
	"hotseat.dev/hotseat/dualpods/internal/wiring/telemetry"
	"hotseat.dev/hotseat/spec/podmeta"
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
	// CANamespace is where the Secret of the certificate authority is; empty: where
	// the Lease is, or else the controller's own.
	CANamespace string
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
	Drain         time.Duration
	Nodes         int // how many are looked at side by side
	Log           logr.Logger
}

// Run works until ctx ends, or another replica leads.
func Run(ctx context.Context, opts Options) (err error) {
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1
	mopts, err := managerOptions(config, opts)
	if err != nil {
		return err
	}
	if err := awaitAPI(ctx, config, opts.Log); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, mopts)
	if err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	life, end := context.WithCancel(ctx)
	defer end()
	var again, counts, models, claims requests
	keeper, trusted, err := openAuthority(ctx, mgr, config, opts, &counts)
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
	}
	views := nodeview.New(nodeview.Options{TLS: keeper.Launcher, Header: telemetry.Header, ModelsChanged: heard.modelsChanged, Changed: heard.changed})
	pool = launcherpool.New(launcherpool.Options{
		API: mgr.GetClient(), Views: views, Recorder: mgr.GetEventRecorder("hotseat"),
		Launcher: launcherpool.Image{Name: opts.LauncherImage, Port: int32(opts.LauncherPort)}, Authority: keeper,
	})
	watcher, closeWatcher, err := openTelemetry(ctx, views, func() int { return relay.Followers() }, opts.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatcher()) }()
	relay = logrelay.New(life, logrelay.Options{Launcher: logsOf(views), Requesters: watcher.Printers(requesters), Log: opts.Log.WithName("logrelay")})
	binder = binding.New(life, binding.Options{
		API: mgr.GetClient(), Pods: podsOf(mgr.GetAPIReader(), opts.Namespace), Views: watched{views, watcher, relay}, Requesters: watcher.Requesters(requesters), Allocations: kubelets, Recorder: mgr.GetEventRecorder("hotseat"),
		LauncherPort: opts.LauncherPort, Access: pool.Access, RequireTLS: opts.RequireTLS, ModelCache: modelCacheOf(mgr.GetClient(), opts.Namespace, opts.ModelCache), Keeper: modelcache.ReadKeeper(mgr.GetClient(), opts.Namespace), Launchers: pool, Drain: opts.Drain,
		Again: again.add, Observer: crashes(binding.Observers{watcher, relay}), RelayLog: relay.Flush, Now: time.Now,
		Leads: leading(mopts.LeaderElectionResourceLockInterface),
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
	claimed, err := newClaims(life, mgr, views, config, &claims, opts)
	if err != nil {
		return err
	}
	publisher := &authority.Publisher{API: mgr.GetClient(), Current: keeper.Current}
	volumes := &modelvolume.Controller{API: mgr.GetClient(), Recorder: mgr.GetEventRecorder("hotseat"), Now: time.Now, Namespace: opts.Namespace}
	placer := placement.New(placement.Options{
		API: mgr.GetClient(), Views: views, Recorder: mgr.GetEventRecorder("hotseat"), Caches: opts.Namespace == "", Now: time.Now,
	})
	configs := serverconfig.New(serverconfig.Options{API: mgr.GetClient(), Views: views, Recorder: mgr.GetEventRecorder("hotseat")})
	if opts.Namespace == "" { // else ClusterModelCaches are left to a controller of the whole cluster
		if err := caches.SetupWithManager(ctx, mgr, models.source()); err != nil {
			return err
		}
	}
	if err := errors.Join(setUp(ctx, mgr, binder, &again, opts), pool.SetupWithManager(ctx, mgr, counts.source()), configs.SetupWithManager(ctx, mgr), publisher.SetupWithManager(mgr, trusted.namespaces.source()), claimed.SetupWithManager(life, mgr, claims.source(), triedAgain()), volumes.SetupWithManager(ctx, mgr, triedAgain()), placer.SetupWithManager(ctx, mgr), setUpModelCacheOf(ctx, mgr, opts.Namespace), setUpAdmission(mgr, keeper, trusted, &admission.Guard{Uses: caches.Uses}, opts), setUpProbes(mgr)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("cannot run the controllers: %w", err)
	}
	return nil
}

func setUpProbes(mgr ctrl.Manager) error {
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("cannot answer probes: %w", err)
	}
	return nil
}

// managerOptions say what the controllers watch, and how they elect a leader.
func managerOptions(config *rest.Config, opts Options) (ctrl.Options, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	own, err := ownOnly()
	if err := errors.Join(err, admissionOnly(own, opts), volumesOnly(own)); err != nil {
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
	}
	return mopts, elect(&mopts, config, opts)
}

// podsOf are the Pods of a node as the API server has them by now: a list without
// a resource version is never one of a server that lags behind
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list).
func podsOf(api client.Reader, namespace string) func(context.Context, string) ([]corev1.Pod, error) {
	return func(ctx context.Context, node string) ([]corev1.Pod, error) {
		ctx, stop := context.WithTimeout(ctx, askLimit)
		defer stop()
		var pods corev1.PodList
		err := api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{dualpods.IndexNode: node})
		return pods.Items, err
	}
}

// watched are launchers as package binding asks for them.
type watched struct {
	*nodeview.Set
	telemetry *telemetry.Telemetry
	relay     *logrelay.Relay
}

// logsOf are launchers as package logrelay asks for them.
func logsOf(views *nodeview.Set) func(uid string) logrelay.Launcher {
	return func(uid string) logrelay.Launcher {
		if c := views.Client(uid); c != nil {
			return c
		}
		return nil
	}
}

func (w watched) Client(key string) binding.LauncherClient {
	if c := w.Set.Client(key); c != nil {
		return w.relay.Watched(w.telemetry.Launcher(c))
	}
	return nil
}

// setUp has the controller look at a node whenever something of it changes.
func setUp(ctx context.Context, mgr ctrl.Manager, binder *binding.Controller, again *requests, opts Options) error {
	index := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, dualpods.IndexNode, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	nodes := ctrl.NewControllerManagedBy(mgr).Named("binding")
	if opts.Namespace == "" {
		nodes = nodes.Watches(&v1alpha1.ClusterModelCache{}, waitingFor(mgr.GetClient()))
	}
	return nodes.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return request(o.GetName())
		})).
		Watches(&v1alpha1.InferenceServerConfig{}, handler.EnqueueRequestsFromMapFunc(nodesOfConfig(mgr.GetClient())), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.LauncherConfig{}, handler.EnqueueRequestsFromMapFunc(nodesOfNamespace(mgr.GetClient())), builder.WithPredicates(configChanged())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(nodesOfSecret(mgr.GetClient()))).
		WatchesRawSource(source.Func(again.begin)).
		WithOptions(controller.Options{MaxConcurrentReconciles: opts.Nodes}).
		Complete(binder)
}

func nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok || !podmeta.IsRequester(pod) && !dualpods.IsLauncher(pod) || podmeta.AwaitsPlacement(pod) && !podmeta.Held(pod) {
		return nil
	}
	if dualpods.IsLauncher(pod) {
		return request(launcherpool.NodeOf(pod))
	}
	return request(pod.Spec.NodeName)
}

// nodesOfConfig are those of the requesters that name an InferenceServerConfig.
func nodesOfConfig(api client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var pods corev1.PodList
		of := client.MatchingFields{serverconfig.IndexConfig: o.GetName()}
		if err := api.List(ctx, &pods, client.InNamespace(o.GetNamespace()), of, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var all []reconcile.Request
		seen := map[string]bool{}
		for i := range pods.Items {
			if node := pods.Items[i].Spec.NodeName; !seen[node] {
				seen[node] = true
				all = append(all, request(node)...)
			}
		}
		return all
	}
}
