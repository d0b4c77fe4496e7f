package nodeview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// firstWords is the Why of a launcher that has not answered yet.
const firstWords = "it has not answered yet"

// set is a Set with a channel of its changes.
type set struct {
	*Set
	t       *testing.T
	changes chan struct{}
}

func newSet(t *testing.T, opts Options) *set {
	t.Helper()
	s := &set{t: t, changes: make(chan struct{}, 1)}
	opts.Changed = func(string) {
		select {
		case s.changes <- struct{}{}:
		default: // a change is pending already
		}
	}
	s.Set = New(opts)
	t.Cleanup(s.Close)
	return s
}

// until waits until a launcher's View satisfies so.
func (s *set) until(what, key string, so func(View) bool) View {
	s.t.Helper()
	deadline := time.After(patience.Wait())
	for {
		if v := s.View(key); so(v) {
			return v
		}
		select {
		case <-s.changes:
		case <-time.After(10 * time.Millisecond): // so may also look at the host
		case <-deadline:
			require.FailNow(s.t, what, "%+v", s.View(key))
		}
	}
}

// host is the part of a launcher's control API that a Set calls.
type host struct {
	server *httptest.Server

	mu        sync.Mutex
	revision  uint64
	instances map[string]launcherapi.Instance
	events    []launcherapi.WatchEvent
	news      chan struct{} // closed at the next event, or when streams are to end
	ends      uint64        // number of times that streams were ended
	open      int           // streams
	listed    int
	refusal   int // status of all answers; 0: none
	gone      bool
	silent    bool
	noStreams bool
	tooLong   bool // each stream is one event without end
	models    map[string]launcherapi.Model
	noModels  bool // streams of models end at once
}

const rightToken = "sesame"

func newHost(t *testing.T) *host { return serveHost(t, (*httptest.Server).Start) }

// serveHost returns a host that begin starts.
func serveHost(t *testing.T, begin func(*httptest.Server)) *host {
	t.Helper()
	h := &host{instances: map[string]launcherapi.Instance{}, news: make(chan struct{})}
	h.server = httptest.NewUnstartedServer(h.routes())
	begin(h.server)
	t.Cleanup(func() {
		h.breakOff()
		h.server.CloseClientConnections()
		h.server.Close()
	})
	return h
}

