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
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
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
	c := &controllers{opts: opts, config: rest.CopyConfig(opts.Config)}
	c.config.QPS = -1
	life, end := context.WithCancel(ctx)
	defer func() {
		end()
		err = errors.Join(err, c.close())
	}()
	if err := c.open(life); err != nil {
		return err
	}
	if err := c.setUp(life); err != nil {
		return err
	}
	if err := c.mgr.Start(ctx); err != nil {
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
	utilruntime.Must(inference.Install(scheme))
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
