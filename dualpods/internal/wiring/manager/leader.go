package manager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// leaseName names the Lease of leader election.
const leaseName = "hotseat-controller"

// Terms of leader election, which are those of Kubernetes' own components. A
// leader that has not reached the API server for renewDeadline ends; another
// replica leads leaseDuration after the leader was last heard of.
var (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// elect sets leader election up. A leader that ends in order gives the Lease
// back, so that the next one leads at once. One that was killed cannot; where
// replicas have identities, its container, started again, leads at once too.
func elect(mopts *ctrl.Options, config *rest.Config, opts Options) error {
	if !opts.LeaderElection {
		return nil
	}
	mopts.LeaderElection, mopts.LeaderElectionReleaseOnCancel = true, true
	mopts.LeaderElectionID, mopts.LeaderElectionNamespace = leaseName, opts.LeaseNamespace
	mopts.LeaseDuration, mopts.RenewDeadline, mopts.RetryPeriod = &leaseDuration, &renewDeadline, &retryPeriod
	if opts.Identity == "" {
		return nil
	}
	if opts.LeaseNamespace == "" {
		return errors.New("cannot elect a leader: an identity was given, and no namespace for the Lease")
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, opts.LeaseNamespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: opts.Identity}, config, renewDeadline)
	if err != nil {
		return fmt.Errorf("cannot elect a leader: %w", err)
	}
	mopts.LeaderElectionResourceLockInterface = &lease{Interface: lock}
	return nil
}

// lease is a Lease that knows until when this replica leads by it.
type lease struct {
	resourcelock.Interface
	renewed atomic.Pointer[time.Time] // nil: this replica has not led
}

// Create implements [resourcelock.Interface].
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements [resourcelock.Interface].
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lease) write(ctx context.Context, record resourcelock.LeaderElectionRecord, to func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := time.Now() // others count from when they see it, which is later
	err := to(ctx, record)
	switch {
	case err != nil:
	case record.HolderIdentity == l.Identity():
		l.renewed.Store(&began)
	default: // it is given back
		l.renewed.Store(nil)
	}
	return err
}

// leads says that no other replica can lead by now. A process that was frozen, and
// goes on in the middle of what it was about to do, learns so before the election does.
func (l *lease) leads() bool {
	renewed := l.renewed.Load()
	return renewed != nil && time.Since(*renewed) < leaseDuration
}

// leading asks the lock of leader election whether this replica leads still; nil:
// there is none that knows.
func leading(lock resourcelock.Interface) func() bool {
	if l, ok := lock.(*lease); ok {
		return l.leads
	}
	return nil
}

// Bounds of the pause before the API server is asked again.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
	// askLimit bounds a question that may get no answer.
	askLimit = 5 * time.Second
)

// awaitAPI waits until the API server answers. A controller that ended instead
// would be started again by the kubelet, later each time.
func awaitAPI(ctx context.Context, config *rest.Config, log logr.Logger) error {
	limited := rest.CopyConfig(config)
	limited.Timeout = askLimit
	api, err := discovery.NewDiscoveryClientForConfig(limited)
	if err != nil {
		return fmt.Errorf("cannot ask the API server: %w", err)
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		_, err := api.ServerVersionWithContext(ctx)
		if err == nil {
			return nil
		}
		if pause == firstPause {
			log.Info("waiting for the API server", "address", config.Host, "error", err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("cannot reach the API server: %w", err)
		}
	}
}
