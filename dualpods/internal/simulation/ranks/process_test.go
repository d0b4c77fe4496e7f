package ranks

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/spec/podmeta"
)

// process is a controller process that leads: all of its memory goes with it.
type process struct {
	w        *world
	ctx      context.Context // the life of the process
	cancel   context.CancelFunc
	dead     bool
	killAt   int // at which step it is killed; 0: it is not
	informer *informer
	streams  map[string]*stream // by UID of the launcher's Pod
	binder   *binding.Controller
	groups   *groups.Controller
	nodes    *queue
	servings *queue
}

type silentRecorder struct{}

func (silentRecorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
}

// boot starts a controller process, which has read all objects before it leads.
func (w *world) boot() {
	p := &process{w: w, streams: map[string]*stream{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.informer = w.api.follow(p)
	log := logr.Discard()
	if w.trace {
		log = funcr.New(func(_, args string) { w.locked(func() { w.note("binding: %s", args) }) }, funcr.Options{})
	}
	p.binder = binding.New(p.ctx, binding.Options{
		API: &apiClient{p: p}, Pods: p.podsOf, Providers: p, Requesters: &requesters{p}, Recorder: silentRecorder{}, LauncherPort: 8001,
		Access: func(*corev1.Pod) nodeview.Access { return nodeview.Access{} }, Drain: time.Second,
		Again:     func(node string) { w.locked(func() { p.nodes.add(node) }) },
		SwapMoved: func(node string) { w.locked(func() { p.servingsOn(node) }) }, Now: time.Now,
	}, log)
	p.groups = groups.New(groups.Options{
		API: &apiClient{p: p}, Views: p, Swaps: p.binder, Launcher: p.orders, Image: "requester", Recorder: silentRecorder{}, Now: time.Now,
	})
	p.nodes, p.servings = newQueue(p, "node", p.binder.Reconcile), newQueue(p, "serving", p.groups.Reconcile)
	w.proc = p
	w.note("a controller leads")
	p.nodes.add("")
	for _, name := range sorted(w.api.objects[nodeKind]) {
		p.nodes.add(name)
	}
	for _, name := range sorted(w.api.objects[servingKind]) {
		p.servings.add(name)
	}
}

func (p *process) end() {
	p.dead = true
	p.cancel()
}

// kill ends the process, in the middle of whatever it does; another one leads soon.
func (p *process) kill() {
	if p.dead {
		return
	}
	p.w.note("the controller is killed")
	p.end()
	back := p.w.Between("boot", 100*time.Millisecond, 20*time.Second)
	p.w.disturb(back + time.Second)
	p.w.after(back, p.w.boot)
}

// servingsOn has the ModelServings looked at that have requesters on a node.
func (p *process) servingsOn(node string) {
	for _, name := range sorted(p.informer.objects[podKind]) {
		if pod := p.informer.objects[podKind][name].(*corev1.Pod); pod.Spec.NodeName == node && podmeta.IsRequester(pod) {
			if owner := podmeta.ServingOf(pod); owner != nil {
				p.servings.add(owner.Name)
			}
		}
	}
}

// queue has the passes of a controller made, one at a time for each name, as controller-runtime
// does.
type queue struct {
	p     *process
	kind  string
	do    func(context.Context, reconcile.Request) (reconcile.Result, error)
	items map[string]*item
}

type item struct {
	dirty, working bool
	at             time.Time // when it is added by itself; zero: never
	failures       int
	since          time.Time // when the second began in which passes are counted
	passes         int       // in that second
}

func newQueue(p *process, kind string, do func(context.Context, reconcile.Request) (reconcile.Result, error)) *queue {
	return &queue{p: p, kind: kind, do: do, items: map[string]*item{}}
}

func (q *queue) add(name string) {
	if q.p.dead {
		return
	}
	i := q.items[name]
	if i == nil {
		i = &item{}
		q.items[name] = i
	}
	i.dirty = true
	if !i.working {
		i.working = true
		go q.work(name, i)
	}
}

func (q *queue) work(name string, i *item) {
	w := q.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for i.dirty && !q.p.dead && !q.spins(name, i) {
		i.dirty = false
		w.passes++
		pause := w.Between("pass", 10*time.Microsecond, 2*time.Millisecond)
		w.mu.Unlock()
		sleep(q.p.ctx, pause)
		result, err := q.pass(name)
		w.mu.Lock()
		switch {
		case err != nil:
			q.later(name, i, min(5*time.Millisecond<<min(i.failures, 20), longestRetry))
			i.failures++
		case result.RequeueAfter > 0:
			i.failures = 0
			q.later(name, i, result.RequeueAfter)
		default:
			i.failures = 0
		}
	}
	i.working = false
}

// longestRetry is the longest pause after errors, as the wiring of the controllers has it.
const longestRetry = 10 * time.Second

// spins reports whether a controller makes one pass after the other.
func (q *queue) spins(name string, i *item) bool {
	if time.Since(i.since) >= time.Second {
		i.since, i.passes = time.Now(), 0
	}
	if i.passes++; i.passes <= 300 {
		return false
	}
	q.p.w.violated("makes no pause", "%d passes for %s %s in a second", i.passes, q.kind, name)
	q.p.end()
	return true
}

func (q *queue) pass(name string) (result reconcile.Result, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			q.p.w.locked(func() {
				q.p.w.violated("a pass panics", "%v", broken)
				q.p.w.note("%s", debug.Stack())
			})
		}
	}()
	return q.do(q.p.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespaceOf(q.kind), Name: name}})
}

func namespaceOf(kind string) string {
	if kind == "node" {
		return ""
	}
	return "ns"
}

// later has a pass made later, at the earliest time that was asked for.
func (q *queue) later(name string, i *item, d time.Duration) {
	at := time.Now().Add(d)
	if i.at.After(time.Now()) && !at.Before(i.at) {
		return
	}
	i.at = at
	q.p.w.after(d, func() {
		if i.at.Equal(at) {
			i.at = time.Time{}
			q.add(name)
		}
	})
}

// call is a call of the controller to somebody: it takes time, and the controller may be killed
// before it, during it and after it. effect is called with the lock held.
func (p *process) call(ctx context.Context, who string, effect func() error) error {
	w := p.w
	w.mu.Lock()
	if p.dead || ctx.Err() != nil {
		w.mu.Unlock()
		return context.Canceled
	}
	w.steps++
	if p.killAt > 0 && w.steps >= p.killAt {
		p.killAt = 0
		if w.Chance("kill before", 30) {
			p.kill()
			w.mu.Unlock()
			return context.Canceled
		}
		w.after(w.Between("kill at", 0, 20*time.Millisecond), p.kill)
	}
	there, back := w.Between("there "+who, 100*time.Microsecond, 5*time.Millisecond), w.Between("back "+who, 100*time.Microsecond, 5*time.Millisecond)
	w.mu.Unlock()
	sleep(ctx, there)
	w.mu.Lock()
	if w.over || ctx.Err() != nil && w.Chance("lost "+who, 50) {
		w.mu.Unlock()
		return fmt.Errorf("the call to %s was given up: %w", who, context.Canceled)
	}
	err := effect()
	w.mu.Unlock()
	sleep(ctx, back)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
