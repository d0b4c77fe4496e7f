package binding

import (
	"context"
	"fmt"
	"maps"
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

	"hotseat.dev/hotseat/dualpods/internal/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/nominal"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by IndexNode, and writes
	// to the server.
	API        client.Client
	Views      Views
	Requesters Requesters
	// Allocations asks the kubelets; nil: requesters' own word counts.
	Allocations Allocations
	Recorder    events.EventRecorder
	// LauncherPort is where launchers have their control API.
	LauncherPort int
	// Token is what the launcher in a Pod asks its clients for.
	Token func(launcher *corev1.Pod) string
	// Launchers makes launchers where there is none; nil: nobody does.
	Launchers Launchers
	// Drain is how long the connections of a requester's clients may take to end
	// when it is unbound, before they are cut.
	Drain time.Duration
	// Again has a node looked at again.
	Again func(node string)
	// Observer is told what is seen and done; nil: nobody is.
	Observer Observer
	// RelayLog brings a requester that is about to be deleted what its instance
	// has said; nil: nobody does.
	RelayLog func(context.Context, Observation) error
	Now      func() time.Time
}

// Controller binds the requesters of nodes. Nodes are looked at side by side,
// each by one goroutine at a time.
type Controller struct {
	opts  Options
	log   logr.Logger
	ctx   context.Context //nolint:containedctx // ends with the controller: calls to launchers outlive a pass
	mu    sync.Mutex
	nodes map[string]*nodeWork
	owner map[string]string // node by UID of a launcher Pod
	rules []rule            // as Decide has them; a test takes some out
}

// New makes a controller that works until ctx ends. Close waits for what it began.
func New(ctx context.Context, opts Options, log logr.Logger) *Controller {
	if opts.Observer == nil {
		opts.Observer = nobody{}
	}
	return &Controller{opts: opts, log: log, ctx: ctx, nodes: map[string]*nodeWork{}, owner: map[string]string{}, rules: rules}
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

// nodeWork is what is kept of a node between passes: calls that are under way,
// and what is known to be newer than the cache. One pass has it at a time.
type nodeWork struct {
	name  string
	calls *calls
	own   map[types.UID]*corev1.Pod // as this controller wrote them last
	forms map[types.UID]readForm
	gpus  map[types.UID]accelerators
	quiet map[types.UID]silence // of requester programs that do not answer
	mu    sync.Mutex            // guards gpus: requesters are asked side by side
	told  map[types.UID]telling
	// kubelet is what the kubelet said, and how it was asked in vain.
	kubelet map[types.UID]Allocation
	damaged map[types.UID]string // records of launchers that cannot be read, as was told
	// failed counts the passes, one after the other, in which a step could not be taken.
	failed int
}

// accelerators are the GPUs that a process of a requester program has.
type accelerators struct {
	process string
	uuids   []string
}

func (c *Controller) work(name string) *nodeWork {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	if !ok {
		n = &nodeWork{name: name, own: map[types.UID]*corev1.Pod{}, forms: map[types.UID]readForm{}, gpus: map[types.UID]accelerators{}, kubelet: map[types.UID]Allocation{}, damaged: map[types.UID]string{}, quiet: map[types.UID]silence{}, told: map[types.UID]telling{}}
		n.calls = &calls{ctx: c.ctx, all: map[string]*outcome{}, troubles: map[string]Trouble{}, notify: func() { c.opts.Again(name) }}
		c.nodes[name] = n
	}
	return n
}

// most bounds the steps for one requester in a pass.
const most = 16

// Reconcile looks at one node, named by the request.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	n := c.work(request.Name)
	w, err := c.gather(ctx, n)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.watchLaunchers(w)
	c.tellDamaged(n, w)
	var again time.Duration
	failed := 0
	subjects := w.subjects()
	for _, uid := range subjects {
		came := w.rank(uid).turn == comes
		after, err := c.settle(ctx, n, w, uid)
		if err != nil && ctx.Err() == nil {
			after = retryAfter
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // what the cache lacks yet
				c.log.Error(err, "cannot take a step", "requester", uid, "node", n.name)
				failed = n.failed + 1
				after = n.pause()
			}
		}
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
		if came && c.news(w) { // a model may be awake: whom it serves goes before others that come
			again = soon
			break
		}
	}
	c.opts.Observer.Passed(n.name, subjects)
	if !c.tidy(ctx, n, w) {
		failed = n.failed + 1
		if after := n.pause(); again == 0 || after < again {
			again = after
		}
	}
	n.failed = failed
	n.keepSwaps(w)
	n.calls.forgetTroubles(w.now)
	return reconcile.Result{RequeueAfter: again}, nil
}

