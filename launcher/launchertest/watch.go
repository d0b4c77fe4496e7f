package launchertest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// watch streams the events after a revision.
func (l *Launcher) watch(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	if err == nil {
		_, _, err = l.after(since)
	}
	if err != nil {
		answer(func(*http.Request) (any, error) { return nil, err })(w, r)
		return
	}
	heartbeat, err := launcherapi.ParseDuration(r.URL.Query().Get("heartbeat"))
	if err != nil || heartbeat <= 0 {
		heartbeat = launcherapi.Duration(time.Hour)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	lines := json.NewEncoder(w)
	for {
		if out.Flush() != nil {
			return // the reader has left
		}
		events, more, err := l.after(since)
		if err != nil {
			return // the reader is told when it comes again
		}
		for _, e := range events {
			if lines.Encode(e) != nil {
				return
			}
			since = e.Object.Revision
		}
		if len(events) > 0 {
			continue
		}
		if !wait(r.Context(), more, heartbeat.D()) {
			if r.Context().Err() != nil {
				return
			}
			beat := map[string]any{"type": launcherapi.EventHeartbeat, "object": launcherapi.Heartbeat{Revision: since}}
			if lines.Encode(beat) != nil {
				return
			}
		}
	}
}

// wait says whether more was closed before the time was over or ctx ended.
func wait(ctx context.Context, more <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-more:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// after gives the events after a revision, and a channel that is closed when there
// are more.
func (l *Launcher) after(since uint64) ([]launcherapi.WatchEvent, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.revision - uint64(len(l.events))
	if since < oldest || since > l.revision {
		return nil, nil, launcher.Gonef("revision %d is not kept: list, and watch from there", since)
	}
	return l.events[since-oldest:], l.more, nil
}
