package binding

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Requesters asks requester programs, by the address of their SPI.
type Requesters interface {
	Accelerators(ctx context.Context, address string) (uuids []string, err error)
	Proxy(ctx context.Context, address string) (requesterapi.Proxy, error)
	Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (requesterapi.Proxy, error)
	Unbind(ctx context.Context, address, binding string, drain time.Duration) (requesterapi.Unbound, error)
	BecomeReady(ctx context.Context, address, binding string) error
	BecomeUnready(ctx context.Context, address, binding string) error
	Hold(ctx context.Context, address string, hold requesterapi.Hold) (requesterapi.Proxy, error)
}

// askKubelet asks for all requesters of a node that the kubelet's word is wanted of, by one
// question.
func (c *Controller) askKubelet(ctx context.Context, n *nodeWork, w *world) {
	if c.opts.Allocations == nil || w.node.Gone {
		return
	}
	checks := map[string]bool{} // the namespaces with launchers that want the kubelet's word
	for _, l := range w.launchers {
		checks[l.pod.Namespace] = checks[l.pod.Namespace] || l.checksAllocations()
	}
	var due []*corev1.Pod
	for _, pod := range w.pods {
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		if checks[pod.Namespace] && c.isToBeTold(pod, record) && n.gpus.IsDue(w.now, pod) {
			due = append(due, pod)
		}
	}
	if len(due) > 0 {
		ctx, stop := context.WithTimeout(ctx, passLimit)
		defer stop()
		told, why := allocations.Ask(ctx, c.opts.Allocations, c.opts.AgentNamespace, w.node.Name, w.agents)
		if why != "" {
			c.log.V(1).Info("the kubelet cannot be asked", "node", w.node.Name, "why", why)
		}
		for _, pod := range due {
			n.gpus.NoteKubelet(w.now, pod, told, why)
		}
	}
	w.kubelet = n.gpus.Kubelet()
}

// checksAllocations says that the kubelet's word counts for the requesters of the launcher,
// as its LauncherConfig wants it. Orphans have none, and get no new requesters.
func (l *launcherPod) checksAllocations() bool {
	return l.of != nil && l.of.Spec.AllocationCheck.Mode != v1alpha1.AllocationCheckNone
}

// isToBeTold reports whether the kubelet's word about a requester is wanted: before it is bound,
// and once more when its program runs if it was bound before.
func (c *Controller) isToBeTold(pod *corev1.Pod, record *podmeta.Binding) bool {
	if running(pod) {
		return record == nil || record.Ahead
	}
	return record == nil && c.asksAhead(pod)
}

// asksAhead reports whether the kubelet's word about a requester counts before its program runs.
func (c *Controller) asksAhead(pod *corev1.Pod) bool {
	return c.opts.WriteAhead && allocations.CountsAhead(pod)
}

// askLimit bounds a call to a requester program, which answers in a millisecond
// where it lives, and passLimit how long a pass waits for that, and for an order of its
// own (bind, become ready, become unready): the other requesters of the node wait
// meanwhile. The next pass sees whether an order that was cut off had its effect.
const (
	askLimit  = 2 * time.Second
	passLimit = 300 * time.Millisecond
)

// askRequesters asks every requester program that runs, all at once, except if its last answer still
// counts. A program that has let a pass wait is asked beside the passes until it answers, so that it
// does not hold the other requesters of its node up.
func (c *Controller) askRequesters(ctx context.Context, n *nodeWork, w *world) {
	ctx, stop := context.WithTimeout(ctx, passLimit)
	defer stop()
	var asked sync.WaitGroup
	var mu sync.Mutex
	for uid, pod := range w.pods {
		if !running(pod) || w.node.Gone {
			continue
		}
		if said := n.recall(pod, w.now); said != nil {
			mu.Lock()
			w.spi[uid], w.recalled[uid] = said, true
			mu.Unlock()
			continue
		}
		address := w.adminAddress(uid)
		if since, hangs := n.hangs(uid); hangs {
			mu.Lock()
			w.silent[uid] = since
			mu.Unlock()
			n.calls.begin(askKey(uid), false, func(ctx context.Context) (uint64, error) {
				ctx, stop := context.WithTimeout(dualpods.ForRequester(ctx, uid), askLimit)
				defer stop()
				_, err := c.opts.Requesters.Proxy(ctx, address)
				if !errors.Is(err, context.DeadlineExceeded) {
					n.hangsNoMore(uid)
				}
				return 0, err
			})
			continue
		}
		asked.Go(func() {
			said, err := c.askRequester(dualpods.ForRequester(ctx, uid), n, uid, address)
			mu.Lock()
			defer mu.Unlock()
			c.takeAnswer(n, w, pod, said, err)
		})
	}
	asked.Wait()
}

