// Package telemetry tells of what the controller does, by metrics and by traces.
// It sees the controller from outside: as the observer of package binding, and
// as a layer around the calls to launchers and to requester programs.
// spec/metrics.md lists the metrics.
package telemetry

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// Options configure a [Telemetry].
type Options struct {
	// Streams counts the launchers that are watched, and those of them whose
	// watch stream is up.
	Streams func() (watched, connected int)
	// Followers counts the logs that are followed.
	Followers func() int
	// Tracing sends a trace of each actuation; nil: nobody does.
	Tracing *Tracing
}

// Telemetry is a controller's metrics and traces. Its methods may be called from several
// goroutines at once.
type Telemetry struct {
	opts    Options
	metrics *metrics

	mu         sync.Mutex
	requesters map[types.UID]*requester
	nodes      map[string]map[types.UID]*requester // the same, by node
	early      map[types.UID]call                  // of requesters that Saw has not told of
}

// New makes a Telemetry, which is a [binding.Observer] and a collector of
// metrics.
func New(opts Options) *Telemetry {
	return &Telemetry{opts: opts, metrics: newMetrics(), requesters: map[types.UID]*requester{}, nodes: map[string]map[types.UID]*requester{}, early: map[types.UID]call{}}
}

// requester is what was seen of one last, and its actuation.
type requester struct {
	node    string
	seen    time.Time
	row     string // that it waits at, or whose step was taken
	leaving bool
	served  bool
	bound   bool
	state   string // of the instance that it is bound to

	created time.Time // as well as is known, as are the next two
	running time.Time // zero: its program was not seen running
	over    bool      // it has been ready, or is leaving

	actuation *actuation // nil: it is over, or nobody wants to hear of it
}

// moving is how long a requester that the scheduler has placed may be on no
// node: the pass over its node is to come.
const moving = time.Minute

// Saw is told of a decision; see [binding.Observer].
func (t *Telemetry) Saw(s binding.Sight) {
	t.metrics.count(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	uid := s.Observation.Requester.UID
	r := t.requesters[uid]
	if r == nil {
		r = t.newRequester(s)
		t.requesters[uid] = r
	}
	if asked, ok := t.early[uid]; ok {
		r.actuation.asked(asked)
		delete(t.early, uid)
	}
	t.place(uid, r, s.Node)
	r.saw(s)
	t.advance(r, s)
}

// newRequester begins with a requester that has not been seen before. One that
// is ready already came to be so in an earlier life of the controller.
func (t *Telemetry) newRequester(s binding.Sight) *requester {
	r := &requester{
		created: earlier(s.Began, s.Observation.Requester.Created),
		over:    !s.Observation.Requester.PodReady.IsZero() || s.Leaving,
	}
	if !r.over {
		r.actuation = t.newActuation(s, r.created)
	}
	return r
}

func (r *requester) saw(s binding.Sight) {
	o := &s.Observation
	r.seen = s.Ended
	r.row, r.leaving, r.served = s.Step.Rule, s.Leaving, s.Served()
	r.bound, r.state = o.Record != nil, stateOf(o)
	if r.running.IsZero() && o.Requester.Running {
		r.running = earlier(s.Ended, o.Requester.Started)
	}
}

// advance ends the actuation of a requester that is ready, or leaves.
func (t *Telemetry) advance(r *requester, s binding.Sight) {
	o := &s.Observation
	switch {
	case r.over:
		return
	case s.Leaving:
		r.actuation.end(s.Ended, "it leaves before it was ready", o)
	case !o.Requester.PodReady.IsZero() && o.Record != nil && o.Launcher != nil:
		ready := earlier(s.Ended, o.Requester.PodReady)
		t.metrics.actuated(pathOf(o), r, ready)
		r.actuation.saw(s)
		r.actuation.end(ready, "", o)
	default:
		r.actuation.saw(s)
		return
	}
	r.over, r.actuation = true, nil
}

// place notes the node of a requester.
func (t *Telemetry) place(uid types.UID, r *requester, node string) {
	if r.node != node {
		t.displace(uid, r)
	}
	r.node = node
	if t.nodes[node] == nil {
		t.nodes[node] = map[types.UID]*requester{}
	}
	t.nodes[node][uid] = r
}

func (t *Telemetry) displace(uid types.UID, r *requester) {
	delete(t.nodes[r.node], uid)
	if len(t.nodes[r.node]) == 0 {
		delete(t.nodes, r.node)
	}
}

// waitsForSight is how long a call for a requester is kept that Saw does not tell
// of: a pass that has broken off is made again, and the requester may be gone by
// then.
const waitsForSight = 10 * time.Minute

// Passed forgets the requesters of a node that are gone, and the calls for those
// that Saw never told of, of which no node is known.
func (t *Telemetry) Passed(node string, there []types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.early, func(_ types.UID, c call) bool { return time.Since(c.ended) > waitsForSight })
	if len(t.nodes[node]) == len(there) {
		return // Saw has told of all that are there
	}
	left := maps.Clone(t.nodes[node])
	for _, uid := range there {
		delete(left, uid)
	}
	for uid, r := range left {
		if node == "" && time.Since(r.seen) < moving {
			continue
		}
		t.displace(uid, r)
		delete(t.requesters, uid)
	}
}

// Paths of an actuation.
const (
	hot  = "hot"  // an instance was woken
	warm = "warm" // an instance was made, in a launcher that was there
	cold = "cold" // the launcher is no older than the requester
)

// pathOf is the way by which a bound requester came to its instance.
func pathOf(o *decide.Observation) string {
	switch {
	case !o.Launcher.Created.Before(o.Requester.Created):
		return cold
	case o.Record.New:
		return warm
	default:
		return hot
	}
}

// earlier is when something was that was seen at one time, and has a stamp of
// Kubernetes, which is of whole seconds: it was within the second after that.
func earlier(seen, stamp time.Time) time.Time {
	if latest := stamp.Add(time.Second); !stamp.IsZero() && latest.Before(seen) {
		return latest
	}
	return seen
}
