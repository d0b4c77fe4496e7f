package act

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Demand tells how many requests there are for Models.
type Demand interface {
	// Of returns the requests for a Model at all front doors, and whether all of them were heard.
	Of(model types.NamespacedName) (total demand.Count, heard bool)
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by Index, and writes to the API server.
	API      client.Client
	Live     client.Reader // reads from the API server: objects of others
	Demand   Demand
	Images   workload.Images
	Recorder events.EventRecorder
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
	// Sleepers returns the sleepers on free GPUs that each requester could wake, by the UIDs of the requesters;
	// nil: nothing sleeps.
	Sleepers func(ctx context.Context, pods []*corev1.Pod) (map[types.UID][]placement.Asleep, error)
	// Forget deletes the instances of a configuration that sleep, unless others want them; nil: nothing sleeps.
	Forget func(context.Context, *v1alpha1.InferenceServerConfig) error
	// Acted is told the row of each entry, after the writes that it has led to; nil: nobody wants to know.
	Acted func(decide.Row)
	// Metrics counts and shows decisions; nil: there are none.
	Metrics *Metrics
	Now     func() time.Time
}

// Controller reconciles Models. Passes for different Models may run concurrently.
type Controller struct {
	opts Options

	mu      sync.Mutex
	windows map[types.NamespacedName]*decide.Window     // the demand for each Model
	told    map[types.NamespacedName]dualpods.LastWrite // of the status of a Model
	noSeat  map[ofEntry]time.Time                       // since when each entry has waited for a seat
	taken   map[ofEntry]string                          // which object of an entry's name is of somebody else, by the last attempt to create it
	undone  map[undone]undos
}

// ofEntry is an entry of a Model.
type ofEntry struct {
	model types.NamespacedName
	entry string
}

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{opts: o, windows: map[types.NamespacedName]*decide.Window{}, told: map[types.NamespacedName]dualpods.LastWrite{}, noSeat: map[ofEntry]time.Time{}, undone: map[undone]undos{}, taken: map[ofEntry]string{}}
}

// conflictPause is the pause after a write that was based on a stale cache. tellPause is the pause between two
// statuses of a Model. takenPause is the pause before the controller looks again whether somebody else's object of a
// name that it needs is gone: the cache has only its own objects. hearPause is the pause before it looks again whether all front doors were heard.
const (
	conflictPause = 100 * time.Millisecond
	tellPause     = time.Second
	takenPause    = 30 * time.Second
	hearPause     = time.Second
)

// Reconcile runs a pass for one Model.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var model v1alpha1.Model
	if err := c.opts.API.Get(ctx, request.NamespacedName, &model); err != nil {
		c.clear(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !model.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(&model, podmeta.FinalizerModel) {
		return c.beginOrEnd(ctx, &model)
	}
	if c.isStale(&model) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	w, err := c.observe(ctx, &model)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot observe Model %s: %w", request, err)
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	w.decision = decide.Decide(w.observed())
	again := dualpods.Sooner(w.decision.Again, w.window.Next(w.now, w.delay()))
	if !w.heard {
		again = dualpods.Sooner(again, hearPause)
	}
	err = c.tellFailures(ctx, w)
	if err == nil {
		err = c.act(ctx, w)
		if err == nil {
			c.opts.Metrics.see(w)
		}
		again = dualpods.Sooner(again, c.noteTaken(w))
		pause, cannot := c.tell(ctx, w)
		again, err = dualpods.Sooner(again, pause), errors.Join(err, cannot)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // Kubernetes deletes all objects of the namespace
	case dualpods.IsStale(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// isStale reports whether the cache does not show yet what this process has written.
func (c *Controller) isStale(m *v1alpha1.Model) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[client.ObjectKeyFromObject(m)].IsHidden(m.ResourceVersion)
}

func (c *Controller) clear(model types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.Metrics.forget(model)
	delete(c.windows, model)
	delete(c.told, model)
	maps.DeleteFunc(c.noSeat, func(of ofEntry, _ time.Time) bool { return of.model == model })
	c.forgetUndos(model)
	maps.DeleteFunc(c.taken, func(of ofEntry, _ string) bool { return of.model == model })
}

// noteTaken notes whose names are taken for the next decision, and returns when that is to be; 0: this does not matter.
func (c *Controller) noteTaken(w *world) (again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range w.entries {
		of := ofEntry{client.ObjectKeyFromObject(w.model), e.Name}
		again = dualpods.Sooner(again, e.pause)
		switch {
		case e.taken == "":
			delete(c.taken, of)
		case c.taken[of] != e.taken:
			c.taken[of] = e.taken
			again = dualpods.Sooner(again, conflictPause)
		default:
			again = dualpods.Sooner(again, takenPause)
		}
	}
	return again
}

// takenOf returns which object of an entry's name is of somebody else; empty: none, as far as is known.
func (c *Controller) takenOf(m *v1alpha1.Model, entry string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken[ofEntry{client.ObjectKeyFromObject(m), entry}]
}

// windowOf returns the demand for a Model over time. Passes for one Model do not run concurrently.
func (c *Controller) windowOf(model types.NamespacedName) *decide.Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.windows[model] == nil {
		c.windows[model] = &decide.Window{}
	}
	return c.windows[model]
}
