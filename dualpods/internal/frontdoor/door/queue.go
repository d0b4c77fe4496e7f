package door

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
)

// queues are the requests that wait, by their Models, in the order in which they came. The first one of a Model
// may pass when a Pod may answer it; it leaves once it is sent, and then the next one may.
type queues struct {
	// mayPass returns 0 if a Pod may answer a request now, and otherwise when to ask again though nothing
	// changes; a negative time: never.
	mayPass func(*request) time.Duration
	// refuses returns why requests for a Model must not wait; nil: they may.
	refuses func(types.NamespacedName) error

	mu     sync.Mutex
	of     map[types.NamespacedName][]*turn
	timers map[types.NamespacedName]*time.Timer
	closed bool
}

// turn is a place of a request in its queue.
type turn struct {
	of      *request
	first   bool          // nobody waited when it came
	ready   chan struct{} // closed when the request may pass, or is refused
	passing bool          // ready is closed
	refused error         // why the request must not pass
}

func newQueues(mayPass func(*request) time.Duration, refuses func(types.NamespacedName) error) *queues {
	return &queues{mayPass: mayPass, refuses: refuses, of: map[types.NamespacedName][]*turn{}, timers: map[types.NamespacedName]*time.Timer{}}
}

var errClosing = &inference.Error{Status: http.StatusServiceUnavailable, Message: "this front door is ending: try again", RetryAfter: time.Second}

// errGone refuses a request whose Model was deleted while it waited.
func errGone(model types.NamespacedName) error {
	return inference.ModelNotFound(fmt.Errorf("the model %q was deleted while the request waited", model.Name))
}

// refusesToHold returns why requests for a Model must not wait: it is gone, or no replica can come.
func (d *Door) refusesToHold(key types.NamespacedName) error {
	switch m := d.dir.Model(key); {
	case m == nil:
		return errGone(key)
	case m.Stuck && len(d.dir.Serving(key)) == 0:
		return &inference.Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf(
			"no entry of the model %[1]s can run as it is written: kubectl describe mdl %[1]s -n %[2]s says what to change", key.Name, key.Namespace)}
	}
	return nil
}

// pass has a request pass at once, or gives it a turn: if others wait for its Model, or no Pod may answer it. A
// request that has failed at a Pod gets its old place again.
func (s *queues) pass(q *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosing
	}
	key := q.model.Key
	s.drop(q.turn)
	q.turn = nil
	if err := s.refuses(key); err != nil {
		return err
	}
	if len(s.of[key]) == 0 && s.mayPass(q) == 0 {
		return nil
	}
	if q.came.IsZero() {
		q.came = time.Now()
	}
	q.turn = &turn{of: q, first: len(s.of[key]) == 0, ready: make(chan struct{})}
	at := len(s.of[key])
	for at > 0 && s.of[key][at-1].of.came.After(q.came) {
		at--
	}
	s.of[key] = slices.Insert(slices.Clone(s.of[key]), at, q.turn)
	s.look(key)
	return nil
}

// leave gives up a turn; nil: there is none.
func (s *queues) leave(t *turn) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop(t) {
		s.look(t.of.model.Key)
	}
}

// drop removes a turn, and reports whether it was there.
func (s *queues) drop(t *turn) bool {
	if t == nil {
		return false
	}
	key := t.of.model.Key
	at := slices.Index(s.of[key], t)
	if at < 0 {
		return false
	}
	if at == 0 { // as usual
		s.of[key][0] = nil
		s.of[key] = s.of[key][1:]
	} else {
		s.of[key] = slices.Delete(s.of[key], at, at+1)
	}
	return true
}

// refusal returns why a turn that is ready must not be used; nil: it may.
func (s *queues) refusal(t *turn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.refused
}

// kick looks whether the first request for a Model may pass by now.
func (s *queues) kick(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(key)
}

func (s *queues) look(key types.NamespacedName) {
	if timer := s.timers[key]; timer != nil {
		timer.Stop()
		delete(s.timers, key)
	}
	all := s.of[key]
	why := s.refuses(key)
	switch {
	case len(all) == 0:
		delete(s.of, key)
		return
	case s.closed:
		return
	case why != nil:
		refuse(all, why)
		return
	case all[0].passing:
		return
	}
	switch again := s.mayPass(all[0].of); {
	case again == 0:
		all[0].end(nil)
	case again > 0:
		s.timers[key] = time.AfterFunc(again, func() { s.kick(key) })
	}
}

// end makes a turn ready.
func (t *turn) end(refused error) {
	t.passing, t.refused = true, refused
	close(t.ready)
}

// refuse refuses those that wait still.
func refuse(all []*turn, why error) {
	for _, t := range all {
		if !t.passing {
			t.end(why)
		}
	}
}

// close refuses all that wait, and all that come.
func (s *queues) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key, timer := range s.timers {
		timer.Stop()
		delete(s.timers, key)
	}
	for _, all := range s.of {
		refuse(all, errClosing)
	}
}

// refuseFull refuses a request because too many wait already. If none may wait, the request counts as demand until its
// client may have come back. Otherwise nothing would start the Model.
func (d *Door) refuseFull(m *directory.Model) error {
	after := d.retryAfter(m, 0)
	why := fmt.Sprintf("%d requests wait for the model %s, and hold.max of the Model allows no more", m.MaxHeld, m.Key.Name)
	if m.MaxHeld == 0 {
		d.opts.Own.Refuse(m.Key, 2*after)
		why = fmt.Sprintf("no replica of the model %s is ready, and hold.max of the Model lets no request wait", m.Key.Name)
	}
	return &inference.Error{Status: http.StatusTooManyRequests, RetryAfter: after, Message: why + ": ask again later"}
}
