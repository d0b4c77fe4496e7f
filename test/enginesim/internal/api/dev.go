package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// faults counts down what is to go wrong.
type faults struct {
	mu       sync.Mutex
	settings simopts.Settings
}

func (f *faults) take(t *simopts.Times) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.Take()
}

func (s *Server) sleep(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	level, mode := "1", "abort"
	if q.Has("level") {
		level = q.Get("level")
	}
	if q.Has("mode") {
		mode = q.Get("mode")
	}
	n, err := strconv.Atoi(strings.TrimSpace(level))
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequestError", "", "invalid literal for int() with base 10: '%s'", level)
		return
	}
	f := &s.faults.settings
	s.verb(w, r, verb{"sleep", f.CrashAtSleep, &f.HangAtSleep, &f.FailSleep, func(ctx context.Context) error {
		return s.opts.Engine.Sleep(ctx, n, mode)
	}})
}

func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) {
	tags := r.URL.Query()["tags"]
	s.opts.Log.Info("api_router.py:36", "wake up the engine with tags: %s", pythonList(tags))
	f := &s.faults.settings
	if s.faults.take(&f.FailWakeInPart) {
		if err := s.opts.Engine.WakeUp(context.WithoutCancel(r.Context()), []string{"weights"}); err != nil {
			s.broken(w, "wake_up", err)
			return
		}
		s.failSimulated(w, "wake_up")
		return
	}
	s.verb(w, r, verb{"wake_up", f.CrashAtWake, &f.HangAtWake, &f.FailWake, func(ctx context.Context) error {
		return s.woken(s.opts.Engine.WakeUp(ctx, tags))
	}})
}

// woken spoils an engine whose last part has woken, if a fault is due.
func (s *Server) woken(err error) error {
	if err != nil || s.opts.Engine.State().Sleeping {
		return err
	}
	f := &s.faults.settings
	if s.faults.take(&f.GarbledAfterWake) {
		s.opts.Engine.Spoil(false)
	}
	if s.faults.take(&f.MuteAfterWake) {
		s.opts.Engine.Spoil(true)
	}
	return nil
}

func pythonList(items []string) string {
	if items == nil {
		return "None"
	}
	return "['" + strings.Join(items, "', '") + "']"
}

// verb is a sleep or a wake, and what is to go wrong with it.
type verb struct {
	name         string
	crash        simopts.Crash
	hang, broken *simopts.Times
	do           func(context.Context) error
}

// verb does v, unless a fault comes first. It goes on when the client leaves,
// as the engine's calls do.
func (s *Server) verb(w http.ResponseWriter, r *http.Request, v verb) {
	if v.crash.Due("api", s.opts.Settings.OnceFile) {
		s.opts.Crash(v.crash)
	}
	if s.hangsOrFails(w, r, v.name, v.hang, v.broken) {
		return
	}
	if err := v.do(context.WithoutCancel(r.Context())); err != nil {
		s.broken(w, v.name, err)
		return
	}
	s.empty(w, r)
}

// hangsOrFails says whether a call was to hang or to fail, and has.
func (s *Server) hangsOrFails(w http.ResponseWriter, r *http.Request, call string, hang, broken *simopts.Times) bool {
	switch {
	case s.faults.take(hang):
		<-r.Context().Done()
	case s.faults.take(broken):
		s.failSimulated(w, call)
	default:
		return false
	}
	return true
}

func (s *Server) failSimulated(w http.ResponseWriter, call string) {
	fail(w, http.StatusInternalServerError, "InternalServerError", "", "Call to %s method failed: simulated failure", call)
}

func (s *Server) isSleeping(w http.ResponseWriter, _ *http.Request) {
	if err := s.opts.Engine.Reach(); err != nil {
		s.broken(w, "", err)
		return
	}
	reply(w, http.StatusOK, map[string]bool{"is_sleeping": s.opts.Engine.State().Sleeping})
}

func (s *Server) isPaused(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"is_paused": s.opts.Engine.State().Paused})
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	mode := "abort"
	if q := r.URL.Query(); q.Has("mode") {
		mode = q.Get("mode")
	}
	if err := s.opts.Engine.Pause(context.WithoutCancel(r.Context()), mode); err != nil {
		s.broken(w, "pause_scheduler", err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"status": "paused"})
}

func (s *Server) resume(w http.ResponseWriter, _ *http.Request) {
	s.opts.Engine.Resume()
	reply(w, http.StatusOK, map[string]string{"status": "resumed"})
}

func (s *Server) resetPrefixCache(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"success": true})
}

func (s *Server) worldSize(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]int{"world_size": s.opts.Workers})
}

// collectiveRPC knows the one method that waking from level 2 needs.
func (s *Server) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	var body struct {
		Method *string `json:"method"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		message, at := pythonJSON(data, err)
		fail(w, http.StatusBadRequest, "Bad Request", "", "JSON decode error: %s: %s", message, pythonPlace(data, at))
		return
	}
	if body.Method == nil {
		fail(w, http.StatusBadRequest, "Bad Request", "", "Missing 'method' in request body")
		return
	}
	err = vllmerr.New("Worker failed with error ''%s' object has no attribute '%s'', please check the stack trace above for the root cause", s.opts.WorkerClass, *body.Method)
	if *body.Method == "reload_weights" {
		if s.hangsOrFails(w, r, "collective_rpc", &s.faults.settings.HangAtReload, &s.faults.settings.FailReload) {
			return
		}
		err = s.opts.Engine.Reload()
	}
	if err != nil {
		s.broken(w, "collective_rpc", err)
		return
	}
	reply(w, http.StatusOK, map[string][]any{"results": make([]any, s.opts.Workers)})
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"vllm_config": fmt.Sprintf("model='%s', max_seq_len=%d", s.opts.Root, s.opts.MaxModelLen),
		"vllm_env":    map[string]any{"VLLM_SERVER_DEV_MODE": s.opts.DevMode},
		"system_env":  map[string]any{"vllm_version": s.opts.Version},
	})
}
