// Package requester is the program of a server-requesting Pod: it holds the
// Pod's GPUs, is bound by a controller to an inference server that runs
// elsewhere on the node, and carries the Pod's traffic to it. What it promises
// to the controller is written in package requesterapi.
package requester

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// closingTime bounds how long Close waits for answers under way at the two HTTP
// servers before it cuts them.
const closingTime = 2 * time.Second

// Options are what New needs.
type Options struct {
	// Host is the address that all ports listen on; empty is every one.
	Host string
	// ProbesPort and SPIPort are listened on at once; 0 is any free port.
	ProbesPort, SPIPort int
	// MetricsPort has the metrics, which ProbesPort has too; 0: there is no such port.
	MetricsPort int
	// DebugPort has the profiles of the program, on the loopback address alone; 0: there
	// is no such port.
	DebugPort int
	// ClientCAFile has the certificates of those that must have signed a client's
	// own at the SPI, which is served by TLS then. Empty: plain HTTP, to everybody.
	ClientCAFile string
	// AcceleratorsFrom is "auto", "nvml" or "env"; empty is auto.
	AcceleratorsFrom string
	// TerminationGrace is how long Run stays bound after its context ended.
	TerminationGrace time.Duration
	// ShutdownDelay is how long a ready requester is to serve as before after Run's
	// context ended; at most half of TerminationGrace, so that a drain has the rest.
	ShutdownDelay time.Duration
	// Log is where the log of the inference server goes; nil is nowhere.
	Log io.Writer
	// Logger is told what happens; nil is silent.
	Logger *slog.Logger
	// Version is what the metrics say of the build.
	Version string
	// Getenv reads the environment; nil is os.Getenv.
	Getenv func(string) string

	connections int           // that each port but the serving port takes; 0: what the descriptors allow
	headerTime  time.Duration // 0: headerTime
	bodyTime    time.Duration // 0: bodyTime
	idleTime    time.Duration // 0: idleTime
}

// Requester is the running program. It has the ports from New to Close.
type Requester struct {
	opts         Options
	instance     string
	accelerators accelerators
	log          *logRelay
	tally        tally
	probes, spi  *server
	asked        []*server // those of MetricsPort and DebugPort
	reserved     []int     // ports that are no serving ports: the requester's own
	maxConns     int

	mu          sync.Mutex
	bound       *binding      // nil: nobody
	held        *binding      // holds connections until it is bound; nil: the serving port refuses, or bound has it
	holdFor     time.Duration // as requesterapi has it; a test takes another
	ready       bool
	turned      chan struct{} // closed when ready turns to something else, and once told to end
	toldReady   bool          // the last probe that may wait was answered so
	readyHold   time.Duration // as the constant has it; a test takes longer
	terminating bool
	delayUntil  time.Time // the end of the shutdown delay; zero: there is none
	drains      sync.WaitGroup
}

// New listens on the ports of probes and SPI. An error names the option that is
// wrong, or the port that is taken. Whoever called New calls Close.
func New(opts Options) (*Requester, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.connections = cmp.Or(opts.connections, ownConnections())
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	if opts.TerminationGrace < 0 {
		return nil, fmt.Errorf("the termination grace %s is negative: give 0s or more", opts.TerminationGrace)
	}
	if opts.ShutdownDelay < 0 {
		return nil, fmt.Errorf("the shutdown delay %s is negative: give 0s or more", opts.ShutdownDelay)
	}
	found, err := openAccelerators(opts.AcceleratorsFrom, opts.Getenv)
	if err != nil {
		return nil, err
	}
	r := &Requester{opts: opts, instance: newInstance(), accelerators: found, log: newLogRelay(opts.Log), maxConns: maxConnections(), turned: make(chan struct{}), readyHold: readyHold, holdFor: requesterapi.MaxHold}
	probes, err := listenAt("probes", opts.Host, opts.ProbesPort)
	if err != nil {
		return nil, err
	}
	spi, err := listenAt("SPI", opts.Host, opts.SPIPort)
	if err != nil {
		return nil, errors.Join(err, probes.Close())
	}
	if opts.ClientCAFile != "" {
		secured, err := mtls.Server{ClientCAFile: opts.ClientCAFile}.Config()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w; see --client-ca", err), probes.Close(), spi.Close())
		}
		spi = tls.NewListener(spi, secured)
	}
	r.probes = newServer(probes, r.probeRoutes(), opts)
	r.spi = newServer(spi, r.spiRoutes(), opts)
	r.reserved = []int{portOf(probes), portOf(spi)}
	if err := r.openAsked(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func newInstance() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(random)
}

func listenAt(what, host string, port int) (net.Listener, error) {
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("the port of the %s is %d: give one from 1 to 65535", what, port)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the port of the %s: %w", what, err)
	}
	return l, nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// ProbesAddr and SPIAddr are where the requester listens.
func (r *Requester) ProbesAddr() net.Addr { return r.probes.listener.Addr() }

// SPIAddr is the address of the SPI.
func (r *Requester) SPIAddr() net.Addr { return r.spi.listener.Addr() }

// Run serves until ctx ends, and then, if the requester is bound, until it is
// unbound or the termination grace is over. A drain that has begun by then goes on to
// its own end. It is called once.
func (r *Requester) Run(ctx context.Context) error {
	servers := append([]*server{r.probes, r.spi}, r.asked...)
	failed := make(chan error, len(servers))
	for _, s := range servers {
		s.start(failed)
	}
	r.opts.Logger.Info("serving", "instance", r.instance, "probes", r.ProbesAddr(), "spi", r.SPIAddr())
	r.tellAccelerators()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	bound := r.terminate()
	r.opts.Logger.Info("terminating", "bound", bound != nil, "shutdown_delay", r.delayLeft())
	if bound == nil {
		return nil
	}
	grace := time.NewTimer(r.opts.TerminationGrace)
	defer grace.Stop()
	over := grace.C
	for {
		select {
		case err := <-failed:
			return err
		case <-bound.gone:
			return nil
		case <-over:
			if !bound.draining() {
				r.opts.Logger.Warn("the termination grace has passed, and the controller has not unbound this requester", "binding", bound.config.Binding)
				return nil
			}
			over = nil // the drain ends by itself
		}
	}
}

// tellAccelerators says at start what NVML need not be asked for.
func (r *Requester) tellAccelerators() {
	env, ok := r.accelerators.(*fromEnv)
	if !ok {
		return
	}
	if uuids, err := env.uuids(); err != nil {
		r.opts.Logger.Error("cannot find out which GPUs this Pod has", "error", err)
	} else {
		r.opts.Logger.Info("GPUs of this Pod", "uuids", uuids)
	}
}

// terminate makes the requester unready for good and says who is bound. Proxies may
// lead clients to one that was ready for some time yet.
func (r *Requester) terminate() *binding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.terminating {
		if r.ready {
			r.delayUntil = time.Now().Add(min(r.opts.ShutdownDelay, r.opts.TerminationGrace/2))
		}
		r.endHold()
		r.setReady(false)
		r.terminating = true
		close(r.turned)
	}
	return r.bound
}

// delayLeft is what is left of the shutdown delay.
func (r *Requester) delayLeft() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.delayUntil))
}

// Close cuts what is bound and gives all ports back. A second one is a no-op.
func (r *Requester) Close() error {
	if bound := r.terminate(); bound != nil {
		_, _ = r.unbind(context.Background(), bound.config.Binding, drainFor{}) // nobody else can be bound now
	}
	r.drains.Wait()
	err := errors.Join(r.spi.close(), r.probes.close())
	for _, s := range r.asked {
		err = errors.Join(err, s.cut())
	}
	return err
}
