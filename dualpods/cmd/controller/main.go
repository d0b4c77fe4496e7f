// Command controller binds server-requesting Pods to inference servers in the
// launchers of their nodes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"hotseat.dev/hotseat/dualpods/internal/wiring/manager"
	"hotseat.dev/hotseat/spec/podmeta"
)

func main() {
	boundGarbage()
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// logTo has everything that logs do so on stderr.
func logTo(level slog.Level) logr.Logger {
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

func command() *cobra.Command {
	var opts manager.Options
	var level slog.Level
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller: bind requester Pods to inference servers in the launchers of their nodes",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			opts.Log = logTo(level)
			if wrong := podmeta.CheckModelCache(opts.ModelCache); wrong != "" {
				return fmt.Errorf("--model-cache: %s", wrong)
			}
			var err error
			if opts.Config, err = config.GetConfig(); err != nil {
				return fmt.Errorf("cannot find the API server (in a Pod, or by KUBECONFIG): %w", err)
			}
			ctx, end := context.WithCancel(c.Context())
			var beside sync.WaitGroup
			defer beside.Wait()
			defer end()
			beside.Go(func() { giveBack(ctx, givenBack) })
			return manager.Run(ctx, opts)
		},
	}
	c.AddCommand(crdsCommand(), letGoCommand(), checkCommand(), clientCertificateCommand())
	f := c.Flags()
	f.StringVar(&opts.Namespace, "namespace", "", "the only namespace to watch; empty: all")
	f.BoolVar(&opts.LeaderElection, "leader-elect", false, "elect a leader, so that one of several replicas works at a time")
	f.StringVar(&opts.LeaseNamespace, "lease-namespace", "", "namespace of the Lease of leader election; empty: the controller's own")
	f.StringVar(&opts.Identity, "leader-identity", "", "unique name of this replica, such as its Pod's UID, which a restart of the container does not change; empty: a random name")
	f.StringVar(&opts.CANamespace, "ca-namespace", "", "namespace of the Secret hotseat-ca, which has the certificate authority; empty: that of --lease-namespace, or else the controller's own")
	f.BoolVar(&opts.WriteAhead, "write-ahead", true, "bind a requester, and wake its model, by what the kubelet says of its GPUs before its own program runs; not where its LauncherConfig has allocationCheck.mode None")
	f.BoolVar(&opts.RequireTLS, "require-requester-tls", false, "refuse requesters that do not mount the ConfigMap hotseat-ca: they take orders from any client")
	f.StringVar(&opts.ModelCache, "model-cache", "auto", "default of the annotation hotseat.dev/model-cache of requesters and namespaces: auto, require or off")
	f.StringVar(&opts.MetricsAddress, "metrics-address", "0", "address that serves /metrics, such as :8080; 0: none")
	f.StringVar(&opts.PprofAddress, "pprof-address", "0", "address that serves /debug/pprof, such as 127.0.0.1:6060; 0: none")
	f.StringVar(&opts.ProbesAddress, "probes-address", "0", "address that serves /healthz and /readyz, such as :8081; 0: none")
	f.IntVar(&opts.AdmissionPort, "admission-port", 0, "port of the admission webhook that decides whether a ClusterModelCache may be deleted, such as 9443; 0: no webhook")
	f.StringVar(&opts.PodIP, "pod-ip", "", "address of this Pod, at which the API server calls the webhook of --admission-port")
	f.IntVar(&opts.LauncherPort, "launcher-port", 8001, "port of the launchers' control API")
	f.StringVar(&opts.LauncherImage, "launcher-image", "hotseat.local/launcher:dev", "image with /launcher, which the controller has copied into the launcher Pods of LauncherConfigs")
	f.StringVar(&opts.RequesterImage, "requester-image", "hotseat.local/requester:dev", "image with the requester program, for the Pods of ModelServings that name an InferenceServerConfig")
	f.StringVar(&opts.LauncherPriorityClass, "launcher-priority-class", "", "PriorityClass of launchers whose LauncherConfig names none; empty: none")
	f.DurationVar(&opts.Drain, "drain-timeout", 10*time.Second, "how long client connections of an unbound requester may take to end before they are cut; those of a deleted requester have the rest of its grace period if that is longer")
	f.IntVar(&opts.Nodes, "nodes-at-once", 64, "how many nodes to reconcile in parallel")
	f.TextVar(&level, "log-level", slog.LevelInfo, "lowest level to log: debug, info, warn or error")
	return c
}
