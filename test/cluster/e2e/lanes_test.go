//go:build cluster

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// lane is a cluster with hotseat installed. One test at a time has it, whole: its
// nodes, its release, its API server. spec/testing.md says why.
type lane struct {
	cluster *cluster.Cluster
	api     client.Client
	rest    *rest.Config
}

var (
	lanes     []*lane
	freeLanes chan *lane
	heldLanes sync.Map // name of a test -> its *lane
)

// laneOf returns the lane of a test. The first call waits for a free lane; from then
// on the test runs beside others, until its end frees the lane. Subtests share the
// lane of their test, which therefore calls laneOf before it starts them.
func laneOf(t *testing.T) *lane {
	t.Helper()
	name, _, isSubtest := strings.Cut(t.Name(), "/")
	if l, ok := heldLanes.Load(name); ok {
		return l.(*lane)
	}
	require.False(t, isSubtest, "call laneOf in %s before its subtests start", name)
	t.Parallel()
	l := <-freeLanes
	heldLanes.Store(name, l)
	t.Cleanup(func() {
		heldLanes.Delete(name)
		freeLanes <- l
	})
	return l
}

// setUpLanes prepares each cluster that the environment names, all at once, and has
// as many tests run side by side.
func setUpLanes(ctx context.Context) error {
	names := strings.Fields(os.Getenv(cluster.EnvNames))
	if len(names) == 0 {
		names = []string{""}
	}
	freeLanes = make(chan *lane, len(names))
	var ready errgroup.Group
	for _, name := range names {
		l := &lane{}
		lanes = append(lanes, l)
		ready.Go(func() error {
			if err := l.setUp(ctx, name); err != nil {
				return fmt.Errorf("cannot set up lane %q: %w", name, err)
			}
			freeLanes <- l
			return nil
		})
	}
	if err := ready.Wait(); err != nil {
		return err
	}
	return flag.Set("test.parallel", strconv.Itoa(len(lanes)))
}

// setUp makes the images known to the cluster and starts the controller.
func (l *lane) setUp(ctx context.Context, name string) (err error) {
	if l.cluster, err = cluster.Find(name); err != nil {
		return err
	}
	if l.rest, err = clientcmd.BuildConfigFromFlags("", l.cluster.Kubeconfig()); err != nil {
		return err
	}
	l.rest.QPS = -1
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if l.api, err = client.New(l.rest, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := l.cluster.LoadProduct(ctx, root("bin"), "dev"); err != nil {
		return err
	}
	return l.install(ctx)
}
