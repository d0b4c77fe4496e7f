package demand

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/demandapi"
)

// gatherTime is the least time between two reports: what changes meanwhile is told together.
const gatherTime = 10 * time.Millisecond

// Count is a number of requests for a Model.
type Count struct {
	Held     int            // that wait
	InFlight map[string]int // that Pods answer, by the name of the Pod
}

// Total returns all requests.
func (c Count) Total() int {
	total := c.Held
	for _, n := range c.InFlight {
		total += n
	}
	return total
}

// Add adds the requests of another count.
func (c *Count) Add(other Count) {
	c.Held += other.Held
	for pod, n := range other.InFlight {
		if c.InFlight == nil {
			c.InFlight = map[string]int{}
		}
		c.InFlight[pod] += n
	}
}

// Own counts the requests of this front door. It is safe for concurrent use.
type Own struct {
	mu        sync.Mutex
	counts    map[types.NamespacedName]*Count
	listeners map[*listener]struct{}
}

// listener is a client that reads reports.
type listener struct {
	changed map[types.NamespacedName]bool
	kick    chan struct{} // of size 1
}

// NewOwn returns an empty count.
func NewOwn() *Own {
	return &Own{counts: map[types.NamespacedName]*Count{}, listeners: map[*listener]struct{}{}}
}

// Hold counts a request that waits, until release is called.
func (o *Own) Hold(model types.NamespacedName) (release func()) {
	return o.count(model, func(c *Count, n int) { c.Held += n })
}

// Enter counts a request that a Pod answers, until release is called.
func (o *Own) Enter(model types.NamespacedName, pod string) (release func()) {
	return o.count(model, func(c *Count, n int) {
		if c.InFlight[pod] += n; c.InFlight[pod] == 0 {
			delete(c.InFlight, pod)
		}
	})
}

func (o *Own) count(model types.NamespacedName, add func(*Count, int)) (release func()) {
	o.change(model, func(c *Count) { add(c, 1) })
	return sync.OnceFunc(func() { o.change(model, func(c *Count) { add(c, -1) }) })
}

func (o *Own) change(model types.NamespacedName, change func(*Count)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.counts[model]
	if c == nil {
		c = &Count{InFlight: map[string]int{}}
		o.counts[model] = c
	}
	change(c)
	if c.Held == 0 && len(c.InFlight) == 0 {
		delete(o.counts, model)
	}
	for l := range o.listeners {
		l.changed[model] = true
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// Of returns the requests for a Model.
func (o *Own) Of(model types.NamespacedName) Count {
	o.mu.Lock()
	defer o.mu.Unlock()
	var c Count
	if own := o.counts[model]; own != nil {
		c.Add(*own)
	}
	return c
}

// All returns the requests for each Model that has any.
func (o *Own) All() map[types.NamespacedName]Count {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[types.NamespacedName]Count{}
	for model, own := range o.counts {
		var c Count
		c.Add(*own)
		all[model] = c
	}
	return all
}

// ServeHTTP streams reports until the client leaves.
func (o *Own) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := &listener{changed: map[types.NamespacedName]bool{}, kick: make(chan struct{}, 1)}
	report := o.listen(l)
	defer o.forget(l)
	w.Header().Set("Content-Type", "application/x-ndjson")
	heartbeat := time.NewTicker(demandapi.HeartbeatInterval)
	defer heartbeat.Stop()
	for out, flush := json.NewEncoder(w), http.NewResponseController(w); ; {
		if out.Encode(report) != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(gatherTime):
		}
		select {
		case <-r.Context().Done():
			return
		case <-l.kick:
		case <-heartbeat.C:
		}
		report = o.changes(l)
	}
}

// listen adds a listener, and returns its first report.
func (o *Own) listen(l *listener) demandapi.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners[l] = struct{}{}
	report := demandapi.Report{Whole: true}
	for model := range o.counts {
		report.Models = append(report.Models, o.tell(model))
	}
	return report
}

func (o *Own) forget(l *listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.listeners, l)
}

// changes returns what has changed since the last report.
func (o *Own) changes(l *listener) (report demandapi.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for model := range l.changed {
		report.Models = append(report.Models, o.tell(model))
	}
	clear(l.changed)
	return report
}

func (o *Own) tell(model types.NamespacedName) demandapi.Model {
	told := demandapi.Model{Namespace: model.Namespace, Name: model.Name}
	if c := o.counts[model]; c != nil {
		told.Held, told.InFlight = c.Held, maps.Clone(c.InFlight)
	}
	return told
}
