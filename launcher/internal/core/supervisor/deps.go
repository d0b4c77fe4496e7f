package supervisor

import (
	"context"
	"os"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
)

// Runner starts and finds process trees; [process.Host] behind it.
type Runner interface {
	Start(process.Command) (Tree, error)
	Adopt(name string, id process.ID) (Tree, error)
	Find() ([]process.Found, error)
	// Owners gives, by pid, the name of the tree that a living process belongs to;
	// processes of no tree are left out. Every process of the machine is looked at.
	Owners() (map[int]string, error)
	Clear(ctx context.Context, name string) error
}

// Processes tells of any process of the machine, by its id; [procfs.Table] behind
// it. Of a process that has ended it gives an error, or nothing.
type Processes interface {
	Read(pid int) (procfs.Stat, error)
	// Session is the id of the process that leads the session of pid.
	Session(pid int) (int, error)
	Resident(pid int) procfs.Resident
	Arguments(pid int) []string
	Environ(pid int) ([]string, error)
	// Output is the path of the file that is the standard output of pid.
	Output(pid int) (string, error)
}

// Forker starts engines by forking them; package preload behind it.
type Forker interface {
	// Fork starts a command as Runner.Start does. The error says why nothing was
	// forked, and comes soon.
	Fork(process.Command) (Tree, error)
	// Check says why a command with that environment would not be forked now, and
	// has a preloader for the environment begun.
	Check(env []string) error
	// Look says what Check says, and touches nothing.
	Look(env []string) error
	// Awaits says what a command with that environment has to wait for until it can
	// be forked, and has a preloader for the environment begun; empty when there is
	// nothing to wait for.
	Awaits(env []string) string
	// Await waits, for a bounded time, for what Awaits names. told hears that anew
	// whenever it changes. The error says why the wait was given up.
	Await(ctx context.Context, env []string, told func(reason string)) error
	// Never says why no command will ever be forked; empty when some may be.
	Never() string
}

// Tree is one engine's processes; [process.Process] behind it.
type Tree interface {
	ID() process.ID
	Done() <-chan struct{}
	Exit() process.Exit
	Pids() []int
	Stop(ctx context.Context, grace time.Duration) error
	Kill(ctx context.Context) error
}

// Gates makes public ports, and reserves the private ports behind them;
// package gateway behind it.
type Gates interface {
	Listen(GateOptions) (Gate, error)
	// Reserve keeps a free loopback port for an engine; Claim keeps a given one.
	Reserve() (Reservation, error)
	Claim(port int) (Reservation, error)
}

// GateOptions say where a gate listens, and which engine is behind the gate.
type GateOptions struct {
	InstanceID string
	Supervisor *Supervisor // keeps the instance: clients may call the instance's verbs at the port
	Host       string      // address that was asked for; the gate listens no wider than the launcher's instance_host
	Port       int         // 0: any free one
	TargetPort int         // the engine's, on loopback
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
	LastUsed() time.Time
	Close(ctx context.Context) error
}

// Reservation is a loopback port that nobody else gets.
type Reservation interface {
	Port() int
	Close() error
}

// Logs keeps the engines' log files; [outlog.Store] behind it.
type Logs interface {
	Create(id string) (*os.File, string, error)
	Latest(id string) (name string, ok bool)
	Tail(name string, lines, maxBytes int) ([]string, error)
	Size(name string) int64
	Watch(name string) (<-chan struct{}, func(), error)
}

// Records keep what must be known of instances, or of swaps, after a crash, one
// record for each id; [statedir.Records] behind it.
type Records interface {
	// Put writes the record of an id, in the place of the one before, which still
	// stands on error.
	Put(id string, record any) error
	// Doubt notes that the record of an id is out of date, without taking room on
	// the disk.
	Doubt(id string) error
	// Remove removes the record of an id, without taking room on the disk.
	Remove(id string) error
}

// Models is the store of models; [modelstore.User] behind it. Its calls read and
// write the disk.
type Models interface {
	// Wanted finds the version that an engine is to serve.
	Wanted(model, revision string) (modelstore.Version, error)
	// MayRead says whether instances with such an environment may read a version. It may
	// ask the version's source.
	MayRead(v modelstore.Version, env func(name string) string) error
	// Files is the folder of a version.
	Files(key string) string
	// Lease keeps a version from being removed until Release.
	Lease(key, holder string) error
	Release(holder string) error
	// ReleaseOthers ends the leases of an earlier life of the launcher whose holders
	// are no more.
	ReleaseOthers(there func(holder string) bool) error
}

// Compiled is where engines keep what they compile when they start; [compiled.Cache]
// behind it. Its calls read and write the disk.
type Compiled interface {
	// Keeps says whether an engine with that environment keeps there what it compiles.
	Keeps(env []string) bool
	// Has says whether an engine has started with what is called so.
	Has(name string) bool
	// Note notes that.
	Note(name string) error
}

// GPUs is the inventory; [gpu.Provider] behind it.
type GPUs interface {
	Kind() string
	Devices() []gpu.Device
	Memory(uuid string) (gpu.Memory, error)
	Health(uuid string) gpu.Health
	Env() []string
}

// Observer is told what metrics count. Its calls must not block.
type Observer interface {
	Transition(from, to launcher.State, cause string)
	Phase(name string, took time.Duration)
	Refused(code, bound string)
	Cut(requests int)
	WriteFailed()
	// Started: an engine's process was made by launcherapi.StartExec or StartFork;
	// fellBack when the process was to be forked and was not.
	Started(by string, fellBack bool)
}
