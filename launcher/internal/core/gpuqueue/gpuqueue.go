// Package gpuqueue lets swaps take turns on sets of GPUs. A set is taken whole or
// not at all, in the order of asking: a ticket is served as soon as no earlier
// ticket, served or waiting, shares a key with it. So disjoint sets go side by
// side, overlapping ones in order, and no two can wait for each other.
//
// A swap that has its turn and cannot use the turn yet may step aside: others pass
// then, but no swap that has to step aside as well comes back before this one.
package gpuqueue

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
	aside    bool // the ticket lets others pass
	returned bool // the ticket was aside before
}

// Turn is a place in the queue and, once served, the right to its keys.
type Turn struct {
	queue  *Queue
	ticket *ticket
}

// Take waits for a turn on every one of keys. id names the taker to
// [Queue.Holder]. When ctx ends first, the ticket leaves the queue and the
// context's error is returned.
func (q *Queue) Take(ctx context.Context, id string, keys []string) (*Turn, error) {
	t := q.Enter(id, keys)
	return t, t.Await(ctx)
}

// Enter takes a place in the queue; call Await or Release next.
func (q *Queue) Enter(id string, keys []string) *Turn {
	t := &Turn{queue: q, ticket: &ticket{id: id, keys: slices.Clone(keys), served: make(chan struct{})}}
	q.mu.Lock()
	q.tickets = append(q.tickets, t.ticket)
	q.serve()
	q.mu.Unlock()
	return t
}

// Await waits for the turn, as Take does.
func (t *Turn) Await(ctx context.Context) error {
	select {
	case <-t.ticket.served:
		return nil
	case <-ctx.Done():
		t.Release()
		return context.Cause(ctx)
	}
}

// Aside lets others have the turn while wait runs, and takes the turn again
// afterwards. On an error, of wait or because ctx has ended, the turn is released.
func (t *Turn) Aside(ctx context.Context, wait func(context.Context) error) error {
	t.step(true)
	if err := wait(ctx); err != nil {
		t.Release()
		return err
	}
	t.step(false)
	return t.Await(ctx)
}

func (t *Turn) step(aside bool) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if aside {
		t.ticket.isServed, t.ticket.served = false, make(chan struct{})
	}
	t.ticket.aside, t.ticket.returned = aside, !aside
	t.queue.serve()
}

// Release gives the turn back. A second call does nothing.
func (t *Turn) Release() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickets = slices.DeleteFunc(q.tickets, func(o *ticket) bool { return o == t.ticket })
	q.serve()
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

// serve serves every ticket that overlaps neither a served ticket nor an earlier
// one that waits. A ticket that is aside is in the way only of tickets that come
// back from aside behind it. The lock is held.
func (q *Queue) serve() {
	served, waiting, aside := keys{}, keys{}, keys{}
	for _, t := range q.tickets {
		if t.isServed {
			served.add(t)
		}
	}
	for _, t := range q.tickets {
		switch {
		case t.isServed:
		case t.aside || t.returned && aside.overlap(t):
			aside.add(t)
		case served.overlap(t) || waiting.overlap(t):
			waiting.add(t)
		default:
			t.isServed = true
			close(t.served)
			served.add(t)
		}
	}
}

type keys map[string]bool

func (k keys) add(t *ticket) {
	for _, key := range t.keys {
		k[key] = true
	}
}

func (k keys) overlap(t *ticket) bool {
	return slices.ContainsFunc(t.keys, func(key string) bool { return k[key] })
}
