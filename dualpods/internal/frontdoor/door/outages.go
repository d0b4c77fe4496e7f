package door

import (
	"sync"
	"time"
)

// The times for which a Pod that fails is passed over.
const (
	firstOutage = time.Second
	lastOutage  = 30 * time.Second
)

// outages are the Pods that have failed a moment ago, by their Models and addresses.
type outages struct {
	now func() time.Time

	mu sync.Mutex
	of map[string]outage
}

type outage struct {
	until time.Time
	next  time.Duration // of the next one
}

func newOutages(now func() time.Time) *outages {
	return &outages{now: now, of: map[string]outage{}}
}

// failed notes that a Pod does not answer.
func (o *outages) failed(of string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	for other, was := range o.of { // addresses do not come back for ever
		if now.Sub(was.until) > lastOutage {
			delete(o.of, other)
		}
	}
	pause := max(o.of[of].next, firstOutage)
	o.of[of] = outage{now.Add(pause), min(2*pause, lastOutage)}
}

// answered notes that a Pod answers.
func (o *outages) answered(of string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, of)
}

// left returns for how long a Pod is passed over still; 0: it is not.
func (o *outages) left(of string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(o.of[of].until.Sub(o.now()), 0)
}
