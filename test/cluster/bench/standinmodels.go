package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// fetching is what the launchers of all nodes fetch, by the clock: one model after the
// other, each node a little later than the one before.
type fetching struct {
	Models []launcherapi.Model `json:"models"` // as they are once they are there
	Begins time.Time           `json:"begins"`
	Each   time.Duration       `json:"each"`  // how long a model takes
	Nodes  int                 `json:"nodes"` // which begin one after the other while the first fetches its first
}

// over is when the last node has the last model.
func (f *fetching) over() time.Time {
	return f.Begins.Add(time.Duration(len(f.Models)+1) * f.Each)
}

// of are the models of a node: those that are there, and how much of the next.
func (f *fetching) of(node int, now time.Time) map[string]launcherapi.Model {
	since := now.Sub(f.Begins) - f.Each*time.Duration(node)/time.Duration(f.Nodes)
	whole := min(max(int(since/f.Each), 0), len(f.Models))
	all := map[string]launcherapi.Model{}
	for i, m := range f.Models[:min(whole+1, len(f.Models))] {
		published := f.Begins.Add(time.Duration(i+1)*f.Each + time.Duration(node)*time.Millisecond)
		if i == whole {
			m.State = launcherapi.ModelDownloading
			m.FetchedBytes = m.Bytes / 4 * min(max(4*int64(since%f.Each)/int64(f.Each), 0), 3)
			m.PageCache = ""
		} else {
			m.Published, m.LastUsed = &published, &published
			if i%len(f.Models) == node%len(f.Models) { // an engine of the node reads one of them
				m.InUseBy = []string{fmt.Sprintf("instance vllm-%d of launcher %s", node, launcherName(node))}
			}
		}
		all[m.ID] = m
	}
	return all
}

// fetch says what the launchers fetch, and from when on.
func (s *standIn) fetch(w http.ResponseWriter, r *http.Request) {
	var f fetching
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = &f
}

// watchModels streams what the launcher of a node has, four times a second at most, as
// launchers do.
func (s *standIn) watchModels(w http.ResponseWriter, r *http.Request, node int) {
	fetching := func() *fetching {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.models
	}
	heartbeat, err := launcherapi.ParseDuration(r.URL.Query().Get("heartbeat"))
	if fetching() == nil || err != nil || heartbeat <= 0 {
		http.Error(w, "nothing is fetched", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, out := json.NewEncoder(w), http.NewResponseController(w)
	beat := map[string]any{"type": launcherapi.EventHeartbeat, "object": launcherapi.ModelHeartbeat{}}
	shown, look := map[string]launcherapi.Model{}, time.NewTicker(250*time.Millisecond)
	defer look.Stop()
	for begun := false; ; begun = true {
		f, now := fetching(), time.Now()
		all := f.of(node, now)
		for id, m := range all {
			kind, before := launcherapi.EventCreated, shown[id]
			if before.ID != "" {
				kind = launcherapi.EventUpdated
			}
			if before.State == m.State && before.FetchedBytes == m.FetchedBytes {
				continue
			}
			if lines.Encode(launcherapi.ModelEvent{Type: kind, Object: m}) != nil {
				return
			}
		}
		if shown = all; !begun && (lines.Encode(beat) != nil || out.Flush() != nil) {
			return
		}
		if now.After(f.over()) {
			look.Reset(heartbeat.D())
			if lines.Encode(beat) != nil {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-look.C:
		case <-r.Context().Done():
			return
		}
	}
}
