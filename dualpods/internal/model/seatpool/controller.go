package seatpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/model/seats"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Demand tells how many requests there are for Models.
type Demand interface {
	// Of returns the requests for a Model at all front doors, and whether all of them were heard.
	Of(model types.NamespacedName) (total demand.Count, heard bool)
}

// Views tell what launchers report.
type Views interface {
	// Pick returns what the launcher of a Pod's UID reports, with those instances alone that keep accepts.
	Pick(uid string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by Index, and writes to the API server.
	API      client.Client
	Demand   Demand
	Views    Views
	Image    string // has the requester program
	Recorder events.EventRecorder
	Leads    func() bool // no other replica can be at work by now; nil: there is none
	// Acts is told the row of each step, before its write and after it; nil: there is no such call.
	Acts func(row seats.Row, written bool)
	Now  func() time.Time
}

// Controller reconciles SeatPools. Passes for different pools may run concurrently.
type Controller struct {
	opts Options

	mu    sync.Mutex
	began time.Time // when it was at work first
	pools map[types.NamespacedName]*memory
}

// memory is what the passes of a pool keep. A new controller begins without it.
type memory struct {
	models    map[types.NamespacedName]bool // that have entries with seats of it; guarded by the Controller's lock
	lastUsed  map[string]time.Time          // when a Model had a request last
	waitsFrom map[string]time.Time          // since when an entry has waited for a seat, with as many seats as in had
	lostAt    map[string]time.Time          // when a seat of an entry began to drain for another one
	had       map[string]int
	written   map[types.UID]dualpods.LastWrite // to Pods
	told      dualpods.LastWrite               // of the status
}

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{opts: o, pools: map[types.NamespacedName]*memory{}}
}

// conflictPause is the pause after a write that was based on a stale cache. tellPause is the pause between two statuses
// of a pool. hearPause is the pause before the controller looks again whether all front doors were heard.
const (
	conflictPause = 50 * time.Millisecond
	tellPause     = time.Second
	hearPause     = time.Second
)

// launchersLimit is how long a new controller waits for launchers to tell what sleeps behind the seats: else a Model
// would be started on a seat while it sleeps behind another one.
const launchersLimit = 5 * time.Second

// Reconcile runs a pass for one pool.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.SeatPool
	if err := c.opts.API.Get(ctx, request.NamespacedName, &pool); err != nil {
		c.forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its seats are deleted with it
	}
	w, err := c.observe(ctx, &pool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot observe SeatPool %s: %w", request, err)
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	if isNew := c.isNew(); w.stale || w.unheard && isNew {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	w.decision = seats.Decide(w.observed())
	again := w.decision.Again
	if !w.heard {
		again = dualpods.Sooner(again, hearPause)
	}
	if w.decision.Create > mostCreated {
		again = dualpods.Sooner(again, conflictPause)
	}
	err = c.act(ctx, w)
	pause, cannot := c.tell(ctx, w)
	again, err = dualpods.Sooner(again, pause), errors.Join(err, cannot)
	switch {
	case dualpods.IsStale(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// isNew reports whether the controller has been at work for less than launchersLimit.
func (c *Controller) isNew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = c.opts.Now()
	}
	return c.opts.Now().Sub(c.began) < launchersLimit
}

func (c *Controller) forget(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// memoryOf returns what the passes of a pool keep.
func (c *Controller) memoryOf(pool types.NamespacedName) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools[pool] == nil {
		c.pools[pool] = &memory{lastUsed: map[string]time.Time{}, waitsFrom: map[string]time.Time{}, lostAt: map[string]time.Time{}, had: map[string]int{}, written: map[types.UID]dualpods.LastWrite{}}
	}
	return c.pools[pool]
}

// OfModels returns the pools on whose seats Models take turns.
func (c *Controller) OfModels(models []types.NamespacedName) (all []reconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pool, m := range c.pools {
		for _, model := range models {
			if m.models[model] {
				all = append(all, reconcile.Request{NamespacedName: pool})
				break
			}
		}
	}
	return all
}