// takeAnswer has the world know what a requester program said.
func (c *Controller) takeAnswer(n *nodeWork, w *world, pod *corev1.Pod, said *decide.SPI, err error) {
	if err != nil {
		c.log.V(1).Info("a requester does not answer", "pod", client.ObjectKeyFromObject(pod), "error", err.Error())
	} else {
		n.heard(pod.UID)
	}
	if w.spi[pod.UID] = said; said == nil {
		w.silent[pod.UID] = n.silentSince(pod.UID, w.now, errors.Is(err, context.DeadlineExceeded))
		w.refusing[pod.UID] = refused(err)
	}
}

// answer is what a requester program said while nothing was to be done for it.
type answer struct {
	version string // of its Pod
	at      time.Time
	said    *decide.SPI
}

// answerAge is how long an answer counts, at most. Until its Pod is deleted, a program changes what
// it serves only by the controller's orders, or by a restart, which changes its Pod. Only a
// controller that led before may have an order under way that this one does not know of.
const answerAge = time.Minute

// recall returns what a requester program that serves said last; nil: it has to be asked.
func (n *nodeWork) recall(pod *corev1.Pod, now time.Time) *decide.SPI {
	last, ok := n.answers[pod.UID]
	if age := now.Sub(last.at); !ok || last.version != pod.ResourceVersion || age < 0 || age > answerAge {
		return nil
	}
	return last.said
}

// keepAnswer keeps the answer of a requester that serves, does not leave, and wants nothing. It
// forgets those of others.
func (n *nodeWork) keepAnswer(w *world, o *decide.Observation, step decide.Step) {
	uid := o.Requester.UID
	serves, known := o.Serves()
	switch pod := w.pods[uid]; {
	case pod == nil || !serves || !known || o.IsLeaving() || step.Do != decide.Nothing:
		delete(n.answers, uid)
	case w.recalled[uid]: // its age goes on
	default:
		n.answers[uid] = answer{pod.ResourceVersion, w.now, w.spi[uid]}
	}
}

// askAnew asks a requester program for which something is to be done by what it said earlier.
func (c *Controller) askAnew(ctx context.Context, n *nodeWork, w *world, uid types.UID) {
	ctx, stop := context.WithTimeout(dualpods.ForRequester(ctx, uid), passLimit)
	defer stop()
	delete(w.recalled, uid)
	said, err := c.askRequester(ctx, n, uid, w.adminAddress(uid))
	c.takeAnswer(n, w, w.pods[uid], said, err)
}

// askRequester asks one. What GPUs it has is asked once of each of its processes.
func (c *Controller) askRequester(ctx context.Context, n *nodeWork, uid types.UID, address string) (*decide.SPI, error) {
	proxy, err := c.opts.Requesters.Proxy(ctx, address)
	if err != nil {
		return nil, err
	}
	gpus, known := n.gpus.Program(uid, proxy.Instance)
	if !known {
		gpus, err = c.opts.Requesters.Accelerators(ctx, address)
		if refused(err) {
			return &decide.SPI{Wrong: err.Error(), Proxy: proxy}, nil
		}
		if err != nil {
			return nil, err
		}
		n.gpus.NoteProgram(uid, proxy.Instance, gpus)
	}
	return &decide.SPI{GPUs: gpus, Proxy: proxy}, nil
}

func (w *world) adminAddress(uid types.UID) string {
	address := net.JoinHostPort(w.pods[uid].Status.PodIP, strconv.Itoa(int(w.asked[uid].AdminPort)))
	if w.asked[uid].TLS {
		return "https://" + address
	}
	return address
}

// silence is that of a requester program that does not answer.
type silence struct {
	since time.Time
	hangs bool // it let its last caller wait, instead of refusing
}

// heard says that a requester program has answered.
func (n *nodeWork) heard(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.quiet, uid)
}

// silentSince is since when a requester program has not answered: now, where it
// did the last time.
func (n *nodeWork) silentSince(uid types.UID, now time.Time, hangs bool) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.quiet[uid]
	if !ok {
		s.since = now
	}
	s.hangs = hangs
	n.quiet[uid] = s
	return s.since
}

// hangs says whether a requester program let its last caller wait, and since
// when it has not answered.
func (n *nodeWork) hangs(uid types.UID) (since time.Time, hangs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.quiet[uid]
	return s.since, s.hangs
}

// hangsNoMore has the next pass wait for a requester program again.
func (n *nodeWork) hangsNoMore(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.quiet[uid]; ok {
		s.hangs = false
		n.quiet[uid] = s
	}
}

// refused tells an answer that is an error from no answer.
func refused(err error) bool {
	_, ok := errors.AsType[*spi.RefusedError](err)
	return ok
}