// soon is when a pass is made that was broken off.
const soon = time.Millisecond

// news says that a launcher has told something since the pass began.
func (c *Controller) news(w *world) bool {
	return slices.ContainsFunc(w.launchers, func(l *launcherPod) bool { return c.opts.Views.View(l.key()).Revision != l.began })
}

// pause is when to look again at a node after a step that could not be taken,
// later each time: an API server that is away is away for every requester.
func (n *nodeWork) pause() time.Duration {
	const doublings = 6
	return retryAfter << min(n.failed, doublings)
}

// tidy puts to rest what runs for nobody. On a node that was deleted, and whose
// machine may go on, requesters are not asked whether they carry traffic, and
// nothing is put to rest under them. ok says that nothing has to be tried again.
func (c *Controller) tidy(ctx context.Context, n *nodeWork, w *world) (ok bool) {
	ok = true
	for _, l := range w.launchers {
		if err := c.release(ctx, n, w, l); err != nil && ctx.Err() == nil {
			c.log.Error(err, "cannot take our finalizer off a launcher", "launcher", l.pod.Name)
			ok = false
		}
		view := c.opts.Views.View(l.key())
		if w.node.Gone || !view.Connected {
			continue
		}
		for id, i := range view.Instances {
			if slices.ContainsFunc(l.bindings, func(b podmeta.Binding) bool { return b.Instance == id }) || w.mayServe(l, id) {
				continue
			}
			sleep, remove := n.calls.instanceTroubles(l, id, launcher.State(i.State))
			step := DecideStray(i, sleep.Count >= enoughSleeps)
			if w.now.Before(map[Action]Trouble{Sleep: sleep, DeleteInstance: remove}[step.Do].Until) {
				continue
			}
			if step.Do == Nothing || n.calls.underWay(sleepKey(l, id), view.Revision) || n.calls.underWay(deleteKey(l, id), view.Revision) {
				continue
			}
			c.log.Info("step", "node", n.name, "launcher", l.pod.Name, "instance", id, "do", string(step.Do), "why", step.Why)
			if err := c.callLauncher(n, l, id, step.Do, nil, nominal.Form{}); err != nil {
				c.log.Error(err, "cannot put a stray instance to rest", "launcher", l.pod.Name, "instance", id)
			}
		}
	}
	return ok
}

// settle takes steps for one requester until there is none to take now, and says
// when to look again, if nothing else tells.
func (c *Controller) settle(ctx context.Context, n *nodeWork, w *world, uid types.UID) (again time.Duration, err error) {
	for range most {
		o := c.observe(ctx, n, w, uid)
		sight := Sight{Node: n.name, Observation: o, Leaving: o.leaving(), Step: decide(&o, c.rules), Began: c.opts.Now()}
		var over bool
		again, over, err = c.take(ctx, n, w, o, sight.Step)
		sight.Ended, sight.Err = c.opts.Now(), err
		c.opts.Observer.Saw(sight)
		if over || err != nil {
			return again, err
		}
	}
	return retryAfter, nil
}

