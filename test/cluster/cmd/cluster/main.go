// Cluster starts and ends a real Kubernetes on this machine; see package
// cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if status, ok := errors.AsType[exitStatus](err); ok {
		os.Exit(int(status)) // the program that was run has said why
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "A real Kubernetes on this machine, for tests", SilenceUsage: true, SilenceErrors: true}
	cmd.AddCommand(upCommand(), downCommand(), findCommand(), kubectlCommand(), shellCommand(), runCommand(), imageCommand(), productCommand(), helmCommand(), keepCommand(), nodeCommand())
	cmd.Long = "A real Kubernetes on this machine, for tests.\n\n" + cluster.EnvName + " names the cluster; without it the name is default."
	return cmd
}

func options(cmd *cobra.Command) *cluster.Options {
	o := &cluster.Options{Progress: os.Stderr}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 1, "number of nodes; 0: the API server alone")
	cmd.Flags().IntVar(&o.GPUs, "gpus", 2, "simulated GPUs on each node")
	cmd.Flags().StringVar(&o.AuditPolicy, "audit-policy", "", "file of an audit policy, by which the API server then writes a log; empty: it writes none")
	cmd.Flags().BoolVar(&o.PodGroups, "pod-groups", false, "place the Pods of Kubernetes' PodGroups together")
	cmd.Flags().BoolVar(&o.NetworkPolicies, "network-policies", false, "enforce NetworkPolicies, by kube-router")
	return o
}

func upCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "up", Short: "Start a cluster, and return when it is ready", Args: cobra.NoArgs}
	o := options(cmd)
	o.Detached = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.Up(cmd.Context(), *o)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s is up; its kubeconfig is %s\n", c.Name, c.Kubeconfig())
		return err
	}
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster, and sweep away what others left", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Find("")
			if errors.Is(err, cluster.ErrNone) {
				_, said := fmt.Fprintf(cmd.OutOrStdout(), "nothing was ended: %v\n", err)
				return errors.Join(cluster.Sweep(), said)
			}
			if err != nil {
				return err
			}
			if err := c.Down(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s has ended; nothing of it is left\n", c.Name)
			return err
		},
	}
}

func findCommand() *cobra.Command {
	return &cobra.Command{
		Use: "find", Short: "Fail unless the cluster runs", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := cluster.Find("")
			return err
		},
	}
}

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image NAME:TAG FILE...", Short: "Make an image of programs, known to every node", Args: cobra.MinimumNArgs(2),
		Example: "  cluster image hotseat.local/launcher:dev bin/launcher bin/enginesim   # they are /launcher and /enginesim in it",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.Find("")
		if err != nil {
			return err
		}
		files := map[string]string{}
		for _, file := range args[1:] {
			files["/"+filepath.Base(file)] = file
		}
		return c.LoadImage(cmd.Context(), args[0], images.Image{Files: files})
	}
	return cmd
}

// productTag is the tag of hotseat's images in the cluster; the chart and the examples name it.
const productTag = "dev"

func productCommand() *cobra.Command {
	return &cobra.Command{
		Use: "images FOLDER", Short: "Make the images of hotseat, of the programs in a folder, known to every node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Find("")
			if err != nil {
				return err
			}
			if err := c.LoadProduct(cmd.Context(), args[0], productTag); err != nil {
				return err
			}
			var names []string
			for _, p := range images.Products {
				names = append(names, p.Name+":"+productTag)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s has the images of hotseat.local: %s\n", c.Name, strings.Join(names, ", "))
			return err
		},
	}
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", Short: "Run kubectl as the cluster's administrator", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Find("")
			if err != nil {
				return err
			}
			return inside(cmd.Context(), []*cluster.Cluster{c}, append([]string{c.Bin() + "/kubectl"}, args...))
		},
	}
}

func helmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "helm-path", Short: "Print where the program helm is, which is built if need be", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := cluster.HelmProgram(cmd.Context(), os.Stderr)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
}

func shellCommand() *cobra.Command {
	return &cobra.Command{
		Use: "shell", Short: "Open a shell with a kubectl and a helm that just work", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Find("")
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "kubectl and helm of this shell talk to cluster %s; exit leaves the shell, and the cluster goes on\n", c.Name)
			// The shell gets the terminal's signals itself.
			err = inside(context.WithoutCancel(cmd.Context()), []*cluster.Cluster{c}, []string{"bash"})
			if _, ok := errors.AsType[exitStatus](err); ok && isTerminal(os.Stdin) {
				return nil // it is the status of the last command, which the user has seen fail
			}
			return err
		},
	}
}

// isTerminal says whether somebody types into a file.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run PROGRAM [ARGUMENT ...]", Short: "Start a cluster for as long as a program runs that uses it", Args: cobra.MinimumNArgs(1),
		Long: "Start a cluster, or several that are alike, for as long as a program runs that uses them.\n\n" +
			"The program finds the name of the first one in " + cluster.EnvName + ", and those of all in " + cluster.EnvNames + ".",
	}
	o := options(cmd)
	lanes := cmd.Flags().Int("lanes", 1, "number of clusters; 0: as many as this machine keeps busy")
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Name = fmt.Sprintf("run-%d", os.Getpid())
		if *lanes == 0 {
			if *lanes, err = cluster.Lanes(o.Nodes); err != nil {
				return err
			}
		}
		clusters, err := cluster.UpAll(cmd.Context(), *o, *lanes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.DownAll(clusters)) }()
		return inside(cmd.Context(), clusters, args)
	}
	return cmd
}

// inside runs a program that finds the clusters in its environment.
func inside(ctx context.Context, clusters []*cluster.Cluster, args []string) error {
	program := exec.CommandContext(ctx, args[0], args[1:]...)
	program.Stdin, program.Stdout, program.Stderr, program.Env = os.Stdin, os.Stdout, os.Stderr, cluster.Environ(clusters)
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	err := program.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitStatus(max(1, exit.ExitCode()))
	}
	return err
}

// exitStatus is that of a program that was run for the user.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// The commands below are what a cluster consists of; people do not call them.

func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use: "keep NAME", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return cluster.Keep(args[0]) },
	}
}

func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "node NAME NUMBER", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			number, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			return cluster.Node(args[0], number)
		},
	}
}
