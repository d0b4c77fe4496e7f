// Package daemon puts the launcher together: one struct with Run and Close,
// which the command `launcher serve` and the tests both start.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/portlease"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/edges/frontdoor"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
	"hotseat.dev/hotseat/launcher/internal/edges/metrics"
	"hotseat.dev/hotseat/launcher/internal/edges/version"
	"hotseat.dev/hotseat/launcher/internal/engines/compiled"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/initd"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/models/keeper"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls"
)

// Options of a Daemon.
type Options struct {
	config.Config
	Program      []string        // argv before the engine's arguments; argv[0] is a path
	LlamaServer  []string        // the same of the engine llamacpp; nil: there is none
	ModelFetch   []string        // modelfetch and its flags
	ModelSchemes []string        // as myscheme://, that modelfetch has a program for
	Serving      func()          // called once the launcher serves
	Reload       <-chan struct{} // tells to read the models of the configuration again
	// Last is set for a launcher that only ends what an earlier one has left. It listens at no
	// address and needs no token, so that neither keeps it from that.
	Last   bool
	Logger *slog.Logger
	Stderr io.Writer // for what modelfetch writes to its standard error
}

func (o *Options) tls() mtls.Server {
	return mtls.Server{CertFile: o.TLSCert, KeyFile: o.TLSKey, ClientCAFile: o.ClientCA}
}

func (o *Options) limits() supervisor.Limits {
	fingerprint := o.FingerprintTimeout
	if !o.Fingerprint {
		fingerprint = 0
	}
	return supervisor.Limits{
		Fingerprint: fingerprint, Hang: o.HangTimeout,
		Start: o.StartTimeout, Sleep: o.SleepTimeout, Wake: o.WakeTimeout, Drain: o.DrainTimeout,
		StopGrace: o.StopGrace, StartingGrace: o.StartingGrace, Memory: o.MemoryTimeout,
	}
}

// Folders and files in the state folder.
const (
	logsFolder   = "logs"
	instances    = "instances" // records of instances
	swaps        = "swaps"     // records of swaps
	portLeases   = "port-leases"
	doorFolder   = "front-door" // the record of the profile that is chosen
	exitsFolder  = "exits"
	preFolder    = "preloaders"
	savedFolder  = "saved"      // what engines save that have no process while they sleep
	sharedFolder = "shm"        // records of shared memory
	gpusFile     = "gpus.json"  // the GPUs that the driver has listed
	clockFile    = "clock.json" // how far the wall clock is ahead of the clock of the boot
	shutdownTime = 5 * time.Second
	// closeTime bounds what a disk or a driver that does not answer adds to the end of the
	// launcher. Each part of it has a bound of its own, which is shorter.
	closeTime = 15 * time.Second
	// swapsTime is for swaps that run when the launcher is told to end: enough for
	// a sleep and a wake, and not for a start, which may take minutes. It is
	// shorter than shutdownTime, so that clients that wait for a swap which is
	// broken off get an answer.
	swapsTime = 4 * time.Second
)

// recordWait bounds the wait for init to record an exit that it has reaped. Init
// does so within milliseconds.
const recordWait = time.Second

// ExitDir is where `launcher init` records the exits that it saw.
func ExitDir(stateDir string) string { return filepath.Join(stateDir, exitsFolder) }

// Daemon is a launcher.
type Daemon struct {
	opts Options
	log  *slog.Logger
	undo []func() error // closes what New has opened, the last first

	listener     net.Listener
	server       *api.Server
	closing      atomic.Bool
	logs         *outlog.Store
	sup          *supervisor.Supervisor
	pool         *preload.Pool // nil: engines are started by exec alone
	swaps        *swap.Coordinator
	leases       *portlease.Book
	models       *modelstore.User // nil: no store of models
	keeper       *keeper.Keeper   // nil likewise
	compiled     *compiled.Cache  // nil: engines keep what they compile where they like
	metrics      *metrics.Metrics
	feed         *eventlog.Log
	mark         string
	keepMark     func()         // writes the mark into the state folder, where it is missing
	doorListener net.Listener   // nil: there is no front door
	doorToken    *api.TokenFile // nil: its clients need none
	door         *frontdoor.FrontDoor
	gates        *gates
	engines      []engine.Engine
	commands     []catalogue.Command // of the engines that the configuration makes of programs
	gpus         gpu.Provider
	profile      string // that an earlier launcher has kept
	state        supervisor.SavedState
	saved        []swap.Saved
	leased       []portlease.Saved
}

// New opens everything whose opening may fail: token file, address, state folder,
// GPUs, process host. On error nothing stays open.
func New(opts Options) (*Daemon, error) {
	d := &Daemon{opts: opts, log: opts.Logger, metrics: metrics.New()}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.giveBack())
	}
	return d, nil
}

