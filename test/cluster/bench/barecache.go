package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// bareCacheEnv makes a process of this program the baseline of the controller's
// memory; its value is the kubeconfig.
const bareCacheEnv = "HOTSEAT_BENCH_BARE_CACHE"

// serveBareCache keeps all Pods in a cache such as the controller's, without their
// managed fields, and does nothing with them, until ctx ends.
func serveBareCache(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	m, err := ctrl.NewManager(config, manager.Options{
		Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return fmt.Errorf("cannot make the cache: %w", err)
	}
	if _, err := m.GetCache().GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cannot watch Pods: %w", err)
	}
	return m.Start(ctx)
}
