package binding

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// nodeWork is what is kept of a node between passes: calls that are under way,
// and what is known to be newer than the cache. One pass has it at a time.
type nodeWork struct {
	name  string
	calls *calls
	own   map[types.UID]*corev1.Pod // as this controller wrote them last
	forms map[types.UID]readForm
	gpus  *allocations.Book
	quiet map[types.UID]silence // of requester programs that do not answer
	mu    sync.Mutex            // guards quiet: requesters are asked side by side
	told  map[types.UID]decide.Telling
	// serves is what was noted of requesters for EndpointSlices.
	serves map[types.UID]bool
	// repeats are the writes that show requesters.
	repeats repeats
	damaged map[types.UID]string // records of launchers that cannot be read, as was told
	// current: the cache is as new as what an earlier controller wrote.
	current bool
	// unheard: the API server may have a record that the cache lacks, since the answer
	// to that write was lost.
	unheard bool
	mute    map[types.UID]bool // launchers that have not answered for long, as was told
	// failed counts the passes, one after the other, in which a step could not be taken.
	failed int
	passed time.Time // of what is on no node: when the last pass began
}

func (c *Controller) work(name string) *nodeWork {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	if !ok {
		n = &nodeWork{name: name, own: map[types.UID]*corev1.Pod{}, forms: map[types.UID]readForm{}, gpus: allocations.NewBook(), damaged: map[types.UID]string{}, mute: map[types.UID]bool{}, quiet: map[types.UID]silence{}, told: map[types.UID]decide.Telling{}, serves: map[types.UID]bool{}, repeats: repeats{}}
		n.calls = &calls{ctx: c.ctx, all: map[string]*outcome{}, troubles: map[string]callTrouble{}, written: map[string]bool{}, notify: func() { c.opts.Again(name) }}
		c.nodes[name] = n
	}
	return n
}

// forget forgets a node on which nothing is and for which no call is under way:
// nodes come and go. The end of a call begins another pass, which forgets then.
func (c *Controller) forget(n *nodeWork, w *world) {
	if len(w.pods)+len(w.launchers) > 0 || !n.calls.none() {
		return
	}
	n.calls.running.Wait() // for those that say just now that they are over
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[n.name] == n {
		delete(c.nodes, n.name)
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
	maps.DeleteFunc(n.told, func(uid types.UID, _ decide.Telling) bool { return gone(uid) })
	n.repeats.forget(gone)
	n.gpus.Forget(gone)
	maps.DeleteFunc(n.damaged, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(n.mute, func(uid types.UID, _ bool) bool { return gone(uid) })
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.quiet, func(uid types.UID, _ silence) bool { return gone(uid) })
}

// keepSwaps forgets the outcomes of swaps that no record is waiting for.
func (n *nodeWork) keepSwaps(w *world) {
	keys := map[string]bool{}
	for _, l := range w.launchers {
		for i := range l.bindings {
			b := &l.bindings[i]
			keys[swapKey(l, b)], keys[callOffKey(l, b)] = true, true
			keys[logKey(b.RequesterUID, b)] = w.pod(dualpods.IdentityIn(b)) != nil
		}
	}
	n.calls.keep("swap/", keys)
	n.calls.keep("log/", keys)
}