// routes answer as a launcher does.
func (h *host) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/gpus", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, launcherapi.GPUList{GPUs: []launcherapi.GPU{{UUID: "GPU-0"}, {UUID: "GPU-1"}}})
	})
	mux.HandleFunc("GET /v2/vllm/instances", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.list()) })
	mux.HandleFunc("GET /v2/vllm/instances/watch", h.watch)
	mux.HandleFunc("GET /v2/models/watch", h.watchModels)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		refusal := h.refusal
		h.mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer "+rightToken:
			problem(w, http.StatusUnauthorized, launcherapi.CodeUnauthorized, "the token is not the one that this launcher asks for")
		case refusal != 0:
			problem(w, refusal, launcherapi.CodeUnavailable, "not now")
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// watchModels sends the changes of models whenever the host changes.
func (h *host) watchModels(w http.ResponseWriter, r *http.Request) {
	lines := json.NewEncoder(w)
	shown := map[string]launcherapi.Model{}
	for begun := false; ; begun = true {
		h.mu.Lock()
		news, models, ends := h.news, maps.Clone(h.models), h.noModels
		h.mu.Unlock()
		if ends {
			return
		}
		for id, m := range models {
			kind := launcherapi.EventUpdated
			if _, known := shown[id]; !known {
				kind = launcherapi.EventCreated
			}
			_ = lines.Encode(launcherapi.ModelEvent{Type: kind, Object: m}) // the watcher may be gone
		}
		for id, m := range shown {
			if _, there := models[id]; !there {
				_ = lines.Encode(launcherapi.ModelEvent{Type: launcherapi.EventDeleted, Object: m})
			}
		}
		if shown = models; !begun {
			_ = lines.Encode(map[string]any{"type": launcherapi.EventHeartbeat, "object": launcherapi.ModelHeartbeat{TotalModels: len(models)}})
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

func (h *host) target() Target {
	return Target{Address: strings.TrimPrefix(h.server.URL, "http://"), Access: Access{Token: rightToken}}
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // the client may be gone
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(launcherapi.Problem{Status: status, Code: code, Detail: detail}) // the client may be gone
}

func (h *host) list() launcherapi.InstanceList {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listed++
	return launcherapi.InstanceList{Revision: h.revision, Instances: slices.Collect(maps.Values(h.instances))}
}

func (h *host) watch(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	h.mu.Lock()
	gone, noStreams, tooLong := h.gone, h.noStreams, h.tooLong
	h.gone = false
	h.mu.Unlock()
	switch {
	case err != nil:
		problem(w, http.StatusUnprocessableEntity, launcherapi.CodeInvalid, fmt.Sprint(err))
		return
	case gone:
		problem(w, http.StatusGone, launcherapi.CodeGone, "that is too long ago")
		return
	case noStreams:
		problem(w, http.StatusServiceUnavailable, launcherapi.CodeUnavailable, "no more streams")
		return
	}
	if tooLong {
		neverEnding(w)
		return
	}
	h.stream(w, r, since)
}

// neverEnding sends one endless event until the client closes the connection.
func neverEnding(w http.ResponseWriter) {
	_, err := fmt.Fprintf(w, `{"type": %q, "object": {"reason": "`, launcherapi.EventUpdated)
	for letters := bytes.Repeat([]byte("a"), 1<<20); err == nil; {
		_, err = w.Write(letters)
	}
}

// stream sends events and heartbeats until the streams are ended.
func (h *host) stream(w http.ResponseWriter, r *http.Request, since uint64) {
	h.mu.Lock()
	h.open++
	ends := h.ends
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	lines := json.NewEncoder(w)
	for {
		h.mu.Lock()
		news, silent, ended := h.news, h.silent, h.ends != ends
		var fresh []launcherapi.WatchEvent
		for _, e := range h.events {
			if e.Object.Revision > since {
				fresh = append(fresh, e)
			}
		}
		h.mu.Unlock()
		if ended {
			return
		}
		for _, e := range fresh {
			since = e.Object.Revision
			_ = lines.Encode(e) // the watcher may be gone
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond):
			if !silent {
				_ = lines.Encode(map[string]any{"type": launcherapi.EventHeartbeat, "object": launcherapi.Heartbeat{Revision: since}})
			}
		case <-r.Context().Done():
			return
		}
	}
}

// change changes the host and wakes its watchers.
func (h *host) change(how func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	how()
	close(h.news)
	h.news = make(chan struct{})
}

func (h *host) put(id, state string) {
	h.change(func() {
		h.revision++
		i := launcherapi.Instance{InstanceID: id, State: state, Revision: h.revision}
		h.instances[id] = i
		h.events = append(h.events, launcherapi.WatchEvent{Type: launcherapi.EventUpdated, Object: i})
	})
}

func (h *host) remove(id string) {
	h.change(func() {
		h.revision++
		i := h.instances[id]
		i.Revision = h.revision
		delete(h.instances, id)
		h.events = append(h.events, launcherapi.WatchEvent{Type: launcherapi.EventDeleted, Object: i})
	})
}

func (h *host) breakOff()         { h.change(func() { h.ends++ }) }
func (h *host) refuse(status int) { h.change(func() { h.refusal = status }) }
func (h *host) forgetOnce()       { h.change(func() { h.gone = true }) }
func (h *host) fallSilent()       { h.change(func() { h.silent = true }) }
func (h *host) refuseStreams()    { h.change(func() { h.noStreams = true }) }
func (h *host) neverEnd(so bool)  { h.change(func() { h.tooLong = so }) }

func (h *host) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}

func (h *host) streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *host) lists() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listed
}
