// Frontdoor is the address of all Models of a cluster. It holds requests while no Pod serves their Model, and
// tells the controller how many there are.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/door"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/scaler"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/watch"
	"hotseat.dev/hotseat/dualpods/internal/tracing"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/demandapi"
	"hotseat.dev/hotseat/spec/mtls"
)

// gcPercent trades time, of which the program needs little, for memory.
const gcPercent = 50

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	s, err := parse(args)
	switch {
	case errors.Is(err, errHelp):
		_, _ = io.WriteString(stdout, s.help)
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "frontdoor: %v\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	f, err := open(s, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: s.level})))
	if err == nil {
		err = f.serve(ctx)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "frontdoor: %v\n", err)
		return exitFailed
	}
	return 0
}

// frontDoor is the program.
type frontDoor struct {
	settings

	log      *slog.Logger
	door     *door.Door
	own      *demand.Own
	metrics  *metrics.Metrics
	tokens   *access.Tokens
	listener *demand.Listener
	watch    *watch.Watch
	scaler   *scaler.Scaler

	clients, counts, probes net.Listener
	forKEDA                 net.Listener // nil: KEDA is not served
	toPods, toPeers         *http.Transport
	traces                  *tracing.Tracing
}

// Bounds of connections.
const (
	headerTime  = 10 * time.Second // for the header of a request
	idleTime    = 2 * time.Minute
	mostHeader  = 64 << 10
	idleForeach = 256 // idle connections to a Pod
	// idleToPod is less than the five seconds after which uvicorn and llama-server close what is idle: a request
	// would be lost that is sent at that moment.
	idleToPod  = 4 * time.Second
	signEvery  = 5 * time.Second
	mostOthers = 256 // connections of the kubelet, Prometheus, the controllers and the other front doors, each
)

// open opens the addresses. On error nothing stays open.
func open(s settings, log *slog.Logger) (_ *frontDoor, err error) {
	config, err := apiServer(s.kubeconfig)
	if err != nil {
		return nil, err
	}
	f := &frontDoor{settings: s, log: log, own: demand.NewOwn(), tokens: access.New(s.namespace, s.requireTokens)}
	if f.traces, err = tracing.Open(context.Background(), os.Getenv, "hotseat-frontdoor"); err != nil {
		return nil, err
	}
	f.metrics = metrics.New(f.own)
	f.toPods = &http.Transport{MaxIdleConnsPerHost: idleForeach, IdleConnTimeout: idleToPod, DisableCompression: true, DialContext: (&net.Dialer{Timeout: s.dialTimeout, KeepAlive: idleTime}).DialContext}
	f.toPeers = demand.Transport(func(context.Context) (*tls.Config, error) { return f.peers().Call() })
	f.listener = demand.NewListener(demand.Options{Client: &http.Client{Transport: f.toPeers}, Logger: log, Changed: func(models []types.NamespacedName) { f.scaler.Changed(models) }})
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	d, directory := door.New(door.Options{Own: f.own, Peers: f.listener, Namespace: s.namespaceOf, Access: f.tokens, Transport: f.toPods, SignEvery: signEvery, Observer: f.metrics, Tracer: f.traces.Tracer("hotseat.dev/hotseat/dualpods/frontdoor"), Logger: log})
	f.door = d
	forKEDA, err := s.kedaTLS()
	if err != nil {
		return nil, err
	}
	f.scaler = scaler.New(scaler.Options{Directory: directory, Own: f.own, Peers: f.listener, TLS: forKEDA})
	if f.watch, err = watch.New(watch.Options{
		Config: config, Namespace: s.watchNamespace, Own: s.ownNamespace, Directory: directory, Peers: &demand.Pods{Listener: f.listener, Own: types.UID(s.podUID), Plain: s.demandTLS == ""},
		Tokens: f.tokens,
	}); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		to      *net.Listener
		address string
	}{{&f.clients, s.listen}, {&f.counts, s.demandListen}, {&f.probes, s.probesListen}, {&f.forKEDA, s.scalerListen}} {
		if l.address == "" {
			continue
		}
		if *l.to, err = net.Listen("tcp", l.address); err != nil { //nolint:noctx // a bind does not wait
			return nil, fmt.Errorf("cannot listen: %w", err)
		}
	}
	if s.tlsCert != "" {
		if err := secure(&f.clients, mtls.Server{CertFile: s.tlsCert, KeyFile: s.tlsKey}); err != nil {
			return nil, err
		}
	}
	if s.demandTLS != "" {
		if err := secure(&f.counts, s.peers()); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// secure has a listener speak TLS.
func secure(l *net.Listener, by mtls.Server) error {
	config, err := by.Config()
	if err == nil {
		*l = tls.NewListener(*l, config)
	}
	return err
}

// kedaTLS returns the TLS by which the front door authenticates KEDA; nil: KEDA speaks without TLS.
func (s *settings) kedaTLS() (*tls.Config, error) {
	if s.scalerTLS == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	in := func(name string) string { return filepath.Join(s.scalerTLS, name) }
	return mtls.Server{CertFile: in(mtls.CertFile), KeyFile: in(mtls.KeyFile), ClientCAFile: in(mtls.CAFile), RequireClient: true}.Config()
}

// peers returns the TLS by which front doors authenticate the controller and each other.
func (s *settings) peers() mtls.Server {
	in := func(name string) string { return filepath.Join(s.demandTLS, name) }
	return mtls.Server{CertFile: in(mtls.CertFile), KeyFile: in(mtls.KeyFile), ClientCAFile: in(mtls.CAFile), Peer: mtls.FrontDoorName(s.ownNamespace)}
}

// apiServer returns where the API server is: as a kubeconfig says, or else as every Pod knows.
func apiServer(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("cannot use --kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w; outside of a Pod, give --kubeconfig", err)
	}
	return config, nil
}

