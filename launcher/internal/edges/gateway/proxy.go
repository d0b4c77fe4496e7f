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
	"time"
)

// Options say where a proxy listens, which engine it forwards to, and how long
// requests may wait.
type Options struct {
	// Name of the instance, for messages and logs.
	Name string
	// Host is the address to listen on; empty: all of them.
	Host string
	// Port is the public port; 0: any free one.
	Port int
	// Ports are the ports reserved for engines, of which Port must be none; nil:
	// none is reserved.
	Ports *Ports
	// Target is the engine's address, such as 127.0.0.1:41234.
	Target string
	// MaxHeld is how many inference requests may wait while the gate is shut;
	// 0: none.
	MaxHeld int
	// HoldTimeout is how long each held request may wait.
	HoldTimeout time.Duration
	// Verbs answers /sleep, /wake_up and /is_sleeping in the engine's place;
	// nil: these are 404.
	Verbs Verbs
	// SleepTimeout is how long a caller of /sleep waits at most until the instance
	// sleeps.
	SleepTimeout time.Duration
	// Observe is called for each request when it has ended, on that request's
	// goroutine; nil: no call.
	Observe func(Observation)
	// Logger is told of errors of single connections, at debug level.
	Logger *slog.Logger
	// Now is the clock that last use and durations are read from; nil:
	// time.Now.
	Now func() time.Time
}

// PortTakenError says that something else listens on a port, or holds it.
type PortTakenError struct {
	Host string
	Port int
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d on %q is taken", e.Port, e.Host)
}

// Bounds of the public server. An answer may take any time, so the writing of one
// has no bound.
const (
	readHeaderTimeout = 30 * time.Second
	clientIdleTimeout = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// closeGrace is how long the requests of a port that closes may go on. Call Drain
// first to wait longer for them.
const closeGrace = time.Second

// Proxy is an instance's public port. Its methods may be called from any
// goroutine.
//
// As an http.Handler it serves a request as its own port does.
type Proxy struct {
	options  Options
	gate     *gate
	reverse  *httputil.ReverseProxy
	engine   *http.Transport
	listener net.Listener
	host     string // address that the proxy listens on
	server   *http.Server
	clients  *connections
	stop     context.CancelCauseFunc // ends every request's context
	served   chan struct{}           // closed when Serve has returned
	grace    time.Duration           // closeGrace, except in tests
	close    sync.Once
}

// Listen opens the public port, with the gate shut. The error is a *PortTakenError
// for a port that is taken.
func Listen(o Options) (*Proxy, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	listener, err := o.Ports.listen(o.Host, o.Port)
	if err != nil {
		return nil, err
	}
	base, stop := context.WithCancelCause(context.Background())
	p := &Proxy{
		options:  o,
		gate:     newGate(o.MaxHeld, o.Now),
		engine:   newTransport(),
		listener: listener,
		host:     listener.Addr().(*net.TCPAddr).IP.String(),
		clients:  newConnections(),
		stop:     stop,
		served:   make(chan struct{}),
		grace:    closeGrace,
	}
	errorLog := slog.NewLogLogger(o.Logger.With("instance", o.Name).Handler(), slog.LevelDebug)
	p.reverse = p.newReverseProxy(errorLog)
	p.server = &http.Server{
		Handler:                      p,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  clientIdleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnState:                    p.clients.track,
		ConnContext:                  withConn,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     errorLog,
	}
	go p.serve()
	return p, nil
}

// serve runs until the listener is closed.
func (p *Proxy) serve() {
	defer close(p.served)
	if err := p.server.Serve(p.listener); !errors.Is(err, net.ErrClosed) {
		p.options.Logger.Error("the public port broke down", "instance", p.options.Name, "port", p.Port(), "error", err)
	}
}

// Host is the address that the public port listens on.
func (p *Proxy) Host() string { return p.host }

// Port is the public port.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Open lets inference requests through, held ones first.
func (p *Proxy) Open() { p.gate.set(gateOpen, "") }

// Shut holds inference requests from now on; those in flight go on. A client whose
// request could not wait reads the reason.
func (p *Proxy) Shut(reason string) { p.gate.set(gateShut, reason) }

// Fail refuses every request from now on, and those held, with the reason: the
// engine is gone. Those in flight go on until their connection breaks.
func (p *Proxy) Fail(reason string) { p.gate.set(gateFailed, reason) }

// Drain waits until no inference request is in flight; call it after Shut or Fail.
// When ctx ends it cuts the requests in flight (a streamed answer breaks off, a
// client without an answer yet gets a 503), returns their number, and returns when
// all have left, which takes no more than a second longer. The engine is told of a
// cut by the end of its connection, which it may notice a little later. ErrOpen
// when the gate is open or is opened meanwhile.
func (p *Proxy) Drain(ctx context.Context) (cut int, err error) { return p.gate.drain(ctx) }

// InFlight counts the inference requests admitted and not yet ended.
func (p *Proxy) InFlight() int {
	n, _, _ := p.gate.counts()
	return n
}

// Held counts the inference requests that wait for the gate.
func (p *Proxy) Held() int {
	_, n, _ := p.gate.counts()
	return n
}

// LastUsed is when an inference request last was admitted or ended; the zero
// time when there was none.
func (p *Proxy) LastUsed() time.Time {
	_, _, at := p.gate.counts()
	return at
}

// Close gives the port back. Held requests get a 503; those in flight may end
// within closeGrace, or until ctx does, then they are cut, which is an error that
// says how many. It returns when every client's connection is closed, which takes
// no more than two seconds longer whatever clients and verbs do: the port can be
// opened again at once. A second call does nothing.
func (p *Proxy) Close(ctx context.Context) error {
	var err error
	p.close.Do(func() { err = p.shutDown(ctx) })
	return err
}

func (p *Proxy) shutDown(ctx context.Context) error {
	p.gate.set(gateClosed, "the instance is being removed")
	closing := p.listener.Close()
	<-p.served
	p.server.SetKeepAlivesEnabled(false)
	ctx, stop := context.WithTimeout(ctx, p.grace)
	defer stop()
	cut, _ := p.gate.drain(ctx) // a closed gate is never open
	left := p.clients.finish(ctx)
	p.stop(errCut)
	closing = errors.Join(closing, p.server.Close(), p.awaitClients())
	p.engine.CloseIdleConnections()
	if cut > 0 || left > 0 {
		closing = errors.Join(closing, fmt.Errorf("%d inference requests were cut, %d connections broken off", cut, left))
	}
	if closing != nil {
		return fmt.Errorf("cannot close port %d in order: %w", p.Port(), closing)
	}
	return nil
}

// awaitClients waits for the goroutines of the clients' connections, which are
// closed. None of them takes longer than a cut request, except a verb, which may
// wait for something else.
func (p *Proxy) awaitClients() error {
	late := time.NewTimer(cutGrace)
	defer late.Stop()
	select {
	case <-p.clients.gone:
		return nil
	case <-late.C:
		return errors.New("a request goes on though its connection is closed")
	}
}
