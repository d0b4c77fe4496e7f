// Package supervisor manages instances: it starts their engines, moves them between
// states, accounts for what they hold, and adopts them after the launcher has died.
//
// One lock guards every instance, the revision and the reservations. Each event of an
// instance is one short method that takes the lock and ends in [Supervisor.transition],
// the only place that writes a state. Work that takes time runs in goroutines of the
// supervisor; their ends are events too.
package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/devmem"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Limits bound what the supervisor waits for.
type Limits struct {
	Start         time.Duration // until an engine is healthy
	Sleep         time.Duration // until an engine sleeps, after the drain
	Wake          time.Duration // until an engine is awake
	Drain         time.Duration // default time for answers in flight to end
	StopGrace     time.Duration // between SIGTERM and SIGKILL
	StartingGrace time.Duration // the same for an engine that is starting
	Memory        time.Duration // until device memory is back after a stop or a sleep
	Fingerprint   time.Duration // until an engine has answered a probe; 0: answers are not checked
	Hang          time.Duration // until an engine that answers no request is checked; 0: never
}

// Options of a Supervisor. Every field is required unless its comment says otherwise.
type Options struct {
	Mark string // of this launcher, which its Runner finds processes by

	Engines []engine.Engine // each has a name; the first is the default
	// Programs are, by the engine's name, the argv before the engine's own arguments. An engine
	// without one cannot be started.
	Programs  map[string][]string
	SleepMode string // engine.SleepModeAuto, …Always or …Never
	// InstanceHost is the widest address at which public ports may listen.
	InstanceHost string
	// RankAddress is where the ranks of servers over several launchers listen; empty: this
	// launcher has no ranks.
	RankAddress string
	// Interface returns the network interface that has an address.
	Interface func(address string) (string, error)
	// StartMethod is the default of instances that name none: launcherapi.StartAuto,
	// …Exec or …Fork; empty: exec.
	StartMethod string
	Environ     []string // environment that engines inherit
	Schemes     []string // further schemes that models are pulled from, like myscheme://

	GPUs      GPUs
	Processes Processes
	Runner    Runner
	Forker    Forker            // nil: every engine is started by exec
	Models    Models            // nil: the launcher has no model store
	Compiled  Compiled          // nil: no start waits for another that compiles the same
	Claims    modelstore.Claims // claims with models; nil: none
	Gates     Gates
	Leases    Leases  // nil: no ports are leased
	Sockets   Sockets // nil: every engine listens on a port
	Logs      Logs
	Records   Records
	Clock     statedir.Clock  // by which records carry times
	Writes    *statedir.Queue // that writes the records, with those of swaps; nil: a queue of its own
	Feed      *eventlog.Log
	Turns     *gpuqueue.Queue // turns of swaps on GPUs
	// ConfigDir holds copies of --config files while their engines start.
	ConfigDir string
	// SaveDir holds what engines save that have no process while they sleep.
	SaveDir string

	Limits      Limits
	Budget      launcherapi.Budget
	EnvFileDirs []string // folders that {"from_file": …} may name
	LLMDCompat  bool     // show the engine's devices in env_vars
	Observer    Observer
	Logger      *slog.Logger
}

// Supervisor manages the instances of one launcher.
type Supervisor struct {
	opts    Options
	log     *slog.Logger
	engines map[string]engine.Engine

	ctx    context.Context //nolint:containedctx // the life of the supervisor and its tasks
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	instances map[string]*instance
	claims    map[string]*Claim // by the id of the swap

	records *statedir.Writer
	disk    diskCalls
	leases  chan struct{} // has room for the call that changes leases of models; no Mutex: simulated time passes while calls wait
	meter   *devmem.Meter
}

// New returns a supervisor without instances; see [Supervisor.Recover].
func New(opts Options) *Supervisor {
	s := &Supervisor{opts: opts, log: opts.Logger, engines: map[string]engine.Engine{}, instances: map[string]*instance{}, claims: map[string]*Claim{}, leases: make(chan struct{}, 1)}
	s.meter = devmem.New(devmem.Options{GPUs: opts.GPUs, Processes: opts.Processes, Trees: opts.Runner, ReturnTime: opts.Limits.Memory, Logger: opts.Logger})
	if s.opts.Leases == nil {
		s.opts.Leases = noLeases{}
	}
	if s.opts.Writes == nil {
		s.opts.Writes = &statedir.Queue{}
	}
	s.records = s.opts.Writes.Writer(opts.Records, s.noteWriteFailed)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, e := range opts.Engines {
		s.engines[e.Name()] = e
	}
	return s
}

