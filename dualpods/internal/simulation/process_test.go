package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
)

// process is a controller process that leads: all of its memory goes with it.
type process struct {
	w        *world
	born     time.Time
	ctx      context.Context // the life of the process
	cancel   context.CancelFunc
	dead     bool
	killAt   int // at which step it is killed
	informer *informer
	streams  map[string]*stream // by UID of the launcher's Pod
	caches   *modelcache.Controller
	places   *placement.Controller
	toCaches *queue
	toPlaces *queue
}

type silentRecorder struct{}

func (silentRecorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
}

// boot starts a controller process, which has read all objects before it leads.
func (w *world) boot() {
	p := &process{w: w, born: time.Now(), streams: map[string]*stream{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.informer = w.api.follow(p)
	p.caches = modelcache.New(p.ctx, modelcache.Options{
		API: &apiClient{p: p}, Launchers: p, Credentials: sourcesecret.Reader{Secret: p.secret}, Namespace: "hotseat", Recorder: silentRecorder{},
		Again: func() { w.locked(p.toCaches.add) }, Now: time.Now, Log: logr.Discard(),
	})
	p.places = placement.New(placement.Options{API: &apiClient{p: p}, Views: p, Recorder: silentRecorder{}, Caches: true, Now: time.Now})
	p.toCaches = &queue{p: p, name: "caches", do: p.caches.Reconcile}
	p.toPlaces = &queue{p: p, name: "placement", do: p.places.Reconcile}
	w.proc = p
	w.trouble = later(w.trouble, time.Now())
	w.note("a controller leads")
	for _, pod := range p.informer.pods() {
		p.watch(pod)
	}
	p.toCaches.add()
	p.toPlaces.add()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// kill ends the process, in the middle of whatever it does; another one leads soon.
func (p *process) kill() {
	if p.dead {
		return
	}
	w := p.w
	w.note("the controller is killed")
	p.dead = true
	p.cancel()
	back := w.Between("boot", 100*time.Millisecond, 20*time.Second)
	w.trouble = later(w.trouble, time.Now().Add(back))
	w.after(back, w.boot)
}

// queue has the passes of a controller made, one at a time, as controller-runtime does.
type queue struct {
	p        *process
	name     string
	do       func(context.Context, reconcile.Request) (reconcile.Result, error)
	dirty    bool
	working  bool
	at       time.Time // when it is added by itself; zero: never
	failures int
	since    time.Time // when the second began in which passes are counted
	passes   int       // in that second
}

func (q *queue) add() {
	if q.p.dead {
		return
	}
	q.dirty = true
	if !q.working {
		q.working = true
		go q.work()
	}
}

// Pauses after errors, as of the queues of controller-runtime.
const (
	firstBackoff   = 5 * time.Millisecond
	longestBackoff = 1000 * time.Second
)

func (q *queue) work() {
	w := q.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for q.dirty && !q.p.dead && !q.spins() {
		q.dirty = false
		w.passes++
		w.mu.Unlock()
		result, err := q.pass()
		w.mu.Lock()
		switch {
		case err != nil:
			q.later(min(firstBackoff<<min(q.failures, 20), longestBackoff))
			q.failures++
		case result.RequeueAfter > 0:
			q.failures = 0
			q.later(result.RequeueAfter)
		default:
			q.failures = 0
		}
	}
	q.working = false
}

// mostPasses are those of a second: whoever makes more keeps a processor busy, here too.
const mostPasses = 500

// spins says that a controller makes one pass after the other, and has none made any more.
func (q *queue) spins() bool {
	if time.Since(q.since) >= time.Second {
		q.since, q.passes = time.Now(), 0
	}
	if q.passes++; q.passes <= mostPasses {
		return false
	}
	q.p.w.violated("makes no pause", "%d passes for %s in a second", mostPasses, q.name)
	q.p.dead = true
	q.p.cancel()
	return true
}

func (q *queue) pass() (result reconcile.Result, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			q.p.w.locked(func() { q.p.w.violated("a pass panics", "%v", broken) })
		}
	}()
	return q.do(q.p.ctx, reconcile.Request{})
}

// later has a pass made later, at the earliest time that was asked for.
func (q *queue) later(d time.Duration) {
	at := time.Now().Add(d)
	if !q.at.IsZero() && !at.Before(q.at) {
		return
	}
	q.at = at
	q.p.w.after(d, func() {
		if q.at.Equal(at) {
			q.at = time.Time{}
			q.add()
		}
	})
}

// call is a call of the controller to somebody: it takes time, and the controller may
// die before it, during it and after it. effect is called with the lock held.
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
		w.after(w.Between("kill at", 0, 20*time.Millisecond), p.kill)
	}
	there, back := w.Between("there "+who, 100*time.Microsecond, 5*time.Millisecond), w.Between("back "+who, 100*time.Microsecond, 5*time.Millisecond)
	w.mu.Unlock()
	sleep(ctx, there)
	w.mu.Lock()
	if w.over || ctx.Err() != nil && w.Chance("lost "+who, 50) {
		w.mu.Unlock()
		return context.Canceled
	}
	err := effect()
	w.mu.Unlock()
	sleep(ctx, back)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// secret reads a Secret, as the manager does: from what was heard of it, and else from
// the API server, which may not answer.
func (p *process) secret(_ context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	name := key.Name
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.informer.objects[secrets][name] == nil {
		return nil, notFound(secrets, name)
	}
	if p.w.api.down {
		return nil, errors.New("simulated: the API server does not answer")
	}
	if o, ok := p.w.api.objects[secrets][name].(*corev1.Secret); ok {
		return o, nil
	}
	return nil, notFound(secrets, name)
}

func (p *process) String() string { return fmt.Sprintf("controller of %s", p.born.Format("15:04:05")) }
