package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Limits of the server. They cannot be configured, so that clients can rely on
// them.
const (
	// MaxBodyBytes is the size of a body that is refused with 413; smaller ones
	// are read.
	MaxBodyBytes = 10 << 20
	// maxHeaderBytes bounds the request line and the headers together.
	maxHeaderBytes = 64 << 10

	readHeaderTimeout = 10 * time.Second
	readBodyTimeout   = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	stallTimeout      = time.Minute
	closingTimeout    = time.Second // of one write, once the server shuts down
)

// Options of a Server. Everything is required unless it says otherwise.
type Options struct {
	Instances Instances
	Swaps     Swaps
	// PortLeases keeps ports for instances that are yet to be created.
	PortLeases PortLeases
	Events     Events
	Logs       Logs
	Models     Models // nil: the launcher has no model store
	// CompileCaches is nil where the launcher keeps nothing of what engines compile.
	CompileCaches CompileCaches
	FrontDoor     FrontDoor // nil: the launcher has none
	// Preloaders lists the preloaders.
	Preloaders func() launcherapi.PreloaderList
	// Ready says whether the launcher takes calls, for GET /readyz.
	Ready func() launcherapi.Ready
	// StalledSince says since when the disk of the state folder does not answer, for GET
	// /health; zero: it answers.
	StalledSince func() time.Time
	// Metrics answers GET /metrics in the Prometheus text format.
	Metrics http.Handler
	// Version of the program, for GET / and the Server header.
	Version string
	// Access decides who may call. Nil: everybody who reaches the port.
	Access Access
	// PublicMetrics lets GET /metrics through without a token.
	PublicMetrics bool
	// Connections bounds the connections of clients; nil: there is no bound.
	Connections *connlimit.Limit
	// MaxStreams is how many streams may be open: watches, and logs and swaps that are followed.
	// Further ones are refused with 429. 0: any number.
	MaxStreams int
	// StallTimeout is how long one write may wait for a client that reads nothing,
	// before the connection is cut. 0: a minute.
	StallTimeout time.Duration
	// BodyTimeout is how long a request with its body may take to come. It also bounds what
	// the server reads of a body that nobody has read, before and after the answer. An import of
	// compiled code may take longer: BodyTimeout bounds each read of its body. 0: 30 s.
	BodyTimeout time.Duration
	// Observe is told of every answer when it is over: the route's pattern
	// ("unmatched" for a path without a route), the method ("other" for one that
	// HTTP does not know), the status and how long the answer took, which for a
	// stream is as long as somebody listened. None of these can be invented by a
	// client. Observe must not block, and may be nil.
	Observe func(route, method string, status int, took time.Duration)
	Logger  *slog.Logger
}

// Server serves the control API. It is an http.Handler, and with Serve and
// Shutdown a server of its own.
type Server struct {
	opts    Options
	log     *slog.Logger
	handler http.Handler
	http    *http.Server
	listing listing

	documents func() (documents, error) // made at the first request for one

	openStreams atomic.Int64 // watches, and logs and swaps that are followed

	streams    context.Context         //nolint:containedctx // ends when the server begins to shut down
	endStreams context.CancelCauseFunc // ends the streams
	endCalls   context.CancelCauseFunc // ends every other call
}

var errClosing = launcher.Unavailablef("the launcher is closing")

// New makes a server that does not listen yet.
func New(opts Options) *Server { return newServer(opts, security(opts)) }

// newServer makes a server whose document says that this security is asked for.
func newServer(opts Options, security []map[string][]string) *Server {
	if opts.StallTimeout == 0 {
		opts.StallTimeout = stallTimeout
	}
	if opts.BodyTimeout == 0 {
		opts.BodyTimeout = readBodyTimeout
	}
	s := &Server{opts: opts, log: opts.Logger}
	s.streams, s.endStreams = context.WithCancelCause(context.Background())
	calls, endCalls := context.WithCancelCause(context.Background())
	s.endCalls = endCalls

	mux := chi.NewMux()
	mux.Use(s.observe, s.recoverPanics, refuseOtherSites, s.refuseOtherNames, s.authorize, s.answerOptions, headAsGet, s.readBody)
	mux.NotFound(s.notFound)
	mux.MethodNotAllowed(s.methodNotAllowed)
	operations := humachi.New(mux, config())
	register(s, operations, security)
	s.documents = sync.OnceValues(func() (documents, error) { return render(operations.OpenAPI()) })
	s.mountDocuments(mux)

	s.handler = mux
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       opts.BodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return calls },
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	opts.Connections.Watch(s.http)
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers the requests at the listener until Shutdown, and closes the
// listener. It may be called for several listeners. The error is nil after a
// Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the control API at %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops listening, ends the watch and log streams at once, and waits for
// the other calls until ctx ends. Calls that are left then are cancelled and get a
// 503 where they can; the error says so. No goroutine or connection of the server
// is left when Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endStreams(errClosing)
	err := s.http.Shutdown(ctx)
	s.endCalls(errClosing)
	if err == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.http.Shutdown(last) == nil {
		return fmt.Errorf("cannot wait for all calls: %w", err)
	}
	return fmt.Errorf("cannot wait for all calls: %w", errors.Join(err, s.http.Close()))
}
