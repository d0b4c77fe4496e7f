// Package turns lets swaps take turns on sets of GPUs. A set is taken whole or
// not at all, in the order of asking: a ticket is served as soon as no earlier
// ticket, served or waiting, shares a key with it. So disjoint sets go side by
// side, overlapping ones in order, and no two can wait for each other.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Queue hands out turns. The zero value is ready for use.
type Queue struct {
	mu      sync.Mutex
	tickets []*ticket // in order of asking; served ones stay until released
}

type ticket struct {
	id       string
	keys     []string
	served   chan struct{}
	isServed bool
}

// Take waits for a turn on every one of keys and returns what gives it back.
// id names the taker to [Queue.Holder]. When ctx ends first, the ticket leaves
// the queue and the context's error is returned.
func (q *Queue) Take(ctx context.Context, id string, keys []string) (release func(), err error) {
	return q.Enter(id, keys)(ctx)
}

// Enter takes a place in the queue, and returns what waits there as Take does.
// It has to be called, once.
func (q *Queue) Enter(id string, keys []string) (wait func(context.Context) (release func(), err error)) {
	t := &ticket{id: id, keys: slices.Clone(keys), served: make(chan struct{})}
	q.mu.Lock()
	q.tickets = append(q.tickets, t)
	q.serve()
	q.mu.Unlock()
	return func(ctx context.Context) (func(), error) { return q.await(ctx, t) }
}

func (q *Queue) await(ctx context.Context, t *ticket) (release func(), err error) {
	select {
	case <-t.served:
	case <-ctx.Done():
		q.leave(t)
		return nil, context.Cause(ctx)
	}
	var once sync.Once
	return func() { once.Do(func() { q.leave(t) }) }, nil
}

// Holder names who has the turn on a key, or "".
func (q *Queue) Holder(key string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tickets {
		if t.isServed && slices.Contains(t.keys, key) {
			return t.id
		}
	}
	return ""
}

// Counts says how many tickets are served and how many wait.
func (q *Queue) Counts() (served, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tickets {
		if t.isServed {
			served++
		} else {
			waiting++
		}
	}
	return served, waiting
}

func (q *Queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickets = slices.DeleteFunc(q.tickets, func(o *ticket) bool { return o == t })
	q.serve()
}

// serve grants every ticket that no earlier one overlaps. The lock is held.
func (q *Queue) serve() {
	taken := map[string]bool{}
	for _, t := range q.tickets {
		free := !slices.ContainsFunc(t.keys, func(k string) bool { return taken[k] })
		if free && !t.isServed {
			t.isServed = true
			close(t.served)
		}
		for _, k := range t.keys {
			taken[k] = true
		}
	}
}
