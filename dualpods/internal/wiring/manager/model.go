package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/model/act"
	"hotseat.dev/hotseat/dualpods/internal/model/pool"
	"hotseat.dev/hotseat/dualpods/internal/model/seatpool"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// frontDoors has the controller listen to the front doors of its own namespace, in the replica that leads.
type frontDoors struct {
	api  client.Reader
	pods *demand.Pods
}

// openFrontDoors makes the listener to the front doors. changed is called with Models whose requests have changed.
func (c *controllers) openFrontDoors() {
	transport := demand.Transport(func(ctx context.Context) (*tls.Config, error) {
		return c.keeper.Launcher(ctx, mtls.FrontDoorName(c.own))
	})
	listener := demand.NewListener(demand.Options{
		Client: &http.Client{Transport: transport}, Logger: slogOf(c.opts.Log.WithName("demand")),
		Changed: func(models []types.NamespacedName) {
			all := make([]reconcile.Request, len(models))
			for i, model := range models {
				all[i] = reconcile.Request{NamespacedName: model}
			}
			c.demands.addAll(all)
			c.poolDemands.addAll(c.seatPools.OfModels(models))
		},
	})
	c.later(transport.CloseIdleConnections)
	c.later(listener.Close)
	c.doors = &frontDoors{api: c.mgr.GetClient(), pods: &demand.Pods{Listener: listener}}
}

// Reconcile notes a Pod of the front door.
func (f *frontDoors) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := f.api.Get(ctx, request.NamespacedName, &pod)
	switch {
	case apierrors.IsNotFound(err):
		f.pods.Delete(request.NamespacedName)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("cannot read Pod %s: %w", request, err)
	default:
		f.pods.Set(&pod)
	}
	return reconcile.Result{}, nil
}

// forgetTime bounds the deletion of what sleeps of a Model.
const forgetTime = 10 * time.Second

// forget returns what deletes the instances of a configuration that sleep, and that others do not want.
func forget(configs *serverconfig.Controller, views *nodeview.Set) func(context.Context, *v1alpha1.InferenceServerConfig) error {
	return func(ctx context.Context, config *v1alpha1.InferenceServerConfig) error {
		unwanted, err := configs.Unwanted(ctx, config)
		if err != nil {
			return err
		}
		ctx, stop := context.WithTimeout(ctx, forgetTime)
		defer stop()
		var errs []error
		for uid, ids := range unwanted {
			launcher := views.Client(uid)
			if launcher == nil {
				continue // it is gone, and what slept with it
			}
			for _, id := range ids {
				if _, err := launcher.Delete(ctx, id); err != nil && !launcherclient.IsNotFound(err) {
					errs = append(errs, fmt.Errorf("cannot delete the sleeping instance %s: %w", id, err))
				}
			}
		}
		return errors.Join(errs...)
	}
}

// newSeatPools makes the controller of SeatPools.
func (c *controllers) newSeatPools() {
	c.seatPools = seatpool.New(seatpool.Options{
		API: c.mgr.GetClient(), Demand: c.doors.pods.Listener, Views: c.views, Image: c.opts.RequesterImage, Recorder: c.mgr.GetEventRecorder("hotseat"), Leads: c.leads,
		Acts: crashesAtSeat(), Now: time.Now,
	})
}

// setUpModel registers the controllers of Models and SeatPools, and the watch of the front doors.
func (c *controllers) setUpModel(ctx context.Context, configs *serverconfig.Controller) error {
	own := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == c.own && o.GetLabels()[podmeta.LabelComponent] == podmeta.ComponentFrontDoor
	})
	if err := ctrl.NewControllerManagedBy(c.mgr).Named("frontdoors").For(&corev1.Pod{}, builder.WithPredicates(own)).Complete(c.doors); err != nil {
		return fmt.Errorf("cannot watch the front doors: %w", err)
	}
	sleepers := placement.NewSleepers(placement.Options{API: c.mgr.GetClient(), Views: c.views, Now: time.Now})
	counts := act.NewMetrics(time.Now)
	if err := metrics.Registry.Register(counts); err != nil {
		return fmt.Errorf("cannot answer metrics of Models: %w", err)
	}
	c.later(func() { metrics.Registry.Unregister(counts) })
	options := act.Options{
		API: c.mgr.GetClient(), Live: c.mgr.GetAPIReader(), Demand: c.doors.pods.Listener, Images: workload.Images{Requester: c.opts.RequesterImage, Fetch: c.opts.LauncherImage}, Recorder: c.mgr.GetEventRecorder("hotseat"), Leads: c.leads,
		Sleepers: sleepers.Of, Forget: forget(configs, c.views), Acted: crashesAtModel(), Metrics: counts, Now: time.Now,
	}
	pools := pool.New(pool.Options{API: c.mgr.GetClient(), Live: c.mgr.GetAPIReader(), Leads: c.leads})
	return errors.Join(
		act.New(options).SetupWithManager(ctx, c.mgr, c.demands.source(), sideBySide()),
		(&act.Sweeper{Options: options}).SetupWithManager(c.mgr, sideBySide()),
		pools.SetupWithManager(c.mgr),
		c.seatPools.SetupWithManager(ctx, c.mgr, c.poolDemands.source(), sideBySide()),
	)
}
