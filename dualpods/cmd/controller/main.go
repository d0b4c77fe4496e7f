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
		Short: "Bind server-requesting Pods to inference servers in the launchers of their nodes",
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
	f.StringVar(&opts.Namespace, "namespace", "", "the only namespace to look at; empty for all")
	f.BoolVar(&opts.LeaderElection, "leader-elect", false, "let one of several replicas work at a time")
	f.StringVar(&opts.LeaseNamespace, "lease-namespace", "", "where the Lease of leader election is; empty for the controller's own")
	f.StringVar(&opts.Identity, "leader-identity", "", "what tells this replica from others, such as its Pod's UID: the same when its container is started again; empty for a random one")
	f.StringVar(&opts.CANamespace, "ca-namespace", "", "where the Secret hotseat-ca of the certificate authority is; empty for where the Lease is, or else the controller's own")
	f.BoolVar(&opts.WriteAhead, "write-ahead", true, "bind a requester, and wake its model, by what the kubelet says of its GPUs before its own program runs; not where its LauncherConfig has allocationCheck.mode None")
	f.BoolVar(&opts.RequireTLS, "require-requester-tls", false, "refuse requesters that anybody could give orders to: those that do not mount the ConfigMap hotseat-ca")
	f.StringVar(&opts.ModelCache, "model-cache", "auto", "from where engines have their models where neither the requester nor its namespace has the annotation hotseat.dev/model-cache: auto, require or off")
	f.StringVar(&opts.MetricsAddress, "metrics-address", "0", "where to answer /metrics, such as :8080; 0 for nowhere")
	f.StringVar(&opts.PprofAddress, "pprof-address", "0", "where to answer /debug/pprof, such as 127.0.0.1:6060; 0 for nowhere")
	f.StringVar(&opts.ProbesAddress, "probes-address", "0", "where to answer /healthz and /readyz; 0 for nowhere")
	f.IntVar(&opts.AdmissionPort, "admission-port", 0, "where the API server asks whether a ClusterModelCache may be deleted, such as 9443; 0 for nowhere")
	f.StringVar(&opts.PodIP, "pod-ip", "", "address of this Pod, which the API server is told with --admission-port")
	f.IntVar(&opts.LauncherPort, "launcher-port", 8001, "port of the launchers' control API")
	f.StringVar(&opts.LauncherImage, "launcher-image", "hotseat.local/launcher:dev", "image whose /launcher is copied into the launchers that LauncherConfigs ask for")
	f.StringVar(&opts.LauncherPriorityClass, "launcher-priority-class", "", "PriorityClass of launchers whose LauncherConfig names none; empty for none")
	f.DurationVar(&opts.Drain, "drain-timeout", 10*time.Second, "how long connections of a requester's clients may take to end before they are cut, at least: those of a deleted requester have the rest of its grace")
	f.IntVar(&opts.Nodes, "nodes-at-once", 64, "how many nodes are looked at side by side")
	f.TextVar(&level, "log-level", slog.LevelInfo, "what is logged: debug, info, warn or error")
	return c
}
