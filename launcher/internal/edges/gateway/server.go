package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/connlimit"
)

// ServerOptions say for whom a Server serves.
type ServerOptions struct {
	// Clients bounds the connections of clients; nil: there is no bound.
	Clients *connlimit.Limit
	// Logger gets the errors of single connections, at debug level.
	Logger *slog.Logger
}

// Server serves clients at an address as the public ports of instances are served: its bounds
// are the same, and behind it a [Proxy] and [Hold] notice that a client hangs up.
type Server struct {
	options       ServerOptions
	listener      net.Listener
	server        *http.Server
	clients       *connections
	stop          context.CancelCauseFunc // ends every request's context
	serveReturned chan struct{}           // closed when Serve has returned
}

// Serve begins to serve a TCP listener, which the Server closes. The caller calls Close.
func Serve(listener net.Listener, handler http.Handler, o ServerOptions) *Server {
	base, stop := context.WithCancelCause(context.Background())
	s := &Server{options: o, listener: listener, clients: newConnections(), stop: stop, serveReturned: make(chan struct{})}
	s.server = &http.Server{
		Handler:                      begun(handler),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  clientIdleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnState:                    s.track,
		ConnContext:                  withConn,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	go s.serve()
	return s
}

// serve runs until the listener is closed.
func (s *Server) serve() {
	defer close(s.serveReturned)
	if err := s.server.Serve(clientListener{s.listener}); !errors.Is(err, net.ErrClosed) {
		s.options.Logger.Error("the public port failed", "address", s.listener.Addr(), "error", err)
	}
}

// track notes the changes of a client's connection.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.clients.track(conn, state)
	s.options.Clients.Track(conn, state)
}

// Addr returns the address that the Server listens at.
func (s *Server) Addr() *net.TCPAddr { return s.listener.Addr().(*net.TCPAddr) }

// stopAccepting closes the listener, and has each connection end with its answer.
func (s *Server) stopAccepting() error {
	err := s.listener.Close()
	<-s.serveReturned
	s.server.SetKeepAlivesEnabled(false)
	return err
}

// end ends what still runs: every request's context, and the connections.
func (s *Server) end() error {
	s.stop(errCut)
	return errors.Join(s.server.Close(), s.awaitClients())
}

// awaitClients waits for the goroutines of the clients' connections, which are
// closed by now. Each ends within cutGrace, unless a verb waits for something else.
func (s *Server) awaitClients() error {
	late := time.NewTimer(cutGrace)
	defer late.Stop()
	select {
	case <-s.clients.allClosed:
		return nil
	case <-late.C:
		return errors.New("a request continues although its connection is closed")
	}
}

// Close accepts no client any more, and waits for the requests that run until ctx ends; then it
// cuts them, and returns how many connections it cut. It returns when every connection is closed.
func (s *Server) Close(ctx context.Context) (cut int, err error) {
	err = s.stopAccepting()
	cut = s.clients.finish(ctx)
	return cut, errors.Join(err, s.end())
}

// begun notes for each request with a body that it has begun.
func begun(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			connOf(r.Context()).beginBody()
		}
		handler.ServeHTTP(w, r)
	})
}

// Hangup returns a channel that is closed when the client of a request hangs up that a [Server]
// has received. A hang-up comes after all of the client's data, so it is not noticed while more
// of the request's body is unread than the socket's buffers hold. The caller calls stop.
func Hangup(r *http.Request) (gone <-chan struct{}, stop func()) {
	gone, stop, err := watchHangup(connOf(r.Context()))
	if err != nil {
		return nil, stop // nobody notices then
	}
	return gone, stop
}
