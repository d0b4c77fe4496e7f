// Cluster starts and ends a real Kubernetes on this machine; see package
// cluster.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "A real Kubernetes on this machine, for tests", SilenceUsage: true, SilenceErrors: true}
	dir := cmd.PersistentFlags().String("dir", filepath.Join(os.TempDir(), "hotseat-cluster"), "folder of the cluster")
	cmd.AddCommand(upCommand(dir), downCommand(dir), kubectlCommand(dir), shellCommand(dir), keepCommand(), initCommand(), nodeCommand(), pauseCommand())
	return cmd
}

func upCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{Use: "up", Short: "Start the cluster, and return when it is ready", Args: cobra.NoArgs}
	nodes := cmd.Flags().Int("nodes", 1, "number of nodes; 0: the API server alone")
	gpus := cmd.Flags().Int("gpus", 2, "simulated GPUs on each node")
	source := cmd.Flags().String("source", "test/cluster/kube", "folder of the module that holds Kubernetes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kube, err := cluster.Kube(cmd.Context(), *source, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c, err := cluster.Up(cmd.Context(), self, cluster.Config{Dir: *dir, Kube: kube, Nodes: *nodes, GPUs: *gpus}, false)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the cluster is up; its kubeconfig is %s\n", c.Kubeconfig())
		return err
	}
	return cmd
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Find(*dir)
			if err != nil {
				return fmt.Errorf("%s: %w", *dir, err)
			}
			return c.Down(cmd.Context())
		},
	}
}

func kubectlCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", Short: "Run kubectl as the cluster's administrator", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := cluster.Find(*dir)
			if err != nil {
				return fmt.Errorf("%s: %w", *dir, err)
			}
			return syscall.Exec(c.Kube, append([]string{"kube", "kubectl", "--kubeconfig=" + c.Kubeconfig()}, args...), os.Environ())
		},
	}
}

func shellCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "shell", Short: "Open a shell with a kubectl that just works", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Find(*dir)
			if err != nil {
				return fmt.Errorf("%s: %w", *dir, err)
			}
			bin := filepath.Join(c.Dir, "bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				return err
			}
			if err := os.Symlink(c.Kube, filepath.Join(bin, "kubectl")); err != nil && !os.IsExist(err) {
				return err
			}
			shell := exec.CommandContext(cmd.Context(), "bash")
			shell.Stdin, shell.Stdout, shell.Stderr = os.Stdin, os.Stdout, os.Stderr
			shell.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+bin+":"+os.Getenv("PATH"))
			return shell.Run()
		},
	}
}

// The commands below are what a cluster consists of; people do not call them.

func keepCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keep DIR", Hidden: true, Args: cobra.ExactArgs(1)}
	held := cmd.Flags().Bool("held", false, "end when standard input does")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		if *held {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
				cancel()
			}()
		}
		return cluster.Keep(ctx, args[0])
	}
	return cmd
}

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init DIR SLOT", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			slot, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			return cluster.Init(args[0], slot)
		},
	}
}

func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "node DIR SLOT NUMBER", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			slot, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			number, err := strconv.Atoi(args[2])
			if err != nil {
				return err
			}
			return cluster.Node(args[0], slot, number)
		},
	}
}

// pauseCommand is the program of the pause image: PID 1 of a Pod.
func pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pause", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done() // the kubelet ends it by SIGTERM
			return nil
		},
	}
}
