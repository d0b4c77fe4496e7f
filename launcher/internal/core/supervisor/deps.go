package supervisor

import (
	"context"
	"os"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/modelref"
)

// Runner starts and finds process trees; [process.Host] implements it.
type Runner interface {
	Start(process.Command) (Tree, error)
	Adopt(name string, id process.ID) (Tree, error)
	Find() ([]process.Found, error)
	// Owners returns, by pid, the name of the tree that each living process belongs to.
	// It looks at every process of the machine and leaves out those of no tree.
	Owners() (map[int]string, error)
	Clear(ctx context.Context, name string) error
}

// Processes reads about any process of the machine, by its id; [procfs.Table]
// implements it. For a process that has ended it returns an error or nothing.
type Processes interface {
	Read(pid int) (procfs.Stat, error)
	// Session returns the id of the process that leads the session of pid.
	Session(pid int) (int, error)
	Resident(pid int) procfs.Resident
	Arguments(pid int) []string
	Environ(pid int) ([]string, error)
	// IsOwn reports whether a process belongs to the launcher's user.
	IsOwn(pid int) (bool, error)
	// Output returns the path of the file that is the standard output of pid.
	Output(pid int) (string, error)
}

// Forker starts engines by forking them from a preloader; package preload implements it.
type Forker interface {
	// Fork starts a command as Runner.Start does. If it cannot fork, it returns the
	// reason without waiting.
	Fork(process.Command) (Tree, error)
	// Check returns why a command with that environment cannot be forked now. It also
	// starts a preloader for the environment.
	Check(env []string) error
	// Look returns what Check returns, and starts nothing.
	Look(env []string) error
	// Awaits returns what a command with that environment has to wait for before it can
	// be forked; empty: nothing. It also starts a preloader for the environment.
	Awaits(env []string) string
	// Await waits, for a bounded time, for what Awaits names. It calls onChange with
	// each new reason to wait. The error says why Await gave up.
	Await(ctx context.Context, env []string, onChange func(reason string)) error
	// Never returns why no command can ever be forked; empty: some can.
	Never() string
}

// Tree is one engine's processes; [process.Process] implements it.
type Tree interface {
	ID() process.ID
	Done() <-chan struct{}
	Exit() process.Exit
	Pids() []int
	Stop(ctx context.Context, grace time.Duration) error
	Kill(ctx context.Context) error
}

// Sockets decides where engines listen.
type Sockets interface {
	// Plan returns the path of the Unix socket at which the engine of a plan is to listen. The error says why it has to listen on a port. If it is a
	// *[launcher.Error], the instance is refused.
	Plan(id string, plan engine.Plan) (path string, err error)
	// Now returns where the socket of an engine is that was told to listen at told: the
	// state folder may have been renamed since.
	Now(id, told string) string
}

// Gates opens public ports, and reserves the private ports behind them; package gateway
// implements it.
type Gates interface {
	Listen(GateOptions) (Gate, error)
	// Reserve reserves a free loopback port for an engine; Claim reserves a given one.
	Reserve() (Reservation, error)
	Claim(port int) (Reservation, error)
}

// GateOptions says where a gate listens, and which engine is behind it.
type GateOptions struct {
	InstanceID string
	Supervisor *Supervisor // has the instance: clients may call the instance's verbs at this port
	Host       string      // requested address; the gate listens no wider than the launcher's instance_host
	Port       int         // 0: any free one
	TargetPort int         // the engine's, on loopback; 0: it listens on TargetSocket
	// TargetSocket is the path of the engine's Unix socket.
	TargetSocket string
	// Paths are those of the engine that clients may call.
	Paths engine.Paths
	// KeepAlive is how long the engine keeps an idle connection open; negative: it closes
	// each after its answer; 0: it is not known.
	KeepAlive time.Duration
	// Quiet is how long requests may be in flight while nothing comes back from the engine,
	// before the gate calls Supervisor.CheckQuiet; 0: it never does.
	Quiet time.Duration
}

