package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"hotseat.dev/hotseat/dualpods/internal/trust/installation"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// What the chart's hooks run.

func crdsCommand() *cobra.Command {
	var remove bool
	c := hook("crds", "Apply the CustomResourceDefinitions of this version", func(ctx context.Context, api client.Client) error {
		if remove {
			return installation.DeleteCRDs(ctx, api)
		}
		return installation.ApplyCRDs(ctx, api)
	})
	c.Flags().BoolVar(&remove, "delete", false, "delete them instead, with every object of these kinds")
	return c
}

func letGoCommand() *cobra.Command {
	var opts installation.LetGoOptions
	var deployment, engines string
	c := hook("let-go", "Stop the controller, and remove its finalizers from all Pods", func(ctx context.Context, api client.Client) error {
		var err error
		if opts.Deployment, err = keyOf(deployment); err != nil {
			return err
		}
		opts.Engines, opts.Log = installation.Engines(engines), logTo(slog.LevelInfo)
		return installation.LetGo(ctx, api, opts)
	})
	f := c.Flags()
	f.StringVar(&deployment, "deployment", "", "the controller's Deployment, as namespace/name")
	f.StringVar(&opts.Namespace, "namespace", "", "the only namespace that the controller watches; empty: all")
	f.StringVar(&opts.RequesterPolicy, "requester-policy", "", "the MutatingAdmissionPolicyBinding by which new requesters get the controller's finalizer, which is deleted first; empty: there is none")
	f.StringVar(&engines, "engines", string(installation.Leave), "what to do with launchers and engines: leave or stop")
	return c
}

func checkCommand() *cobra.Command {
	var opts installation.CheckOptions
	var deployment string
	c := hook("check", "Check the installation: the controller, the CustomResourceDefinitions and the launchers", func(ctx context.Context, api client.Client) error {
		var err error
		if opts.Deployment, err = keyOf(deployment); err != nil {
			return err
		}
		opts.Log = logTo(slog.LevelInfo)
		return installation.Check(ctx, api, opts)
	})
	f := c.Flags()
	f.StringVar(&deployment, "deployment", "", "the controller's Deployment, as namespace/name")
	f.StringVar(&opts.Namespace, "namespace", "", "the only namespace that the controller watches; empty: all")
	return c
}

func keyOf(deployment string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(deployment, "/")
	if !ok {
		return client.ObjectKey{}, fmt.Errorf("--deployment is %q: give the controller's Deployment as namespace/name", deployment)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// hook is a command that speaks to the API server for a limited time.
func hook(use, short string, run func(context.Context, client.Client) error) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logTo(slog.LevelInfo)
			ctx, stop := context.WithTimeout(c.Context(), timeout)
			defer stop()
			api, err := apiServer()
			if err != nil {
				return err
			}
			return run(ctx, api)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "time limit of the command")
	return c
}

func apiServer() (client.Client, error) {
	where, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server (in a Pod, or by KUBECONFIG): %w", err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register the types of Kubernetes: %w", err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register the types of CustomResourceDefinitions: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register the types of hotseat: %w", err)
	}
	api, err := client.New(where, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the API server: %w", err)
	}
	return api, nil
}
