package binding

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by dualpods.IndexNode, and writes
	// to the server.
	API client.Client
	// Pods are those of a node as the API server has them, not a cache, which may
	// lag behind what an earlier controller wrote; nil: there was none.
	Pods       func(ctx context.Context, node string) ([]corev1.Pod, error)
	Providers  provider.Set
	Requesters Requesters
	// Allocations asks the agents of nodes, which are in AgentNamespace; nil: requesters'
	// own word counts.
	Allocations    allocations.Kubelets
	AgentNamespace string
	Recorder       events.EventRecorder
	// LauncherPort is where launchers have their control API.
	LauncherPort int
	// Access is how the launcher in a Pod knows the controller, or why it must not be
	// called.
	Access func(launcher *corev1.Pod) nodeview.Access
	// WriteAhead has a requester bound by the kubelet's word before its program runs.
	WriteAhead bool
	// RequireTLS has requesters refused that do not take orders by TLS, from the
	// controller alone.
	RequireTLS bool
	// ModelCache says from where engines of a namespace have their models when their
	// requesters do not say, or what is wrong with that; nil: launchers are told nothing.
	ModelCache func(ctx context.Context, namespace string) (mode string, wrong []podmeta.Problem)
	// Keeper is the ClusterModelCache of a model, where that has the model served from
	// launchers' own copies alone, and how far a node is with it; nil: none does.
	Keeper func(ctx context.Context, model modelref.Name, node string) (*dualpods.ModelKeeper, []podmeta.Problem)
	// Endpoints keeps the EndpointSlices of Services that ask for them; nil: nobody does.
	Endpoints Endpoints
	// Launchers makes launchers where there is none; nil: nobody does.
	Launchers Launchers
	// Drain is how long the connections of a requester's clients may take to end
	// when it is unbound, before they are cut.
	Drain time.Duration
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
	// Again has a node looked at again.
	Again func(node string)
	// SwapMoved is told that the swap of a rank of that node has come to another phase.
	SwapMoved func(node string)
	// Observer is told what is seen and done; nil: nobody is.
	Observer Observer
	// RelayLog brings a requester that is about to be deleted what its instance
	// has said; nil: nobody does.
	RelayLog func(context.Context, decide.Observation) error
	Now      func() time.Time
}

// Controller binds the requesters of nodes. Nodes are looked at side by side,
// each by one goroutine at a time.
type Controller struct {
	opts   Options
	log    logr.Logger
	ctx    context.Context //nolint:containedctx // ends with the controller: calls to launchers outlive a pass
	mu     sync.Mutex
	nodes  map[string]*nodeWork
	owner  map[string]string // node by UID of a launcher Pod
	tables []decide.Table    // a test takes rows out
}

// New makes a controller that works until ctx ends. Close waits for what it began.
func New(ctx context.Context, opts Options, log logr.Logger) *Controller {
	if opts.Observer == nil {
		opts.Observer = nobody{}
	}
	if opts.SwapMoved == nil {
		opts.SwapMoved = func(string) {}
	}
	return &Controller{opts: opts, log: log, ctx: ctx, nodes: map[string]*nodeWork{}, owner: map[string]string{}, tables: decide.Tables}
}

// Close waits until the calls that are under way are over; the context given to
// New has ended by then.
func (c *Controller) Close() {
	c.mu.Lock()
	nodes := c.nodes
	c.nodes = map[string]*nodeWork{}
	c.mu.Unlock()
	for _, n := range nodes {
		n.calls.running.Wait()
	}
}

// NodeOf is the node of the launcher Pod of that UID, as nodeview names it.
func (c *Controller) NodeOf(launcher string) (node string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, ok = c.owner[launcher]
	return node, ok
}

// SwapOf returns how far the swap of a rank is, by the UID of the launcher Pod and the record.
func (c *Controller) SwapOf(launcher types.UID, record *podmeta.Binding) (s dualpods.RankSwap) {
	c.mu.Lock()
	n := c.nodes[c.owner[string(launcher)]]
	c.mu.Unlock()
	if n != nil {
		s = n.calls.swapOf(swapKeyOn(string(launcher), record))
	}
	return s
}

// Reconcile looks at one node, named by the request.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	n := c.work(request.Name)
	if early := n.tooEarly(c.opts.Now()); early > 0 {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	w, err := c.gather(ctx, n)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.watchLaunchers(w)
	if after := c.untilCurrent(ctx, n, w); after > 0 {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	subjects := w.subjects()
	again, failed := c.serve(ctx, n, w, subjects)
	c.opts.Observer.Passed(n.name, uidsOf(subjects))
	after, ok := c.tidy(ctx, n, w)
	if !ok {
		failed = n.failed + 1
		after = dualpods.Sooner(after, n.pause())
	}
	again = dualpods.Sooner(again, after)
	n.failed = failed
	n.keepSwaps(w)
	n.calls.forgetTroubles(w.now)
	c.forget(n, w)
	return reconcile.Result{RequeueAfter: again}, nil
}

func (c *Controller) work(name string) *nodeWork {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	if !ok {
		n = &nodeWork{name: name, own: map[types.UID]*corev1.Pod{}, forms: map[types.UID]readForm{}, gpus: allocations.NewBook(), damaged: map[types.UID]string{}, mute: map[types.UID]bool{}, quiet: map[types.UID]silence{}, answers: map[types.UID]answer{}, told: map[types.UID]decide.Telling{}, serves: map[types.UID]bool{}, repeats: repeats{}, assigned: map[types.UID]string{}}
		n.calls = &calls{ctx: c.ctx, all: map[string]*outcome{}, troubles: map[string]callTrouble{}, written: map[string]bool{}, notify: func() { c.opts.Again(name) }}
		c.nodes[name] = n
	}
	return n
}

// nowherePause is the time between two passes over what is on no node yet, which may be
// thousands of requesters: each of them that comes, or is placed, asks for a pass, and
// nothing of them is urgent.
const nowherePause = 100 * time.Millisecond

// tooEarly is how long a pass has to wait; it notes one that need not.
func (n *nodeWork) tooEarly(now time.Time) time.Duration {
	if n.name != "" {
		return 0
	}
	if early := nowherePause - now.Sub(n.passed); early > 0 && early <= nowherePause {
		return early
	}
	n.passed = now
	return 0
}

// doublings bound the time between two looks after steps that could not be taken.
const doublings = 6

// pause is when to look again at a node after a step that could not be taken,
// later each time: an API server that is away is away for every requester.
func (n *nodeWork) pause() time.Duration {
	return retryAfter << min(n.failed, doublings)
}

// retryAfter is when to look again after a write that failed.
const retryAfter = 100 * time.Millisecond

func (c *Controller) leads() bool { return c.opts.Leads == nil || c.opts.Leads() }