// Gate is an instance's public port.
type Gate interface {
	Host() string // address that the gate listens at
	Port() int
	Open()
	Shut(reason string)
	Fail(reason string)
	Drain(ctx context.Context) (cut int, err error)
	InFlight() int
	Held() int
	// QuietFor returns for how long the requests in flight have got nothing from the
	// engine; 0: no request is in flight.
	QuietFor() time.Duration
	LastUsed() time.Time
	Close(ctx context.Context) error
}

// Reservation is a loopback port that no other instance gets.
type Reservation interface {
	Port() int
	Close() error
}

// Leases keeps ports for instances that are yet to be created; [portlease.Book] implements it.
type Leases interface {
	// Of returns the ports that are leased for an id; nil: none.
	Of(id string) []int
	// Take gives the ports to the instance. The error says that they are not leased any more.
	Take(id string, ports []int) error
	// Yield lets the engine of the instance use its ports, just before it starts.
	Yield(id string)
	// End takes the ports back from an instance that is gone, or was not created.
	End(id string)
}

// noLeases leases nothing.
type noLeases struct{}

func (noLeases) Of(string) []int          { return nil }
func (noLeases) Take(string, []int) error { return nil }
func (noLeases) Yield(string)             {}
func (noLeases) End(string)               {}

// Logs keeps the engines' log files; [outlog.Store] implements it.
type Logs interface {
	Create(id string) (*os.File, string, error)
	// Reopen opens a log for another process that appends to it.
	Reopen(name string) (*os.File, error)
	Latest(id string) (name string, ok bool)
	Tail(name string, lines, maxBytes int) ([]string, error)
	Size(name string) int64
	Watch(name string) (<-chan struct{}, func(), error)
	// Note appends a line of the launcher's own.
	Note(name, text string) error
}

// Records keeps on disk what the next launcher has to know of instances or swaps, one
// record for each id; [statedir.Records] implements it.
type Records interface {
	// Put replaces the record of an id. On error the earlier record stays.
	Put(id string, record any) error
	// Doubt marks the record of an id as stale. It needs no room on the disk.
	Doubt(id string) error
	// Remove removes the record of an id. It needs no room on the disk.
	Remove(id string) error
}

// Models is the model store; [modelstore.User] implements it. Its calls read and write
// the disk.
type Models interface {
	// Wanted returns the version that an engine with these needs is to serve.
	Wanted(model, revision string, need modelref.Need) (modelstore.Version, error)
	// MayRead returns an error if instances with that environment may not read a version.
	// It may ask the version's source.
	MayRead(v modelstore.Version, env func(name string) string) error
	// Files returns the folder of a version.
	Files(key string) string
	// Lease keeps a version from being removed until Release.
	Lease(key, holder string) error
	Release(holder string) error
	// ReleaseOthers releases the leases of holders for which there returns false.
	ReleaseOthers(there func(holder string) bool) error
}

// Compiled is the compile cache of the engines; [compiled.Cache] implements it. Its calls
// read and write the disk.
type Compiled interface {
	// Keeps reports whether an engine with that environment uses the cache.
	Keeps(env []string) bool
	// Has reports whether Note was called with that name.
	Has(name string) bool
	// Note records that an engine has started and has cached what has that name.
	Note(name string) error
}

// GPUs is the GPU inventory; [gpu.Provider] implements it.
type GPUs interface {
	Kind() string
	Devices() []gpu.Device
	// AllDevices are these and those that the launcher was told not to use: instances of an
	// earlier launcher may be there.
	AllDevices() []gpu.Device
	Memory(uuid string) (gpu.Memory, error)
	Health(uuid string) gpu.Health
	Env() []string
}

// Observer counts events for metrics. Its calls must not block.
type Observer interface {
	Transition(from, to launcher.State, cause string)
	Phase(name string, took time.Duration)
	Refused(code, bound string)
	Cut(requests int)
	WriteFailed()
	// Started counts an engine's process that was started by launcherapi.StartExec or
	// StartFork. fellBack: the process was to be forked, and the fork failed.
	Started(by string, fellBack bool)
}
