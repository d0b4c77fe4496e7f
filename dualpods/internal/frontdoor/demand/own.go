package demand

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/demandapi"
)

// gatherTime is the least time between two reports. A report has all changes since the one before. Only the first request
// that waits for a Model is reported at once, since the Model may be at zero.
const gatherTime = 10 * time.Millisecond

// writeTime is how long a client may take to read a report. It has lost its patience before.
const writeTime = 5 * demandapi.SilenceLimit

// Count is a number of requests for a Model.
type Count struct {
	Held     int            // that wait
	InFlight map[string]int // that Pods answer, by the name of the Pod
	// Refused says that the Model lets no request wait, and that requests were refused a moment ago because no Pod
	// could answer them. Together they count as one waiting request, while there is no other request.
	Refused bool
	// Ended is when a front door last reported that the Model has no requests any more, if that was less than
	// [demandapi.SilenceLimit] ago. Without it, a request of a few milliseconds might never be seen. Only a Listener
	// sets it.
	Ended time.Time
}

// Total returns all requests.
func (c Count) Total() int {
	total := c.Waiting()
	for _, n := range c.InFlight {
		total += n
	}
	return total
}

// Waiting returns the requests that wait.
func (c Count) Waiting() int {
	if c.Refused && c.Held == 0 && len(c.InFlight) == 0 {
		return 1
	}
	return c.Held
}

func (c Count) isNone() bool { return c.Total() == 0 && !c.Refused }

// Add adds the requests of another count.
func (c *Count) Add(other Count) {
	c.Held += other.Held
	c.Refused = c.Refused || other.Refused
	if other.Ended.After(c.Ended) {
		c.Ended = other.Ended
	}
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
	refusals  map[types.NamespacedName]*time.Timer // at whose end Refused of a Model ends
	listeners map[*listener]struct{}
}

// listener is a client that reads reports.
type listener struct {
	changed map[types.NamespacedName]bool
	kick    chan struct{} // of size 1
	urgent  chan struct{} // likewise: a Model has its first request that waits
}

// NewOwn returns an empty count.
func NewOwn() *Own {
	return &Own{counts: map[types.NamespacedName]*Count{}, refusals: map[types.NamespacedName]*time.Timer{}, listeners: map[*listener]struct{}{}}
}

// Request counts one request for a Model: it waits, or a Pod answers it, or it counts nothing. It changes from one
// to the other in one step, so that no report misses it. It is safe for concurrent use.
type Request struct {
	own   *Own
	model types.NamespacedName
	held  bool
	pod   string // that answers it; empty: none does
}

// Request returns a request that counts nothing yet.
func (o *Own) Request(model types.NamespacedName) *Request { return &Request{own: o, model: model} }

// Hold counts the request as one that waits. It reports false, and changes nothing, if most requests wait already,
// others of which do so at other front doors.
func (r *Request) Hold(most, others int) bool {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	if c := r.own.counts[r.model]; !r.held && (others >= most || c != nil && c.Held+others >= most) {
		return false
	}
	r.become(true, "")
	return true
}

// Enter counts the request as one that a Pod answers.
func (r *Request) Enter(pod string) {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	r.become(false, pod)
}

// Leave has the request count nothing.
func (r *Request) Leave() {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	r.become(false, "")
}

// become changes what the request counts as.
func (r *Request) become(held bool, pod string) {
	if r.held == held && r.pod == pod {
		return
	}
	r.own.change(r.model, func(c *Count) {
		c.add(r, -1)
		r.held, r.pod = held, pod
		c.add(r, 1)
	})
}

// Refuse notes that a request was refused because none may wait. The request counts for some time, in which its client
// may come back.
func (o *Own) Refuse(model types.NamespacedName, within time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if timer := o.refusals[model]; timer != nil {
		timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(within, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.refusals[model] == timer { // otherwise a later request was refused
			delete(o.refusals, model)
			o.change(model, func(c *Count) { c.Refused = false })
		}
	})
	o.refusals[model] = timer
	o.change(model, func(c *Count) { c.Refused = true })
}

// change changes the count of a Model, and wakes the listeners.
func (o *Own) change(model types.NamespacedName, change func(*Count)) {
	c := o.counts[model]
	if c == nil {
		c = &Count{InFlight: map[string]int{}}
		o.counts[model] = c
	}
	waited := c.Waiting()
	change(c)
	isFirst := waited == 0 && c.Waiting() > 0
	if c.isNone() {
		delete(o.counts, model)
	}
	for l := range o.listeners {
		l.changed[model] = true
		wake(l.kick)
		if isFirst {
			wake(l.urgent)
		}
	}
}

// wake wakes whoever waits for a channel of size 1.
func wake(kick chan struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// add adds a request n times.
func (c *Count) add(r *Request, n int) {
	if r.held {
		c.Held += n
	}
	if r.pod == "" {
		return
	}
	if c.InFlight[r.pod] += n; c.InFlight[r.pod] == 0 {
		delete(c.InFlight, r.pod)
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

// Follow calls changed with the Models whose requests have changed, until ctx ends. It holds no lock meanwhile.
func (o *Own) Follow(ctx context.Context, changed func(models []types.NamespacedName)) {
	l := newListener()
	o.listen(l)
	defer o.forget(l)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		}
		var models []types.NamespacedName
		for _, m := range o.changes(l).Models {
			models = append(models, types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
		}
		changed(models)
	}
}

func newListener() *listener {
	return &listener{changed: map[types.NamespacedName]bool{}, kick: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// ServeHTTP streams reports until the client leaves.
func (o *Own) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := newListener()
	report := o.listen(l)
	defer o.forget(l)
	w.Header().Set("Content-Type", "application/x-ndjson")
	heartbeat := time.NewTicker(demandapi.HeartbeatInterval)
	defer heartbeat.Stop()
	for out, flush := json.NewEncoder(w), http.NewResponseController(w); ; {
		// A client that does not read would keep this stream for ever.
		_ = flush.SetWriteDeadline(time.Now().Add(writeTime)) // where there are no deadlines, the server's own hold
		if out.Encode(report) != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-l.urgent:
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
	select {
	case <-l.urgent: // it is told now
	default:
	}
	return report
}

func (o *Own) tell(model types.NamespacedName) demandapi.Model {
	told := demandapi.Model{Namespace: model.Namespace, Name: model.Name}
	if c := o.counts[model]; c != nil {
		told.Held, told.InFlight, told.Refused = c.Held, maps.Clone(c.InFlight), c.Refused
	}
	return told
}
