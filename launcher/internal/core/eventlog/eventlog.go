// Package eventlog keeps the last events of the launcher in a ring and lets any
// number of readers follow it by revision. Readers have no queues: a reader that
// falls behind the ring is told so, and delays nobody.
package eventlog

import (
	"context"
	"fmt"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Log is a ring of events with consecutive revisions.
type Log struct {
	mu       sync.Mutex
	events   []launcherapi.WatchEvent // the event of a revision is at slot(revision); the slice grows up to limit
	base     uint64                   // revision of the first event ever
	limit    int
	revision uint64
	grown    chan struct{} // closed and replaced at every append
	closed   bool
}

// New makes a log that keeps limit events and goes on from revision.
func New(limit int, revision uint64) *Log {
	return &Log{limit: limit, base: revision + 1, revision: revision, grown: make(chan struct{})}
}

// Append gives the event the next revision, keeps it, and wakes the readers.
func (f *Log) Append(kind launcherapi.EventType, object launcherapi.Instance) (revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	object.Revision = f.revision
	event := launcherapi.WatchEvent{Type: kind, Object: object}
	if len(f.events) < f.limit {
		f.events = append(f.events, event)
	} else {
		f.events[f.slot(f.revision)] = event
	}
	f.wake()
	return f.revision
}

func (f *Log) slot(revision uint64) int { return int((revision - f.base) % uint64(f.limit)) }

// first is the revision of the oldest event that is kept.
func (f *Log) first() uint64 { return f.revision + 1 - uint64(len(f.events)) }

// Revision is the revision of the latest event.
func (f *Log) Revision() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// Close ends every reader's wait with an error of code unavailable.
func (f *Log) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wake()
}

func (f *Log) wake() {
	close(f.grown)
	f.grown = make(chan struct{})
}

// Check says whether a reader can go on after a revision: an error of code gone
// when the ring no longer holds the events that follow.
func (f *Log) Check(since uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check(since)
}

func (f *Log) check(since uint64) error {
	if first := f.first(); since+1 < first {
		return launcher.Gonef("Requested revision %d is no longer available. Oldest available: %d. List the instances and watch from the revision of that answer.", since, first-1)
	}
	if since > f.revision {
		return launcher.Gonef("Requested revision %d has not been reached; the latest is %d. List the instances and watch from the revision of that answer.", since, f.revision)
	}
	return nil
}

// batchLimit is how many events Next returns at most: a reader from far back
// must not keep the others waiting for the lock.
const batchLimit = 256

// Next waits for events after a revision and returns them in order, batchLimit at
// most. It ends with an error when ctx ends, when the reader has fallen behind the
// ring (code gone) or when the log is closed (code unavailable).
func (f *Log) Next(ctx context.Context, since uint64) ([]launcherapi.WatchEvent, error) {
	for {
		f.mu.Lock()
		if err := f.check(since); err != nil {
			f.mu.Unlock()
			return nil, err
		}
		if since < f.revision {
			batch := make([]launcherapi.WatchEvent, min(f.revision-since, batchLimit))
			for n := range batch {
				batch[n] = f.events[f.slot(since+1+uint64(n))]
			}
			f.mu.Unlock()
			return batch, nil
		}
		closed, grown := f.closed, f.grown
		f.mu.Unlock()
		if closed {
			return nil, launcher.Unavailablef("the launcher is closing")
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot wait for events: %w", context.Cause(ctx))
		}
	}
}
