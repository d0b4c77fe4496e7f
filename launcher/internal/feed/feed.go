// Package feed keeps the last events of the launcher in a ring and lets any
// number of readers follow it by revision. A reader holds no queue of its own:
// one that falls behind the ring is told so, and costs nobody anything.
package feed

import (
	"context"
	"fmt"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Feed is a ring of events with consecutive revisions.
type Feed struct {
	mu       sync.Mutex
	events   []launcherapi.WatchEvent // events[n] has revision first+n
	first    uint64                   // revision of events[0]
	limit    int
	revision uint64
	grown    chan struct{} // closed and replaced at every append
	closed   bool
}

// New makes a feed that keeps limit events and goes on from revision.
func New(limit int, revision uint64) *Feed {
	return &Feed{limit: limit, first: revision + 1, revision: revision, grown: make(chan struct{})}
}

// Append gives the event the next revision, keeps it, and wakes the readers.
func (f *Feed) Append(kind launcherapi.EventType, object launcherapi.Instance) (revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	object.Revision = f.revision
	f.events = append(f.events, launcherapi.WatchEvent{Type: kind, Object: object})
	if drop := len(f.events) - f.limit; drop > 0 {
		f.events = append(f.events[:0], f.events[drop:]...)
		f.first += uint64(drop)
	}
	f.wake()
	return f.revision
}

// Revision is that of the latest event.
func (f *Feed) Revision() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// Close ends every reader's wait with an error of code unavailable.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wake()
}

func (f *Feed) wake() {
	close(f.grown)
	f.grown = make(chan struct{})
}

// Check says whether a reader can go on after a revision: an error of code
// gone when the ring no longer holds what follows it.
func (f *Feed) Check(since uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check(since)
}

func (f *Feed) check(since uint64) error {
	if since+1 < f.first {
		return launcher.Gonef("Requested revision %d is no longer available. Oldest available: %d. List the instances and watch from the revision of that answer.", since, f.first-1)
	}
	if since > f.revision {
		return launcher.Gonef("Requested revision %d has not been reached; the latest is %d. List the instances and watch from the revision of that answer.", since, f.revision)
	}
	return nil
}

// Next waits for events after a revision and returns those that there are, in
// order. It ends with an error when ctx ends, when the reader has fallen
// behind the ring (code gone) or when the feed is closed (code unavailable).
func (f *Feed) Next(ctx context.Context, since uint64) ([]launcherapi.WatchEvent, error) {
	for {
		f.mu.Lock()
		if err := f.check(since); err != nil {
			f.mu.Unlock()
			return nil, err
		}
		if since < f.revision {
			batch := append([]launcherapi.WatchEvent(nil), f.events[since+1-f.first:]...)
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