// close gives back what open has opened.
func (f *frontDoor) close() {
	for _, l := range []net.Listener{f.clients, f.counts, f.probes, f.forKEDA} {
		if l != nil {
			_ = l.Close() // which a server may have done
		}
	}
	f.listener.Close()
	f.toPods.CloseIdleConnections()
	f.toPeers.CloseIdleConnections()
	if err := f.traces.Close(); err != nil {
		f.log.Warn("the last traces were not sent", "error", err)
	}
}

// serve serves until ctx ends. Then it goes on for the shutdown delay, since clients are still led here, and then
// until the requests that it has are answered, at most for the grace.
func (f *frontDoor) serve(ctx context.Context) error {
	defer f.close()
	life, end := context.WithCancel(context.Background())
	defer end()
	watched, failed := make(chan struct{}), make(chan error, 4)
	go func() { defer close(watched); f.watch.Run(life) }()
	defer func() { end(); <-watched }()

	ready := &readiness{metrics: f.metrics.Handler()}
	clients := &http.Server{Handler: f.door, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug)}
	connlimit.New(f.connections).Watch(clients)
	counts := &http.Server{Handler: f.demandHandler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader, BaseContext: func(net.Listener) context.Context { return life }}
	probes := &http.Server{Handler: ready, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader}
	connlimit.New(mostOthers).Watch(counts)
	connlimit.New(mostOthers).Watch(probes)
	var servers sync.WaitGroup
	defer servers.Wait()
	serve := func(s *http.Server, l net.Listener) {
		servers.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	serve(probes, f.probes)
	serve(counts, f.counts)
	defer func() { _ = errors.Join(probes.Close(), counts.Close()) }() // they carry nothing that counts
	if err := f.watch.Filled(ctx); err != nil {
		return nil // it was told to end before
	}
	debug.FreeOSMemory()                   // a list of all Pods takes more than what is kept of them
	defer func() { _ = clients.Close() }() // its listener is closed then
	serve(clients, f.clients)
	defer f.serveKEDA(life, &servers, failed)()
	ready.set(true)
	f.log.Info("the front door is open", "address", f.clients.Addr().String())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return f.end(clients, ready, failed)
}

// serveKEDA serves KEDA, if it may ask, until the returned function is called.
func (f *frontDoor) serveKEDA(life context.Context, servers *sync.WaitGroup, failed chan<- error) (end func()) {
	if f.forKEDA == nil {
		return func() {}
	}
	life, stop := context.WithCancel(life)
	servers.Go(func() { f.own.Follow(life, f.scaler.Changed) })
	servers.Go(func() {
		if err := f.scaler.Serve(f.forKEDA); err != nil {
			failed <- err
		}
	})
	return func() { stop(); f.scaler.Close() }
}

// end ends the server of clients.
func (f *frontDoor) end(clients *http.Server, ready *readiness, failed <-chan error) error {
	ready.set(false)
	clients.SetKeepAlivesEnabled(false)
	f.log.Info("ending", "delay", f.shutdownDelay, "grace", f.grace)
	select {
	case err := <-failed:
		return err
	case <-time.After(f.shutdownDelay): // nothing says when the last client is led elsewhere
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.grace)
	defer cancel()
	if err := clients.Shutdown(ctx); err == nil {
		return nil
	}
	f.door.Close()
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := clients.Shutdown(last); err != nil {
		f.log.Warn("requests were cut, since they outlasted the grace", "grace", f.grace)
		return clients.Close()
	}
	return nil
}

func (f *frontDoor) demandHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+demandapi.Path, f.own)
	return mux
}
