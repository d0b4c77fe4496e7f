package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/portlease"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// runner gives the supervisor the process trees of a host.
type runner struct{ *process.Host }

func (r runner) Start(c process.Command) (supervisor.Tree, error) { return tree(r.Host.Start(c)) }

func (r runner) Adopt(name string, id process.ID) (supervisor.Tree, error) {
	return tree(r.Host.Adopt(name, id))
}

// forker gives the supervisor the preloaders.
type forker struct{ *preload.Pool }

func (f forker) Fork(c process.Command) (supervisor.Tree, error) { return tree(f.Pool.Fork(c)) }

// tree keeps a nil process from becoming an interface that is not nil.
func tree(p *process.Process, err error) (supervisor.Tree, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// swapper gives the API the swap coordinator.
type swapper struct{ *swap.Coordinator }

func (s swapper) Begin(req launcherapi.SwapRequest, key string) (launcher.SwapRun, error) {
	return swapRun(s.Coordinator.Begin(req, key))
}

func (s swapper) CallOff(key string) (launcher.SwapRun, error) {
	return swapRun(s.Coordinator.CallOff(key))
}

func (s swapper) Get(id string) (launcher.SwapRun, error) { return swapRun(s.Coordinator.Get(id)) }

func (s swapper) Cancel(id string) (launcher.SwapRun, error) {
	return swapRun(s.Coordinator.Cancel(id))
}

func (s swapper) Go(id string) (launcher.SwapRun, error) { return swapRun(s.Coordinator.Go(id)) }

func (s swapper) Commit(id string) (launcher.SwapRun, error) {
	return swapRun(s.Coordinator.Commit(id))
}

func (s swapper) Undo(id string) (launcher.SwapRun, error) { return swapRun(s.Coordinator.Undo(id)) }

func (s swapper) List() []launcher.SwapRun {
	runs := s.Coordinator.List()
	all := make([]launcher.SwapRun, 0, len(runs))
	for _, r := range runs {
		all = append(all, r)
	}
	return all
}

// swapRun keeps a nil run from becoming an interface that is not nil.
func swapRun(r *swap.Run, err error) (launcher.SwapRun, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// gates gives the supervisor its ports, by package gateway.
type gates struct {
	ports   *gateway.Ports
	clients *connlimit.Limit
	host    string // public ports listen there, and no wider
	maxHeld int
	hold    time.Duration
	compat  bool // the launcher itself answers /sleep, /wake_up and /is_sleeping at public ports
	observe func(gateway.Observation)
	logger  *slog.Logger

	doorPort int // the front door's; 0: there is none

	mu   sync.Mutex
	open map[string]*gateway.Proxy // by instance
}

func (g *gates) Reserve() (supervisor.Reservation, error) {
	r, err := g.ports.Reserve()
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (g *gates) Claim(port int) (supervisor.Reservation, error) {
	r, err := g.ports.Claim(port)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (g *gates) Listen(o supervisor.GateOptions) (supervisor.Gate, error) {
	host := engine.PublicHost(o.Host, g.host)
	opts := gateway.Options{
		Name: o.InstanceID, Host: host, Port: o.Port, Ports: g.ports, Clients: g.clients,
		Target: cmp.Or(o.TargetSocket, net.JoinHostPort("127.0.0.1", strconv.Itoa(o.TargetPort))), KeepAlive: o.KeepAlive,
		Paths: o.Paths, MaxHeld: g.maxHeld, HoldTimeout: g.hold, Logger: g.logger,
		Observe: g.observe,
		Quiet:   o.Quiet, OnQuiet: func() { o.Supervisor.CheckQuiet(o.InstanceID) },
		OnRefused: func() { o.Supervisor.CheckListens(o.InstanceID) },
	}
	if g.compat {
		opts.Verbs, opts.SleepTimeout = verbs{sup: o.Supervisor, id: o.InstanceID}, sleepCallTime
	}
	proxy, err := gateway.Listen(opts)
	if taken, ok := errors.AsType[*gateway.PortTakenError](err); ok {
		if taken.Port == g.doorPort {
			return nil, launcher.PortTakenf("%w by the launcher's front door; choose another port, leave out --port, or move the front door by --front-door", taken)
		}
		return nil, launcher.PortTakenf("%w; choose another port, or leave out --port", taken)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, launcher.Invalidf("body", "--host %s is no address of this machine; leave out --host, or give one of its addresses: %w", host, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the public port: %w", err)
	}
	return g.register(o.InstanceID, proxy), nil
}

// ownDescriptors are kept back for the launcher's own work.
const ownDescriptors = 256

// mostAPIConnections is how many clients may be connected to the control API. At most half of
// them may be streams (mostStreams), of which each may need a descriptor for a log, too.
func mostAPIConnections() int { return connlimit.Share(8) }

func mostStreams() int { return mostAPIConnections() / 2 }

// mostClients is how many clients may be connected to public ports: each may need a
// descriptor for its connection and one for that to the engine.
func mostClients() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	leased := portlease.MaxWaiting * launcherapi.MaxLeasedPorts
	return max(16, (int(limit.Cur)-ownDescriptors-leased-mostAPIConnections()-mostStreams())/2)
}

// sleepCallTime is how long a call of /sleep waits, so that it gets an answer
// within 20 s: the llm-d controller gives up after 30 s.
const sleepCallTime = 18 * time.Second

// verbs answers the llm-d controller's calls to an engine's port by the
// launcher's own verbs.
type verbs struct {
	sup *supervisor.Supervisor
	id  string
}

func (v verbs) Sleep(ctx context.Context, level int, wait bool) error {
	ask := launcher.VerbRequest{Level: level}
	if wait {
		ask.Drain = -1 // the launcher's default
	}
	if _, err := v.sup.Sleep(v.id, ask); err != nil {
		return err
	}
	_, err := v.sup.AwaitState(ctx, v.id, launcher.Sleeping)
	return err
}

func (v verbs) Wake(ctx context.Context) error {
	if _, err := v.sup.Wake(v.id, launcher.VerbRequest{}); err != nil {
		return err
	}
	_, err := v.sup.AwaitState(ctx, v.id, launcher.Awake)
	return err
}

// IsSleeping is an error while the instance is neither awake nor asleep nor on its
// way between the two: the llm-d controller takes a 200 for readiness, wakes an
// instance that sleeps, and asks no more.
func (v verbs) IsSleeping() (bool, error) {
	view, err := v.sup.Get(v.id)
	if err != nil {
		return false, err
	}
	switch launcher.State(view.State) {
	case launcher.Awake: // one that a swap has claimed may go back to sleep before its gate opens
		return view.SwapID != "", nil
	case launcher.FallingAsleep, launcher.Sleeping, launcher.Waking:
		return true, nil
	case launcher.Starting, launcher.Stopping, launcher.Stopped, launcher.Failed:
	}
	return false, launcher.Unavailablef("instance %s is %s", v.id, view.State)
}