// take takes a step. over says that there is no other to take now.
func (c *Controller) take(ctx context.Context, n *nodeWork, w *world, o Observation, step Step) (again time.Duration, over bool, err error) {
	if step.Do == Nothing || step.Do == Retry {
		return step.After, true, nil
	}
	c.log.Info("step", "node", n.name, "requester", o.Requester.Namespace+"/"+o.Requester.Name, "rule", step.Rule, "do", string(step.Do), "why", step.Why)
	if step.Do == CreateLauncher {
		again, err = c.createLauncher(ctx, n, w, o)
		return again, true, err
	}
	if err := c.act(ctx, n, w, o, step); err != nil {
		return 0, false, fmt.Errorf("cannot %s: %w", step.Do, err)
	}
	return step.After, ends(step.Do), nil
}

// ends says that an event has to come before there is more to do for a requester.
func ends(do Action) bool {
	switch do {
	case Tell, DeleteRequester, RemoveFinalizer, Sleep, DeleteInstance:
		return true
	default:
		return false
	}
}

// watchLaunchers watches the launchers of a node, and no others.
func (c *Controller) watchLaunchers(w *world) {
	here := map[string]bool{}
	for _, l := range w.launchers {
		if !running(l.pod) {
			continue
		}
		here[l.key()] = true
		c.mu.Lock()
		c.owner[l.key()] = w.node.Name
		c.mu.Unlock()
		c.opts.Views.Watch(l.key(), nodeview.Target{
			Address: net.JoinHostPort(l.pod.Status.PodIP, fmt.Sprint(c.opts.LauncherPort)), Token: c.opts.Token(l.pod),
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, node := range c.owner {
		if node == w.node.Name && !here[key] {
			c.opts.Views.Forget(key)
			delete(c.owner, key)
		}
	}
}

// newer is the Pod as it was read, or as this controller wrote it where the
// cache does not have that yet.
func (n *nodeWork) newer(pod *corev1.Pod) *corev1.Pod {
	own, ok := n.own[pod.UID]
	if !ok {
		return pod
	}
	if older(pod.ResourceVersion, own.ResourceVersion) {
		return own
	}
	delete(n.own, pod.UID)
	return pod
}

// older compares resource versions of one kind of object, which are numbers that
// grow (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

func (n *nodeWork) note(pod *corev1.Pod) { n.own[pod.UID] = pod }

// forgetOthers forgets Pods that are gone.
func (n *nodeWork) forgetOthers(pods []corev1.Pod) {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
	}
	gone := func(uid types.UID) bool { return !there[uid] }
	maps.DeleteFunc(n.own, func(uid types.UID, _ *corev1.Pod) bool { return gone(uid) })
	maps.DeleteFunc(n.forms, func(uid types.UID, _ readForm) bool { return gone(uid) })
	maps.DeleteFunc(n.told, func(uid types.UID, _ telling) bool { return gone(uid) })
	maps.DeleteFunc(n.damaged, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(n.kubelet, func(uid types.UID, _ Allocation) bool { return gone(uid) })
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.gpus, func(uid types.UID, _ accelerators) bool { return gone(uid) })
	maps.DeleteFunc(n.quiet, func(uid types.UID, _ silence) bool { return gone(uid) })
}

func (n *nodeWork) accelerators(uid types.UID, process string) (uuids []string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.gpus[uid]
	return a.uuids, ok && a.process == process
}

func (n *nodeWork) noteAccelerators(uid types.UID, process string, uuids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gpus[uid] = accelerators{process: process, uuids: uuids}
}

// keepSwaps forgets the outcomes of swaps that no record is waiting for.
func (n *nodeWork) keepSwaps(w *world) {
	keys := map[string]bool{}
	for _, l := range w.launchers {
		for i := range l.bindings {
			keys[swapKey(l, &l.bindings[i])], keys[callOffKey(l, &l.bindings[i])] = true, true
		}
	}
	n.calls.keep("swap/", keys)
}