func (d *Daemon) open() error {
	// The front door first: whoever reaches the control API finds the front door open too.
	if err := d.openFrontDoor(); err != nil {
		return err
	}
	access, err := d.listen()
	if err != nil {
		return err
	}
	state, err := statedir.Open(d.opts.StateDir)
	if err != nil {
		return err
	}
	d.later(state.Close)
	gpus, err := gpu.Open(gpu.Options{Source: d.opts.GPUs, Visible: d.opts.VisibleGPUs, StateDir: d.opts.StateDir, KnownFile: filepath.Join(d.opts.StateDir, gpusFile), Logger: d.log})
	if err != nil {
		return fmt.Errorf("--gpus %s: %w", d.opts.GPUs, err)
	}
	d.later(gpus.Close)
	written, err := d.openState(state)
	if err != nil {
		return err
	}
	if err := d.openMark(state, written.instances); err != nil {
		return err
	}
	host, err := d.openHost()
	if err != nil {
		return err
	}
	if err := d.openLogs(); err != nil {
		return err
	}
	if err := d.openModels(host); err != nil {
		return err
	}
	d.openCompiled(gpus)
	d.gpus = gpus
	return d.assemble(gpus, host, written, access)
}

// listen listens for the control API, and decides who may call.
func (d *Daemon) listen() (api.Access, error) {
	if d.opts.Last {
		return nil, nil //nolint:nilnil // nobody can call
	}
	access, err := d.openAccess()
	if err != nil {
		return nil, err
	}
	if d.listener, err = net.Listen("tcp", d.opts.Listen); err != nil { //nolint:noctx // a loopback bind does not wait
		return nil, fmt.Errorf("cannot listen for the control API: %w", err)
	}
	d.later(func() error { return ignoreClosed(d.listener.Close()) })
	return access, d.secure()
}

func (d *Daemon) later(f func() error) { d.undo = append(d.undo, f) }