// Close waits for answers in flight, for at most the drain's limit. It then ends and waits
// for every goroutine, and closes the ports. Engines go on running. If stopAll is set,
// Close instead stops and forgets every instance after the drain.
func (s *Supervisor) Close(ctx context.Context, stopAll bool) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.drainAll(ctx)
	var err error
	if stopAll {
		_, err = s.DeleteAll(ctx)
	}
	s.cancel()
	s.tasks.Wait()
	s.settle()
	return errors.Join(err, s.closeAllPorts(ctx))
}

// closeAllPorts closes the ports of all instances at once.
func (s *Supervisor) closeAllPorts(ctx context.Context) error {
	s.mu.Lock()
	all := s.sorted()
	s.mu.Unlock()
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for n, i := range all {
		closing.Go(func() { errs[n] = s.closePorts(ctx, i) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// closePorts closes an instance's ports and leaves its engine alone. It does not hold the
// lock while the gate closes: the clients that the gate waits for may need the lock.
func (s *Supervisor) closePorts(ctx context.Context, i *instance) error {
	s.mu.Lock()
	held := i.takePorts()
	s.mu.Unlock()
	return held.close(ctx)
}

// drainAll shuts every gate and waits for the answers in flight.
func (s *Supervisor) drainAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Limits.Drain)
	defer cancel()
	s.mu.Lock()
	var open []Gate
	for _, i := range s.instances {
		if i.state == launcher.Awake && i.gate != nil {
			s.setGate(i)
			open = append(open, i.gate)
		}
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, gate := range open {
		all.Go(func() {
			if cut, err := gate.Drain(ctx); cut > 0 || err != nil {
				s.opts.Observer.Cut(cut)
				s.log.Warn("cut answers in flight, since the launcher is closing", "requests", cut, "error", err)
			}
		})
	}
	all.Wait()
}

// spawn runs a task in the background; Close waits for it. The lock is held, or the caller
// runs inside another task.
func (s *Supervisor) spawn(task func()) { s.tasks.Go(task) }

// Get returns one instance.
func (s *Supervisor) Get(id string) (launcherapi.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	return i.view(), nil
}

// List returns every instance that watchers were told of, oldest first, and the revision of
// that list. The one that a new instance replaces stays listed until then.
func (s *Supervisor) List() ([]launcherapi.Instance, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.sorted()
	out := make([]launcherapi.Instance, 0, len(all))
	for _, i := range all {
		if !i.announced {
			i = i.replaces
		}
		if i != nil {
			out = append(out, i.view())
		}
	}
	return out, s.opts.Feed.Revision()
}

func (s *Supervisor) sorted() []*instance {
	all := make([]*instance, 0, len(s.instances))
	for _, i := range s.instances {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b *instance) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.facts.ID, b.facts.ID)
	})
	return all
}

// LogName returns the name of an instance's log file, and a channel that is closed once no
// process writes to the file any more.
func (s *Supervisor) LogName(id string) (name string, over <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return "", nil, launcher.NotFound(id)
	}
	return i.facts.LogName, i.whenReleased, nil
}

// LogsInUse returns the names of the logs of all instances. An instance that is about to
// start may not have a log name yet; its log is then the latest with its id.
func (s *Supervisor) LogsInUse() map[string]bool {
	inUse := map[string]bool{}
	var unnamed []string
	s.mu.Lock()
	for id, i := range s.instances {
		inUse[i.facts.LogName] = true
		if i.facts.LogName == "" {
			unnamed = append(unnamed, id)
		}
	}
	s.mu.Unlock()
	for _, id := range unnamed { // without the lock: a log that is being created on a disk that stalls holds this up
		if latest, ok := s.opts.Logs.Latest(id); ok {
			inUse[latest] = true
		}
	}
	return inUse
}
