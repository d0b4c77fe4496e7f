package gang

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Options configure a [Controller].
type Options struct {
	// API reads from a cache with the indexes Index and groups.Index, and writes to the API server.
	API client.Client
	// Sleepers returns the sleepers that Pods could wake, by the UIDs of the Pods; nil: there are none.
	Sleepers func(ctx context.Context, pods []*corev1.Pod) (map[types.UID][]placement.Asleep, error)
	// Changed is told of ModelServings for which Waits returns something else than before.
	Changed  func(all []reconcile.Request)
	Recorder events.EventRecorder
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
	Now   func() time.Time
}

// Controller gives the Pods of groups nodes together. It runs one pass at a time.
type Controller struct {
	opts Options
	// unseen are the writes of this process that the cache may not show yet.
	unseen []write
	warned map[types.UID]bool // Pods of no ModelServing that were told of
	// templates keeps the templates that the last pass has read.
	templates groups.Memory

	mu    sync.Mutex
	waits map[group]wait
}

// group names a group.
type group struct {
	serving types.UID
	name    string
}

// wait is what a group waits for.
type wait struct {
	row, why string
	since    time.Time
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, warned: map[types.UID]bool{}, waits: map[group]wait{}}
}

// Reconcile runs a pass over all groups; it ignores the request. The pass waits until the cache
// shows what the passes before it have written: otherwise it might give GPUs away twice.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	shows, err := c.cacheShowsWrites(ctx)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !shows:
		return reconcile.Result{RequeueAfter: cachePause}, nil
	}
	w, strangers, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	c.warnStrangers(strangers)
	steps := Decide(w)
	// The writes come first: the controller of groups is told next and writes the status too, so a record that
	// is written later would be based on an older status.
	conflict, err := c.do(ctx, steps)
	again := c.tell(w.Now, steps)
	for _, s := range steps {
		if !s.Again.IsZero() {
			again = dualpods.Sooner(again, max(s.Again.Sub(w.Now), time.Millisecond))
		}
	}
	if conflict {
		again = dualpods.Sooner(again, cachePause)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// cachePause is the pause until the cache shows what has changed.
const cachePause = 50 * time.Millisecond

// Waits returns what the Pods of a group wait for; empty: nothing, or it is not known.
func (c *Controller) Waits(serving types.UID, name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits[group{serving, name}].why
}

// numbersPause is the time for which other numbers in a reason are kept back: those of free GPUs
// change all the time.
const numbersPause = 10 * time.Second

// tell has Waits return the reasons of a pass. again is when it is to be called again.
func (c *Controller) tell(now time.Time, steps []*Step) (again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits, changed := map[group]wait{}, map[*v1alpha1.ModelServing]bool{}
	for _, s := range steps {
		of := group{s.Of.Serving.UID, s.Of.Name}
		was, is := c.waits[of], wait{s.Row, s.Why, now}
		switch {
		case s.Why == was.why:
			is = was
		case s.Row == was.row && now.Sub(was.since) < numbersPause:
			again, is = dualpods.Sooner(again, numbersPause-now.Sub(was.since)), was
		default:
			changed[s.Of.Serving] = true
		}
		waits[of] = is
	}
	c.waits = waits
	if c.opts.Changed != nil {
		var all []reconcile.Request
		for serving := range changed {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(serving)})
		}
		c.opts.Changed(all)
	}
	return again
}

// warnStrangers tells of Pods of no ModelServing that carry the gate, once each.
func (c *Controller) warnStrangers(pods []*corev1.Pod) {
	still := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		if still[pod.UID] = true; !c.warned[pod.UID] {
			c.opts.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, "NotOfAGroup", "Place", "the scheduling gate %s is for Pods of ModelServings: remove it, since nobody else does", podmeta.GateGang)
		}
	}
	c.warned = still
}
