package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/roles/restarts"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Views returns what the launchers report, by the UID of their Pods.
type Views interface {
	One(key, id string) nodeview.View
}

// Swaps tells how far the swaps of ranks are.
type Swaps interface {
	SwapOf(launcher types.UID, record *podmeta.Binding) dualpods.RankSwap
}

// Gangs tells what groups with a gang policy wait for.
type Gangs interface {
	// Waits returns what the Pods of a group wait for, in words; empty: nothing, or it is not known.
	Waits(serving types.UID, group string) string
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache and writes to the API server. The cache indexes Pods, Services,
	// EndpointSlices, ControllerRevisions and RoleScalers by Index, and Pods by dualpods.IndexNode. It holds
	// only EndpointSlices and ControllerRevisions of the controller's own.
	API   client.Client
	Views Views
	Swaps Swaps // of ranks
	Gangs Gangs // nil: nobody knows
	// PodGroups reports whether the cluster has PodGroups of Kubernetes; nil: it has none.
	PodGroups func() (bool, error)
	Launcher  func(key string) Launcher // by the UID of its Pod; nil: it is not watched
	Image     string                    // has the requester program
	Recorder  events.EventRecorder
	// Restarted is called with the level of each restart: instance, role or group. nil: nobody counts.
	Restarted func(level string)
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
	Now   func() time.Time
}

// Controller reconciles ModelServings. Passes for different ModelServings may run concurrently.
type Controller struct {
	opts Options
	mu   sync.Mutex
	made map[string]time.Time // when this process created objects that the cache does not show yet, by kind and name
	// removed says when this process deleted Pods. told has the versions of ModelServings whose
	// status this process has changed since.
	removed map[types.UID]time.Time
	repeats map[string]repeat // of objects that this process has changed, by kind and name
	told    map[types.NamespacedName][]string
	began   time.Time // when the first pass began
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, made: map[string]time.Time{}, removed: map[types.UID]time.Time{}, repeats: map[string]repeat{}, told: map[types.NamespacedName][]string{}}
}

// conflictPause is the pause after a write that was based on a stale cache. takenPause is the
// pause before the controller tries a name again that another owner's object had: the cache does
// not show the owners of all objects, so no event reports that the object is gone. hearLimit bounds
// the wait until the cache shows an object: it may never show one that somebody deleted at once.
const (
	conflictPause = 100 * time.Millisecond
	takenPause    = 30 * time.Second
	hearLimit     = 10 * time.Second
)

// onlyOrders ends a pass that could not record its restarts. It gives the orders to launchers that have
// nothing to do with restarts, since ranks wait for them.
func (c *Controller) onlyOrders(ctx context.Context, about *v1alpha1.ModelServing, steps []*Step, failed error) (reconcile.Result, error) {
	again, _ := c.do(ctx, about, slices.DeleteFunc(slices.Clone(steps), func(s *Step) bool { return !s.Do.isOrder() || s.Row == restarts.RowInPlace }))
	if dualpods.IsStale(failed) {
		return reconcile.Result{RequeueAfter: dualpods.Sooner(conflictPause, again)}, nil
	}
	return reconcile.Result{}, failed
}

// Reconcile runs a pass for one ModelServing.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var serving v1alpha1.ModelServing
	if err := c.opts.API.Get(ctx, request.NamespacedName, &serving); err != nil {
		c.noteTold(request.NamespacedName, "")
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.isStale(&serving) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	w, err := c.observe(ctx, &serving)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot observe ModelServing %s: %w", request, err)
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	steps := Decide(w)
	if w.isToRecord() {
		if err := c.tell(ctx, w, steps); err != nil {
			return c.onlyOrders(ctx, w.Serving, steps, err)
		}
		c.tellRestarts(w)
	}
	again, err := c.do(ctx, w.Serving, steps)
	if err == nil || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = errors.Join(err, c.tell(ctx, w, steps))
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // Kubernetes deletes all objects of the namespace
	case dualpods.IsStale(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil && again > 0: // a back-off could be later
		log.FromContext(ctx).Error(err, "a pass failed")
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}
