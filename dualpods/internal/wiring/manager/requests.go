package manager

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
)

func request(node string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: node}}}
}

// requests are nodes to look at again for what no object of the API tells.
type requests struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// source is a watch that enqueues what is added.
func (r *requests) source() source.Source { return source.Func(r.begin) }

func (r *requests) begin(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	return nil
}

func (r *requests) add(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.Add(request(node)[0])
	}
}

// addLater has a LauncherConfig looked at a moment later.
func (r *requests) addLater(config client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.AddAfter(reconcile.Request{NamespacedName: config}, launcherpool.GatherPeriod)
	}
}

// addAll has some more looked at.
func (r *requests) addAll(all []reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range all {
		if r.queue != nil {
			r.queue.Add(one)
		}
	}
}

// ears have what a launcher says looked at by those that it concerns.
type ears struct {
	nodeOf   func(launcher string) (node string, ok bool)
	configOf func(launcher string) (config client.ObjectKey, ok bool)

	claimsOf   func(config client.ObjectKey) []reconcile.Request // ModelCaches
	servingsOn func(node string) []reconcile.Request             // ModelServings

	nodes, configs, models, claims, servings *requests
}

// changed is for something else of its instances, or that it is silent.
func (e ears) changed(launcher string) {
	e.toNode(launcher)
	if node, ok := e.nodeOf(launcher); ok {
		e.servings.addAll(e.servingsOn(node))
	}
	if config, ok := e.configOf(launcher); ok {
		e.configs.addLater(config)
		e.claims.addAll(e.claimsOf(config))
	}
}

// modelsChanged is for something else of its models; whole: for others that it has
// whole, for which requesters may wait.
func (e ears) modelsChanged(launcher string, whole bool) {
	if e.models.add(""); whole {
		e.toNode(launcher)
	}
}

func (e ears) toNode(launcher string) {
	if node, ok := e.nodeOf(launcher); ok {
		e.nodes.add(node)
	}
}

// longestRetry bounds the pause until what has failed is tried again, by default a quarter
// of an hour: of much that keeps a claim from being made, as a quota, nobody hears that it
// has been mended.
const longestRetry = 10 * time.Second

func triedAgain() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, longestRetry)}
}

// concurrent is how many Services, or ModelServings, are reconciled side by side.
const concurrent = 8

func sideBySide() controller.Options {
	options := triedAgain()
	options.MaxConcurrentReconciles = concurrent
	return options
}
