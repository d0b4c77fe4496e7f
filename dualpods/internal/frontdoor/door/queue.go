package door

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher/inference"
)

// queues are the requests that wait, by their Models, in the order in which they came. The first one of a Model
// may pass when a Pod may answer it; it leaves once it is sent, and then the next one may.
type queues struct {
	// mayPass returns 0 if a Pod may answer a request now, and otherwise when to ask again though nothing
	// changes; a negative time: never.
	mayPass func(*request) time.Duration

	mu     sync.Mutex
	of     map[types.NamespacedName][]*turn
	timers map[types.NamespacedName]*time.Timer
	closed bool
}

// turn is the place of a request in its queue.
type turn struct {
	of      *request
	since   time.Time
	ready   chan struct{} // closed when the request may pass, or the queues are closed
	passing bool
	leave   func()
}

func newQueues(mayPass func(*request) time.Duration) *queues {
	return &queues{mayPass: mayPass, of: map[types.NamespacedName][]*turn{}, timers: map[types.NamespacedName]*time.Timer{}}
}

var errClosing = &inference.Error{Status: http.StatusServiceUnavailable, Message: "this front door is ending: try again", RetryAfter: time.Second}

// pass reports whether a request may pass at once. If others wait for its Model, or no Pod may answer it, it gets
// a place in the queue.
func (s *queues) pass(q *request) (*turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosing
	}
	key := q.model.Key
	if len(s.of[key]) == 0 && s.mayPass(q) == 0 {
		return nil, nil //nolint:nilnil // it waits for nobody
	}
	t := &turn{of: q, since: time.Now(), ready: make(chan struct{})}
	t.leave = sync.OnceFunc(func() { s.remove(key, t) })
	s.of[key] = append(s.of[key], t)
	s.look(key)
	return t, nil
}

func (s *queues) remove(key types.NamespacedName, t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.of[key]
	for i := range all {
		if all[i] == t {
			s.of[key] = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	s.look(key)
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
	if len(all) == 0 {
		delete(s.of, key)
		return
	}
	if all[0].passing || s.closed {
		return
	}
	switch again := s.mayPass(all[0].of); {
	case again == 0:
		all[0].passing = true
		close(all[0].ready)
	case again > 0:
		s.timers[key] = time.AfterFunc(again, func() { s.kick(key) })
	}
}

// close refuses all that wait.
func (s *queues) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key, all := range s.of {
		if timer := s.timers[key]; timer != nil {
			timer.Stop()
			delete(s.timers, key)
		}
		for _, t := range all {
			if !t.passing {
				t.of.failure = errClosing
				t.passing = true
				close(t.ready)
			}
		}
	}
}

// leaveQueue gives up the request's place.
func (q *request) leaveQueue() {
	if q.turn != nil {
		q.turn.leave()
	}
}

// refuseFull refuses a request since too many wait already.
func refuseFull(model string, most int, after time.Duration) error {
	return &inference.Error{
		Status: http.StatusTooManyRequests, RetryAfter: after,
		Message: fmt.Sprintf("%d requests wait for the model %s, and hold.max of the Model allows no more: ask again later", most, model),
	}
}