// giveBack closes what New has opened. If the disk or a driver holds up a part for longer than
// closeTime, the end of the process closes that part.
func (d *Daemon) giveBack() error {
	undo := d.undo
	d.undo = nil
	closed := make(chan error, 1)
	go func() {
		var errs []error
		for n := len(undo) - 1; n >= 0; n-- {
			errs = append(errs, undo[n]())
		}
		closed <- errors.Join(errs...)
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeTime):
		return errors.New("cannot close everything: a disk or a driver does not answer; it is left to the end of the process")
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (d *Daemon) openLogs() (err error) {
	d.logs, err = outlog.Open(outlog.Options{
		Dir: filepath.Join(d.opts.StateDir, logsFolder), MaxTotalBytes: d.opts.LogMaxBytes, MaxAge: d.opts.LogMaxAge, MaxFiles: d.opts.LogMaxFiles, ClockFile: filepath.Join(d.opts.StateDir, clockFile), Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.later(d.logs.Close)
	return nil
}

func (d *Daemon) openHost() (*process.Host, error) {
	groups, err := cgroup.Open(cgroup.Options{Mode: cgroup.Mode(d.opts.Cgroups), Name: "hotseat-" + digest(d.mark), Logger: d.log})
	if err != nil {
		return nil, fmt.Errorf("--cgroups %s: %w", d.opts.Cgroups, err)
	}
	d.later(groups.Close)
	var wait time.Duration
	if os.Getenv(initd.ExitDirEnv) != "" {
		wait = recordWait
	}
	host, err := process.NewHost(process.Options{
		Mark: d.mark, Earlier: d.state.Earlier(), Cgroups: groups, ExitDir: ExitDir(d.opts.StateDir), RecordWait: wait, ScratchDir: filepath.Join(d.opts.StateDir, process.ScratchFolder), SharedDir: filepath.Join(d.opts.StateDir, sharedFolder), Logger: d.log,
	})
	if err != nil {
		return nil, err
	}
	d.later(host.Close)
	return host, nil
}

func (d *Daemon) assemble(gpus gpu.Provider, host *process.Host, state written, access api.Access) error {
	vllm, programs, err := d.openEngines()
	if err != nil {
		return err
	}
	d.feed = eventlog.New(d.opts.WatchBuffer, d.state.Revision)
	queue, writes := &gpuqueue.Queue{}, &statedir.Queue{}
	m := d.metrics
	g := &gates{
		ports: gateway.NewPorts(), clients: connlimit.New(mostClients()), host: d.opts.InstanceHost, maxHeld: d.opts.MaxHeldRequests, hold: d.opts.HoldTimeout,
		compat: d.opts.LLMDCompat, logger: d.log, doorPort: d.doorPort(), open: map[string]*gateway.Proxy{},
		observe: func(o gateway.Observation) { m.Request(string(o.Class), string(o.Outcome), o.Duration) },
	}
	d.gates = g
	d.leases = portlease.New(portlease.Options{Ports: leasable{g.ports}, Records: state.leases, Writes: writes, Logger: d.log}, d.leased, d.state.LeasedPorts())
	d.later(d.leases.Close)
	environ := limitedTo(d.compiled.AddTo(os.Environ()), gpus)
	var forks supervisor.Forker
	if d.opts.StartMethod != launcherapi.StartExec {
		d.pool = d.newPool(vllm, host, environ, gpus, writes)
		d.later(func() error { d.pool.Close(); return nil })
		forks = forker{d.pool}
	}
	var caches api.CompileCaches
	if d.compiled != nil {
		caches = d.compiled
	}
	var store supervisor.Models
	var keeper api.Models
	if d.models != nil {
		store, keeper = usedModels{d.models, d.keeper.MayRead}, d.keeper
		m.WatchModels(d.keeper.List)
	}
	d.sup = supervisor.New(supervisor.Options{
		Mark:    d.mark,
		Engines: d.engines, Programs: programs, InstanceHost: d.opts.InstanceHost, RankAddress: rankAddress(d.opts.Config), Interface: interfaceOf, SleepMode: d.opts.EnableSleepMode, Environ: environ, Schemes: d.opts.ModelSchemes,
		StartMethod: d.opts.StartMethod, GPUs: gpus, Processes: procfs.Table{}, Runner: runner{host}, Forker: forks, Models: store, Claims: d.opts.ModelClaims, Compiled: d.awaited(gpus), Gates: g, Leases: d.leases, Sockets: d.newSockets(host), Logs: d.logs, Records: state.instances, Writes: writes, Feed: d.feed, Turns: queue,
		ConfigDir: state.instances.Dir(), SaveDir: filepath.Join(d.opts.StateDir, savedFolder),
		Limits: d.opts.limits(), Budget: d.opts.Budgets, EnvFileDirs: d.opts.EnvFileDirs, LLMDCompat: d.opts.LLMDCompat, Observer: m, Logger: d.log,
	})
	m.Watch(d.sup, d.preloaders, d.sup.StalledSince)
	d.swaps = swap.New(swap.Options{
		Supervisor: d.sup, Turns: queue, Records: state.swaps, Writes: writes, Limits: d.opts.limits(), Logger: d.log,
		Finished: func(outcome string, r launcherapi.SwapResult) {
			m.Swap(outcome, time.Duration(r.TotalMS*float64(time.Millisecond)))
		},
	})
	if err := d.assembleFrontDoor(d.profile, state.door); err != nil {
		return err
	}
	var door api.FrontDoor
	if d.door != nil {
		door = d.door
	}
	d.server = api.New(api.Options{
		FrontDoor: door,
		Instances: d.sup, Swaps: swapper{d.swaps}, PortLeases: d.leases, Events: d.feed, Logs: d.logs, Models: keeper, CompileCaches: caches, Ready: d.ready, StalledSince: d.sup.StalledSince, Preloaders: d.preloaders,
		Metrics: m.Handler(), Version: version.Version, Access: access, PublicMetrics: d.opts.PublicMetrics, Observe: m.API, Logger: d.log,
		Connections: connlimit.New(mostAPIConnections()), MaxStreams: mostStreams(),
	})
	return nil
}

func (d *Daemon) newSockets(host *process.Host) *sockets {
	return &sockets{mode: d.opts.EngineSocket, installation: &preload.Sockets{Program: d.opts.Program}, host: host, log: d.log}
}

// preloaders lists the preloaders.
func (d *Daemon) preloaders() launcherapi.PreloaderList {
	if d.pool == nil {
		return launcherapi.PreloaderList{Reason: "the launcher's start_method is exec", Preloaders: []launcherapi.Preloader{}}
	}
	return d.pool.List()
}

func (d *Daemon) ready() launcherapi.Ready {
	if d.closing.Load() {
		return launcherapi.Ready{Status: "closing"}
	}
	return launcherapi.Ready{Status: "ready"}
}

// Addr is the address of the control API.
func (d *Daemon) Addr() string { return d.listener.Addr().String() }

// Run recovers the instances and swaps of an earlier life of the launcher, then
// serves until ctx ends, and takes everything down in order. With Options.Last, it does not
// serve.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.sup.Recover(ctx, d.state); err != nil {
		return errors.Join(err, d.Close())
	}
	d.swaps.Recover(d.saved)
	if d.opts.Last {
		return d.Close()
	}
	d.sup.EnforceBudgets()
	if d.pool != nil {
		d.pool.Begin() // Recover has cleared away the preloaders of an earlier launcher
	}
	debug.FreeOSMemory() // the garbage of the start: 0.9 MB of 5.7 MB
	d.log.Info("launcher is serving", "address", d.Addr(), "front_door", d.doorAddress(), "state_dir", d.opts.StateDir, "engine", d.opts.Program)
	failed := make(chan error, 1)
	go func() { failed <- d.server.Serve(d.listener) }()
	if d.door != nil {
		d.door.Serve()
	}
	d.opts.Serving()
	stopPruning, stopWatching := d.keepPruning(), d.watchCatalogue()
	defer stopWatching()
	select {
	case err := <-failed:
		stopPruning()
		d.opts.OnExit = "leave" // nobody has told the launcher to end: the next one adopts the engines
		return errors.Join(err, d.Close())
	case <-ctx.Done():
		stopPruning()
		err := d.Close()
		return errors.Join(err, <-failed)
	}
}
