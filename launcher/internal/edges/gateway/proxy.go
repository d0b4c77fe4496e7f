package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/connlimit"
)

// Options say where a proxy listens, which engine it forwards to, and how long
// requests may wait.
type Options struct {
	// Name is the instance's name, for messages and logs.
	Name string
	// Host is the address to listen on; empty: all addresses.
	Host string
	// Port is the public port; 0: any free one.
	Port int
	// Ports are the ports reserved for engines, which Listen refuses; nil: no port is
	// reserved.
	Ports *Ports
	// Clients bounds the connections of clients; nil: there is no bound.
	Clients *connlimit.Limit
	// Target is the engine's address: the path of a Unix socket, or such as
	// 127.0.0.1:41234.
	Target string
	// KeepAlive is how long the engine keeps an idle connection open; negative: it closes
	// each after its answer; 0: as long as vLLM does by default.
	KeepAlive time.Duration
	// Paths are those of the engine that clients may call.
	Paths engine.Paths
	// MaxHeld is how many inference requests may wait while the gate is shut;
	// 0: none.
	MaxHeld int
	// HoldTimeout is how long each held request may wait.
	HoldTimeout time.Duration
	// Verbs answers /sleep, /wake_up and /is_sleeping instead of the engine; nil:
	// these paths are 404.
	Verbs Verbs
	// SleepTimeout is how long a call of /sleep waits at most for the instance to
	// sleep.
	SleepTimeout time.Duration
	// Quiet is how long requests may be in flight while nothing comes back from the engine,
	// before OnQuiet is called. It is called again after each further such time. 0: never.
	Quiet   time.Duration
	OnQuiet func()
	// OnRefused is called when nothing listens at the engine's address; nil: no call.
	OnRefused func()
	// Observe is called at the end of each request, on that request's goroutine; nil:
	// no call.
	Observe func(Observation)
	// Logger gets the errors of single connections, at debug level.
	Logger *slog.Logger
	// Now is the clock for last use and durations; nil: time.Now.
	Now func() time.Time
}

// PortTakenError says that another process listens on a port, or that the port is
// reserved.
type PortTakenError struct {
	Host string
	Port int
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d on %q is taken", e.Port, e.Host)
}

// Bounds of the public server. An answer may take any time, so there is no bound for
// writing it.
const (
	readHeaderTimeout = 30 * time.Second
	clientIdleTimeout = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// closeGrace is how long Close waits for the requests in flight. Call Drain first to
// wait longer.
const closeGrace = time.Second

// Proxy is an instance's public port. Its methods may be called from any
// goroutine.
//
// A Proxy is also an http.Handler, which serves a request as the public port does. Behind another
// server it knows no client's connection. It then bounds no request's body, and reads no body
// while a request is held.
type Proxy struct {
	options     Options
	paths       *Filter
	gate        *gate
	reverse     *httputil.ReverseProxy
	engine      *http.Transport
	server      *Server
	host        string                  // address that the proxy listens on
	allowed     atomic.Pointer[allowed] // nil: the engine has allowed nothing yet
	grace       time.Duration           // closeGrace, except in tests
	uploadGrace time.Duration           // uploadGrace, except in tests
	closeOnce   sync.Once
}

// Listen opens the public port, with the gate shut. The error is a *PortTakenError
// when the port is taken.
func Listen(o Options) (*Proxy, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	listener, err := o.Ports.listen(o.Host, o.Port)
	if err != nil {
		return nil, err
	}
	logger := o.Logger.With("instance", o.Name)
	p := &Proxy{
		options:     o,
		paths:       NewFilter(o.Paths),
		gate:        newGate(o.MaxHeld, o.Now),
		engine:      newTransport(o.Target, o.KeepAlive),
		host:        listener.Addr().(*net.TCPAddr).IP.String(),
		grace:       closeGrace,
		uploadGrace: uploadGrace,
	}
	p.gate.quiet = newQuietWatch(o.Quiet, o.OnQuiet)
	p.reverse = p.newReverseProxy(slog.NewLogLogger(logger.Handler(), slog.LevelDebug))
	p.server = Serve(listener, p, ServerOptions{Clients: o.Clients, Logger: logger})
	return p, nil
}

// Host returns the address that the public port listens on.
func (p *Proxy) Host() string { return p.host }

// Port returns the public port.
func (p *Proxy) Port() int { return p.server.Addr().Port }

// Open lets inference requests through, held ones first.
func (p *Proxy) Open() { p.gate.set(gateOpen, "") }

// Shut holds inference requests from now on. Requests in flight continue. A client
// whose request cannot be held, or is held too long, is sent the reason.
func (p *Proxy) Shut(reason string) { p.gate.set(gateShut, reason) }

// Fail refuses held requests and all later ones, and sends them the reason. Call it
// when the engine is gone. Requests in flight continue until their connection to the
// engine breaks.
func (p *Proxy) Fail(reason string) { p.gate.set(gateFailed, reason) }

// Drain waits until no inference request is in flight. Call it after Shut or Fail.
//
// When ctx ends, Drain cuts the requests in flight: a streamed answer breaks off, and
// a client without an answer gets a 503. Drain then waits until all of them have
// left, at most a second longer, and returns how many it cut. The engine notices a
// cut when its connection closes, perhaps a little later.
//
// The error is ErrOpen when the gate is open, or is opened while Drain waits.
func (p *Proxy) Drain(ctx context.Context) (cut int, err error) { return p.gate.drain(ctx) }

// InFlight returns how many inference requests are admitted and have not ended.
func (p *Proxy) InFlight() int {
	n, _, _ := p.gate.counts()
	return n
}

// Held returns how many inference requests wait at the gate.
func (p *Proxy) Held() int {
	_, n, _ := p.gate.counts()
	return n
}

// LastUsed returns when an inference request was last admitted or ended. It is the
// zero time when there was no request.
func (p *Proxy) LastUsed() time.Time {
	_, _, at := p.gate.counts()
	return at
}

// Close closes the public port. Held requests get a 503 with the reason that the gate has. Requests in flight may
// continue for closeGrace, or until ctx ends. Then Close cuts them, and returns an
// error that says how many it cut.
//
// Close returns when every client's connection is closed, so that the port can be
// opened again at once. This takes at most two seconds longer, whatever clients and
// verbs do. A second call does nothing.
func (p *Proxy) Close(ctx context.Context) error {
	var err error
	p.closeOnce.Do(func() { err = p.shutDown(ctx) })
	return err
}

// closingReason says that the port is being closed, and why requests were not served before.
func (p *Proxy) closingReason() string {
	const closing = "the public port is being closed"
	if reason, _ := p.gate.currentReason(); reason != "" {
		return closing + ": " + reason
	}
	return closing
}

func (p *Proxy) shutDown(ctx context.Context) error {
	p.gate.set(gateClosed, p.closingReason())
	closing := p.server.stopAccepting()
	ctx, stop := context.WithTimeout(ctx, p.grace)
	defer stop()
	cut, _ := p.gate.drain(ctx) // the gate is closed, so the error cannot be ErrOpen
	left := p.server.clients.finish(ctx)
	closing = errors.Join(closing, p.server.end())
	p.engine.CloseIdleConnections()
	if cut > 0 || left > 0 {
		closing = errors.Join(closing, fmt.Errorf("cut %d inference requests and closed %d connections", cut, left))
	}
	if closing != nil {
		return fmt.Errorf("cannot close port %d in order: %w", p.Port(), closing)
	}
	return nil
}
