// Package podresources tells the controller which devices the kubelet of a node
// has given to which Pods: it asks the kubelet's PodResources API, on the socket
// that is open on the node alone, and answers as package podresourcesapi says.
package podresources

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// Options configure a [Server].
type Options struct {
	Listen string // address and port
	Socket string // of the kubelet's PodResources API
	// TLS is how the program serves. Its ClientCAFile has the authorities whose clients are
	// answered.
	TLS mtls.Server
	// Connections is how many connections may be open; 0: what the descriptors allow.
	Connections int
	// BodyTimeout bounds how long a request with its body may take to come, and how long the
	// server reads on a body that it does not use; 0: ten seconds.
	BodyTimeout time.Duration
	// IdleTimeout is how long a connection may be open without a request; 0: two minutes.
	IdleTimeout time.Duration
	Logger      *slog.Logger
}

// Server answers the controller.
type Server struct {
	opts     Options
	listener net.Listener
	kubelet  *lister
	http     *http.Server
}

const (
	// askLimit bounds a question to the kubelet, which answers in milliseconds.
	askLimit = 2 * time.Second
	// bodyTimeout is for a body, which no call has.
	bodyTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	// closingTime is for requests that are under way at the end.
	closingTime = 3 * time.Second
)

// reconnect is how soon a kubelet that was away is tried again.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: askLimit,
}

// New listens; Run serves.
func New(ctx context.Context, opts Options) (*Server, error) {
	s := &Server{opts: opts}
	if opts.TLS.CertFile == "" || opts.TLS.ClientCAFile == "" {
		return nil, errors.New("clients cannot be authenticated: give --tls-cert, --tls-key and --client-ca")
	}
	secured, err := opts.TLS.Config()
	if err != nil {
		return nil, err
	}
	if s.kubelet, err = newLister(opts.Socket); err != nil {
		return nil, err
	}
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", opts.Listen); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen: %w", err), s.kubelet.close())
	}
	s.listener = tls.NewListener(s.listener, secured)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+podresourcesapi.Path, s.pods)
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: cmp.Or(opts.BodyTimeout, bodyTimeout), IdleTimeout: cmp.Or(opts.IdleTimeout, idleTimeout), MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	connlimit.New(cmp.Or(opts.Connections, connlimit.Share(4))).Watch(s.http)
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, and gives back what New took.
func (s *Server) Run(ctx context.Context) error {
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTime)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			closed <- s.http.Close()
			return
		}
		closed <- nil
	})
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if !stop() {
		err = errors.Join(err, <-closed)
	}
	return errors.Join(err, s.kubelet.close())
}

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	if !mtls.Shown(r) {
		s.refuse(w, http.StatusForbidden, mtls.ErrNotShown)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askLimit)
	defer cancel()
	pods, err := s.kubelet.list(ctx)
	if err != nil {
		s.refuse(w, http.StatusBadGateway, fmt.Errorf("cannot ask the kubelet at %s which devices Pods have: %w", s.opts.Socket, err))
		return
	}
	text, err := json.Marshal(pods)
	if err == nil && len(text) > podresourcesapi.MaxAnswer {
		err = fmt.Errorf("the answer has %d bytes, and at most %d can be sent", len(text), podresourcesapi.MaxAnswer)
	}
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client is gone when this fails
}

func (s *Server) refuse(w http.ResponseWriter, status int, err error) {
	s.opts.Logger.Warn("refused a request", "status", status, "error", err)
	w.Header().Set("Content-Type", podresourcesapi.ProblemContentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(podresourcesapi.Problem{Title: http.StatusText(status), Status: status, Detail: err.Error()})
}
