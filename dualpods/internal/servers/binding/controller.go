package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// most bounds the steps for one requester in a pass.
const most = 16

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
	c.tellDamaged(n, w)
	c.tellMute(n, w)
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

// serve takes the steps for all requesters of a node. failed counts the passes, one after the
// other, in which a step could not be taken.
func (c *Controller) serve(ctx context.Context, n *nodeWork, w *world, subjects []dualpods.Identity) (again time.Duration, failed int) {
	settled := func(id dualpods.Identity, after time.Duration, err error) {
		if err != nil && ctx.Err() == nil {
			after = retryAfter
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // what the cache lacks yet
				c.log.Error(err, "cannot take a step", "requester", id.UID, "namespace", id.Namespace, "node", n.name)
				failed = n.failed + 1
				after = n.pause()
			}
		}
		again = dualpods.Sooner(again, after)
	}
	for _, id := range subjects {
		came := w.rank(id).turn == comes
		after, err := c.settle(ctx, n, w, id)
		settled(id, after, err)
		if came && c.news(w) { // a model may be awake: whom it serves goes before others that come
			again = soon
			break
		}
	}
	for records := c.writeRecords(ctx, n, w); len(records) > 0; records = c.writeRecords(ctx, n, w) {
		for _, r := range records {
			after, err := time.Duration(0), r.err
			if err == nil {
				after, err = c.settle(ctx, n, w, r.id)
			}
			settled(r.id, after, err)
		}
	}
	return again, failed
}

func uidsOf(requesters []dualpods.Identity) (uids []types.UID) {
	for _, id := range requesters {
		uids = append(uids, id.UID)
	}
	return uids
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

// soon is when a pass is made that was broken off.
const soon = time.Millisecond

// news says that a launcher has told something since the pass began.
func (c *Controller) news(w *world) bool {
	return slices.ContainsFunc(w.launchers, func(l *launcherPod) bool { return c.opts.Providers.Pick(l.key(), nil).Revision != l.began })
}

// doublings bound the time between two looks after steps that could not be taken.
const doublings = 6

// pause is when to look again at a node after a step that could not be taken,
// later each time: an API server that is away is away for every requester.
func (n *nodeWork) pause() time.Duration {
	return retryAfter << min(n.failed, doublings)
}

// tidy puts to rest what runs for nobody, and evicts sleepers that exceed lowered budgets.
// On a node that was deleted, and whose machine may go on, requesters are not asked
// whether they carry traffic, and nothing is put to rest under them. again is when to look
// again at what did not rest though told to; ok says that no write failed.
func (c *Controller) tidy(ctx context.Context, n *nodeWork, w *world) (again time.Duration, ok bool) {
	ok = true
	for _, l := range w.launchers {
		if err := c.keepFinalizer(ctx, n, w, l); err != nil && ctx.Err() == nil {
			c.log.Error(err, "cannot add our finalizer to a launcher, or remove it", "launcher", l.pod.Name)
			ok = false
		}
		view := c.opts.Providers.View(l.key()) // with all instances: once per launcher and pass
		if w.node.Gone || !view.Connected || !c.leads() {
			continue
		}
		again = dualpods.Sooner(again, c.putStraysToRest(n, w, l, view))
	}
	return again, ok
}

// settle takes steps for one requester until there is none to take now, and says
// when to look again, if nothing else tells. A new record is written with those of other
// requesters, at the end of the pass.
func (c *Controller) settle(ctx context.Context, n *nodeWork, w *world, id dualpods.Identity) (again time.Duration, err error) {
	for range most {
		o := c.observe(ctx, n, w, id)
		sight := Sight{Node: n.name, Observation: o, Leaving: o.IsLeaving(), Serving: o.ServesThroughDelay(), Step: decide.By(&o, c.tables), Began: c.opts.Now()}
		var over bool
		if sight.Step.Do == decide.AddRecord {
			if err = c.stageRecord(n, w, id, sight); err == nil {
				return 0, nil // the Observer sees it when it is written
			}
		} else {
			again, over, err = c.take(ctx, n, w, o, sight.Step)
		}
		sight.Ended, sight.Err = c.opts.Now(), err
		c.opts.Observer.Saw(sight)
		if over || err != nil {
			return again, err
		}
	}
	return retryAfter, nil
}

// take takes a step. over says that there is no other to take now.
func (c *Controller) take(ctx context.Context, n *nodeWork, w *world, o decide.Observation, step decide.Step) (again time.Duration, over bool, err error) {
	if step.Do == decide.Nothing || step.Do == decide.Retry {
		return step.After, true, nil
	}
	if !c.leads() {
		return 0, false, errNotLeading
	}
	if step.Do == decide.DeleteRequester && c.relaysLog(n, o) {
		return 0, true, nil // whose end begins the next pass
	}
	if step.Do == decide.RemoveFinalizer && n.unheard {
		if after := c.untilAsNew(ctx, n, w); after > 0 {
			return after, true, nil
		}
		n.unheard = false
	}
	c.logStep(n, &o, step)
	if step.Do == decide.CreateLauncher {
		again, err = c.createLauncher(ctx, n, w, o)
		return again, true, err
	}
	if err := c.act(ctx, n, w, o, step); err != nil {
		return 0, false, fmt.Errorf("cannot %s: %w", step.Do, err)
	}
	return step.After, ends(step.Do), nil
}

func (c *Controller) logStep(n *nodeWork, o *decide.Observation, step decide.Step) {
	c.log.Info("step", "node", n.name, "requester", o.Requester.Namespace+"/"+o.Requester.Name, "uid", string(o.Requester.UID), "rule", step.Rule, "do", string(step.Do), "why", step.Why)
}

// errNotLeading is why no step is taken by a process that was frozen, and has not
// been told yet that another leads.
var errNotLeading = errors.New("another replica may lead by now")

func (c *Controller) leads() bool { return c.opts.Leads == nil || c.opts.Leads() }

// ends says that an event has to come before there is more to do for a requester.
func ends(do decide.Action) bool {
	switch do {
	case decide.Tell, decide.DeleteRequester, decide.RemoveFinalizer, decide.Sleep, decide.DeleteInstance:
		return true
	default:
		return false
	}
}

// watchLaunchers watches the launchers of a node, and no others.
func (c *Controller) watchLaunchers(w *world) {
	here := map[string]bool{}
	for _, l := range w.launchers {
		if !l.runs() {
			continue
		}
		here[l.key()] = true
		c.mu.Lock()
		c.owner[l.key()] = w.node.Name
		c.mu.Unlock()
		c.opts.Providers.Watch(l.key(), nodeview.Target{
			Address: net.JoinHostPort(l.pod.Status.PodIP, fmt.Sprint(c.opts.LauncherPort)), Access: c.access(l), Models: l.pod.Labels[podmeta.LabelModelNodeGroup] != "",
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, node := range c.owner {
		if node == w.node.Name && !here[key] {
			c.opts.Providers.Forget(key)
			delete(c.owner, key)
		}
	}
}

// access returns how to call a launcher and the program beside it. A launcher without an
// owner shows the certificate of its LauncherConfig, or gets the token that its Pod mounts.
// Without either, its requesters are released once its Pod is deleted.
func (c *Controller) access(l *launcherPod) nodeview.Access {
	access := c.opts.Access(l.pod)
	if l.orphan && access.Name == "" && access.Token == "" {
		why := cmp.Or(access.Refused, "it has neither a certificate nor a token")
		return nodeview.Access{Refused: "no LauncherConfig owns it, and " + why + ". If that stays so, an administrator must delete the launcher's Pod"}
	}
	return access
}
