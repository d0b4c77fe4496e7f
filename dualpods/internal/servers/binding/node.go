package binding

import (
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
	// answers are of requester programs that serve, for which nothing was to be done.
	answers map[types.UID]answer
	mu      sync.Mutex // guards quiet: requesters are asked side by side
	told    map[types.UID]decide.Telling
	// serves is what was noted of requesters for EndpointSlices.
	serves map[types.UID]bool
	// repeats are the writes that show requesters.
	repeats repeats
	// assigned has the last assignment of each seat that this process has seen.
	assigned map[types.UID]string
	damaged  map[types.UID]string // records of launchers that cannot be read, as was told
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

func (n *nodeWork) note(pod *corev1.Pod) { n.own[pod.UID] = pod }

// keepSwaps forgets the outcomes of swaps that no record is waiting for.
func (n *nodeWork) keepSwaps(w *world) {
	keys := map[string]bool{}
	for _, l := range w.launchers {
		for i := range l.bindings {
			b := &l.bindings[i]
			keys[swapKey(l, b)], keys[callOffKey(l, b)] = true, true
			if next := b.Next(); next != nil {
				keys[swapKey(l, next)], keys[callOffKey(l, next)] = true, true
			}
			keys[logKey(b.RequesterUID, b)] = w.pod(dualpods.IdentityIn(b)) != nil
		}
	}
	n.calls.keep("swap/", keys)
	n.calls.keep("log/", keys)
}
