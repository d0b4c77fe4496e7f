package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/client"
)

// moment is a reading of CLOCK_MONOTONIC, which all processes share.
type moment int64

func now() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has that clock
	}
	return moment(ts.Nano())
}

func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }

// watcher follows a launcher's events as any client does, and notes when each
// instance was first said to be in each state.
type watcher struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	seen    map[[2]string]moment // by id and state
	last    map[string]string    // state by id
	changed chan struct{}        // closed and replaced at each event
	err     error
}

func watch(c *client.Client) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cancel: cancel, ended: make(chan struct{}), seen: map[[2]string]moment{}, last: map[string]string{}, changed: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for event, err := range c.Watch(ctx, nil) {
			w.note(now(), event.Object.InstanceID, event.Object.State, err)
		}
	}()
	return w
}

func (w *watcher) note(at moment, id, state string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = err
	} else {
		if _, known := w.seen[[2]string{id, state}]; !known {
			w.seen[[2]string{id, state}] = at
		}
		w.last[id] = state
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// await returns when it was first heard that an instance is in a state. An
// instance that has failed comes to no other.
func (w *watcher) await(ctx context.Context, id, state string) (moment, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		at, known := w.seen[[2]string{id, state}]
		last, err, changed := w.last[id], w.err, w.changed
		w.mu.Unlock()
		switch {
		case known:
			return at, nil
		case err != nil:
			return 0, err
		case last == "failed":
			return 0, fmt.Errorf("instance %s has failed before it was %s", id, state)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("instance %s is %s and not %s: %w", id, last, state, ctx.Err())
		}
	}
}

func (w *watcher) stop() {
	w.cancel()
	<-w.ended
}
