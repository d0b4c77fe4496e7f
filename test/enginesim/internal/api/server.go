// Package api is the engine's HTTP surface, as vLLM 0.30 serves it for a model
// that generates text.
package api

import (
	"net/http"
	"strings"
	"sync/atomic"

	"hotseat.dev/hotseat/test/enginesim/internal/engine"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/vlog"
)

// Options set a Server up.
type Options struct {
	Engine      *engine.Engine
	Log         *vlog.Logger
	Names       []string // served names, the first is the model's own
	Root        string   // the model as named on the command line
	MaxModelLen int
	MaxLogprobs int      // --max-logprobs
	Pooling     bool     // --runner pooling: the model embeds, and generates nothing
	Seed        int64    // of requests that bring none
	Replicas    int      // data-parallel engines, as the metrics count them
	Workers     int      // below all of them together
	WorkerClass string   // vLLM's name for them
	RootPath    string   // --root-path
	APIKeys     []string // none: open
	DevMode     bool     // VLLM_SERVER_DEV_MODE
	TrackLoad   bool     // --enable-server-load-tracking
	AccessLog   bool
	Version     string
	Settings    simopts.Settings
	// Crash is called when a fault ends the API server.
	Crash func(simopts.Crash)
}

// Server answers requests.
type Server struct {
	opts   Options
	table  []route
	routes map[string]map[string]route // by path and method
	faults faults
	counts counts
	load   atomic.Int64 // requests for answers now open
}

// route is one line of the table. Its methods are those that vLLM's log shows.
type route struct {
	methods []string
	path    string
	handle  http.HandlerFunc
}

// New makes the server.
func New(opts Options) *Server {
	s := &Server{opts: opts, routes: map[string]map[string]route{}}
	s.faults.settings = opts.Settings
	s.table = s.always()
	if opts.Pooling {
		s.table = s.pooling()
	}
	if opts.DevMode {
		s.table = append(s.table, s.developer()...)
	}
	for _, r := range s.table {
		if s.routes[r.path] == nil {
			s.routes[r.path] = map[string]route{}
		}
		for _, m := range r.methods {
			s.routes[r.path][m] = r
		}
	}
	return s
}

var (
	get  = []string{http.MethodGet}
	post = []string{http.MethodPost}
	page = []string{http.MethodGet, http.MethodHead}
)

// common are the routes of every kind of model.
func (s *Server) common() []route {
	return []route{
		{page, "/openapi.json", s.openapi},
		{page, "/docs", s.docs},
		{get, "/load", s.serverLoad},
		{get, "/version", s.version},
		{get, "/health", s.health},
		{get, "/metrics", s.metrics},
		{post, "/tokenize", s.tokenize},
		{post, "/detokenize", s.detokenize},
		{get, "/v1/models", s.models},
		{get, "/ping", s.health},
		{post, "/ping", s.health},
	}
}

// pooling are the routes for a model that embeds, as far as the stand-in has them.
func (s *Server) pooling() []route {
	return append(s.common(), route{post, "/v1/embeddings", s.tracked(s.embeddings)})
}

func (s *Server) always() []route {
	return append(s.common(), []route{
		{post, "/invocations", s.tracked(s.invocations)},
		{post, "/v1/chat/completions", s.tracked(s.chat)},
		{post, "/v1/responses", s.tracked(s.responses)},
		{post, "/v1/completions", s.tracked(s.completions)},
		{post, "/v1/messages", s.tracked(s.messages)},
		{post, "/v1/messages/count_tokens", s.countTokens},
	}...)
}

func (s *Server) developer() []route {
	return []route{
		{post, "/reset_prefix_cache", s.resetPrefixCache},
		{post, "/reset_mm_cache", s.empty},
		{post, "/reset_encoder_cache", s.empty},
		{post, "/pause", s.pause},
		{post, "/resume", s.resume},
		{get, "/is_paused", s.isPaused},
		{get, "/get_world_size", s.worldSize},
		{post, "/collective_rpc", s.collectiveRPC},
		{get, "/server_info", s.serverInfo},
		{post, "/sleep", s.sleep},
		{post, "/wake_up", s.wakeUp},
		{get, "/is_sleeping", s.isSleeping},
	}
}

// Routes lists what is served, in the words of vLLM's log.
func (s *Server) Routes() []string {
	var lines []string
	for _, r := range s.table {
		lines = append(lines, "Route: "+r.path+", Methods: "+strings.Join(r.methods, ", "))
	}
	return lines
}

// tracked counts the requests that are open.
func (s *Server) tracked(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.load.Add(1)
		defer s.load.Add(-1)
		handle(w, r)
	}
}
