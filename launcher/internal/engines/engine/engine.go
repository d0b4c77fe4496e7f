// Package engine adapts an inference engine to the launcher: it turns a client's
// request into a command line and an environment, speaks the engine's health, sleep
// and wake endpoints, and says in plain words why an engine died.
//
// Deciding (Plan, Diagnose) has no side effects but for reading the file that
// the arguments name with --config. A second engine is a second implementation
// of Engine in a file of its own.
package engine

import (
	"context"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/spec/modelref"
)

// Engine is one kind of inference engine.
type Engine interface {
	// Name is what a create body calls this engine, such as "vllm".
	Name() string

	// Paths are those of its HTTP API that clients may call.
	Paths() Paths

	// Plan decides how to run the engine of a request. Its errors are *InputError
	// where the request is at fault.
	Plan(Request) (Plan, error)

	// Running reads from the arguments and the environment of a process how its
	// engine was started. The error says that the process was not started with a
	// Plan.
	Running(argv, env []string) (Running, error)

	// Ready asks once whether the engine at base (see SocketBase and PortBase) is up.
	// The error is nil when the engine is up; Refused recognizes the error of a socket
	// or port at which nothing listens yet, and a *StatusError is an answer with another
	// status.
	Ready(ctx context.Context, base string) error

	// Probe asks the model one short question, which costs no more than one token. The
	// key is the plan's APIKey. kind is that of an earlier Answer of the same engine;
	// without one, Probe finds out which question the engine takes.
	Probe(ctx context.Context, base, model string, key Secret, kind string) (Answer, error)

	// Progress returns the engine's counters of what it has done for its clients, as a text
	// that changes when it does something. Empty: it does not count.
	Progress(ctx context.Context, base string, key Secret) (string, error)

	// Diagnose explains an exit from the last lines of the engine's log, oldest
	// first. There is always an answer.
	Diagnose(exit Exit, tail []string) Cause

	// Close closes the idle connections.
	Close()
}

// InPlace is an Engine that sleeps and wakes in its process.
type InPlace interface {
	Engine

	// IsSleeping asks whether the engine sleeps.
	IsSleeping(ctx context.Context, base string) (bool, error)

	// Sleep puts the engine to sleep at level 1 (weights kept in host memory) or 2
	// (weights dropped), and returns once the engine has done so; with check the
	// engine is asked afterwards whether it sleeps, and the error says when it does
	// not. Requests in flight are aborted: drain first. Sleeping twice is no error.
	Sleep(ctx context.Context, base string, level int, check bool) error

	// Wake undoes a Sleep of that level and returns once the engine has woken; with
	// check the engine is asked afterwards whether it is awake. Waking twice is no
	// error.
	Wake(ctx context.Context, base string, level int, check bool) error

	// Resleep puts an engine back to sleep whose Wake from that level has failed. Part of
	// the engine may be awake although it reports that it sleeps, and then Sleep does
	// nothing. Resleep needs the memory of an awake engine for a moment.
	Resleep(ctx context.Context, base string, level int) error
}

// Restarted is an Engine that cannot sleep in its process: to sleep, it is ended, and to wake, it
// is started again. What its conversations have computed is kept in the Request's SaveDir.
type Restarted interface {
	Engine

	// Save has the engine write what its conversations have computed into dir, which is its
	// SaveDir, and returns once it has done so. It replaces what an earlier Save has written.
	// The key is the plan's APIKey.
	Save(ctx context.Context, base, dir string, key Secret) error

	// Restore has an engine that was started again, and is ready, read what the latest Save
	// has written into dir, which is its SaveDir. Where nothing was saved, it does nothing. An
	// error says that the engine begins without some conversation: it can be used all the same.
	Restore(ctx context.Context, base, dir string, key Secret) error
}

// Paths are the paths of an engine's HTTP API that clients may call. Those below /v1/ are
// inference, but for the ones that are listed as something else.
type Paths struct {
	Status    []string // answered without the model; only read
	Inference []string // outside /v1/: work for the model
	Refused   []string // below /v1/, in small letters: they change the engine
}

// Request is the create body of an instance, with GPUs and secrets resolved.
type Request struct {
	// Options is one string, split by the rules of a POSIX shell; Args is the
	// list. Exactly one of them is given (not nil); both may be empty.
	Options *string
	Args    []string

	// GPUs in the order asked for. Empty: the engine sees the GPUs that the
	// launcher sees, and their number is not checked.
	GPUs []GPU

	// Env is the user's environment, secrets resolved.
	Env map[string]string

	// Accelerator is where the GPUs come from: "nvml", "simulated", "file".
	Accelerator string

	// InstanceHost is the address that the public ports of instances listen at, and
	// no wider; "" for loopback.
	InstanceHost string

	// SleepMode says whether the engine is started with its sleep mode on:
	// SleepModeAuto (or ""), SleepModeAlways, SleepModeNever.
	SleepMode string

	// BaseEnv is the launcher's own environment (KEY=value), which the engine
	// inherits without the launcher's settings and secrets.
	BaseEnv []string

	// ExtraEnv are the variables of the GPU provider (KEY=value). They win over
	// Env.
	ExtraEnv []string

	// Rank is which part of a server over several launchers the engine is; nil: it is a
	// server by itself.
	Rank *rank.Rank

	// ServedName is what clients call the model, if the arguments do not say; empty: its path
	// or name.
	ServedName string

	// GPUMemory is how many bytes of each GPU the engine of a command takes; 0: it is not known.
	GPUMemory uint64

	// SaveDir is a folder for what a Restarted engine keeps while it sleeps. The launcher
	// makes it before it starts the engine, and removes it with the instance.
	SaveDir string
}

// GPU is a device of a Request.
type GPU struct {
	UUID  string
	Index int  // in PCI bus order
	MIG   bool // a MIG device, which has a UUID and no index of its own
}

// Values of Request.SleepMode.
const (
	SleepModeAuto   = "auto" // on for real GPUs: the engine refuses it elsewhere
	SleepModeAlways = "always"
	SleepModeNever  = "never"
)

// AcceleratorNVML is the Request.Accelerator of real NVIDIA GPUs.
const AcceleratorNVML = "nvml"

// Plan is how an engine is to be run.
type Plan struct {
	// Model is the model's path or repository name, and Revision the branch, tag or
	// commit that --revision names; "" for none.
	Model, Revision string

	// Folder is where the engine reads the model, in place of Model; "" for Model
	// itself. The names that clients call it by are the same. ReadFrom sets it.
	Folder string

	// ServedNames are the names that clients call the model by, at least one.
	ServedNames []string

	// The degrees of parallelism. The GPUs needed are their product, of which each rank of a
	// server has its part.
	TP, PP  int // tensor, pipeline
	PCP     int // prefill context
	DPLocal int // data parallel ranks in this engine

	// Rank is that of the Request.
	Rank *rank.Rank

	// PublicHost and PublicPort are --host and --port of the arguments: where
	// clients expect the instance. "" and 0: the launcher chooses. The function
	// PublicHost gives the host at which it does listen.
	PublicHost string
	PublicPort int

	// DeviceMemory says how much memory of each of its GPUs the engine takes for itself.
	DeviceMemory DeviceMemory

	// Forks: the engine can be forked from a preloader.
	Forks bool

	// TakesSocket: the engine can listen on a Unix socket. Otherwise its installation has to be
	// looked at.
	TakesSocket bool

	// Listens restricts where the engine can listen.
	Listens Listening

	// FindsModel: the engine finds its model by itself, and reads none of the launcher's store.
	FindsModel bool

	// Compiles is a text of all that the arguments say about what the engine compiles
	// when it starts: two with the same text compile the same for the same GPUs. ""
	// for an engine that compiles nothing.
	Compiles string

	// SleepMode says whether the engine is started with its sleep mode on. vLLM
	// without it can still be paused by Sleep, but keeps its device memory.
	SleepMode bool

	// APIKey is the key that the engine asks its clients for; "" for none.
	APIKey Secret

	// KeepAlive is how long the engine keeps an idle connection open; negative: it closes
	// each connection after its answer.
	KeepAlive time.Duration

	// Scratch is the variable that tells the engine where to keep its sockets;
	// empty when the user or the operator set it.
	Scratch string

	// Config is the content of the file that the arguments name with --config; nil:
	// they name none. ConfigPath is the file that the engine reads: that one, or a
	// copy once one is made, which nobody changes.
	Config     []byte
	ConfigPath string

	// ConfigWords are the options of the file that the arguments name with
	// --config, as arguments. They may be secrets.
	ConfigWords []string

	// Notes are lines for the instance's log: which parts of the request were
	// overridden, and why.
	Notes []string

	argv func(p Plan, at listenAt) []string
	env  []string

	// addressEnv returns the variables that tell the engine where to listen; nil: none do.
	addressEnv func(at listenAt) []string

	// inFolder checks that the engine can read its model in a folder, and says what memory the
	// model takes; nil: the engine finds out.
	inFolder func(folder string) (DeviceMemory, error)

	// lacks says what the engine needs of a model of the store; nil: as modelref.Lacks.
	lacks modelref.Need
}

// Lacks returns which of the files that a version of the store leaves out the engine needs.
func (p *Plan) Lacks(has, leftOut []string) []string {
	if p.lacks != nil {
		return p.lacks(has, leftOut)
	}
	return modelref.Lacks(has, leftOut)
}

// ReadFrom makes the engine read its model in a folder. The error is an *InputError, and says that
// the engine finds no model there, or several.
func (p *Plan) ReadFrom(folder string) error {
	if p.inFolder != nil {
		memory, err := p.inFolder(folder)
		if err != nil {
			return err
		}
		p.DeviceMemory = memory
	}
	p.Folder = folder
	return nil
}

// DeviceMemory is how much memory of each of its GPUs an engine takes: a share of the GPU's memory,
// or a number of bytes.
type DeviceMemory struct {
	Share float64 // from above 0 to 1; 0: Bytes
	Bytes uint64
}

// Of returns the bytes that the engine takes of a GPU that has that many.
func (m DeviceMemory) Of(total uint64) uint64 {
	if m.Share > 0 {
		return uint64(m.Share * float64(total))
	}
	return min(m.Bytes, total)
}

// GPUs is how many GPUs the engine needs.
func (p Plan) GPUs() int {
	all := p.TP * p.PP * p.PCP * p.DPLocal
	if p.Rank != nil {
		return all / p.Rank.Size
	}
	return all
}

// IsWorker reports whether the engine is a rank that serves no HTTP.
func (p Plan) IsWorker() bool { return p.Rank != nil && p.Rank.IsWorker() }

// Secret is a string that does not show when it is printed, logged or encoded.
type Secret string

const redacted = "[redacted]"

// String hides the secret from fmt and slog.
func (s Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return redacted }

// MarshalText hides the secret from encoders such as encoding/json.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// InputError is a request that cannot be honoured, in words for who sent it.
type InputError struct {
	Field   string // of the create body: options, args, env_vars.NAME, gpu_uuids, rank.size
	Flag    string // the engine's flag at fault, such as --uds; "" for none
	Message string // a whole sentence, which says what would be right
}

// Error gives the message alone: Field and Flag are for structured answers.
func (e *InputError) Error() string { return e.Message }

func inputError(field, flag, format string, args ...any) *InputError {
	return &InputError{Field: field, Flag: flag, Message: fmt.Sprintf(format, args...)}
}

// Exit is how an engine's main process ended.
type Exit struct {
	Code      *int // exit code; nil when a signal ended it or nothing is known
	Signal    int  // the signal's number; 0 for none
	OOMKilled bool // the kernel killed a process of the engine for want of main memory
}

// Cause is why an engine ended: a code for programs, a message for people.
type Cause struct {
	Code    CauseCode `json:"code"`
	Message string    `json:"message"`
}

// CauseCode names a cause.
type CauseCode string

// The causes.
const (
	CauseWrongFlag            CauseCode = "wrong_flag"
	CauseSleepModeUnsupported CauseCode = "sleep_mode_unsupported"
	CauseMaxModelLenTooLong   CauseCode = "max_model_len_too_long"
	CauseMIGUnsupported       CauseCode = "mig_unsupported"

	CauseOutOfDeviceMemory CauseCode = "out_of_device_memory" // while it loads or runs
	CauseDeviceMemoryTaken CauseCode = "device_memory_taken"  // other processes hold it when the engine starts
	CauseNoRoomForCache    CauseCode = "no_room_for_kv_cache"

	CauseModelNotFound    CauseCode = "model_not_found"
	CauseGatedModel       CauseCode = "gated_model"
	CauseHubUnreachable   CauseCode = "hub_unreachable"
	CauseModelUnsupported CauseCode = "model_unsupported"
	CauseModelBroken      CauseCode = "model_broken"

	CausePortTaken          CauseCode = "port_taken"
	CauseDeviceUnavailable  CauseCode = "device_unavailable"
	CauseDiskFull           CauseCode = "disk_full"
	CauseOutOfHostMemory    CauseCode = "out_of_host_memory" // an allocation failed
	CauseKilledForMemory    CauseCode = "killed_for_memory"  // the kernel killed the engine
	CauseBrokenInstallation CauseCode = "broken_installation"
	CauseProgramCannotBeRun CauseCode = "program_cannot_be_run"

	CauseEngineCoreDied CauseCode = "engine_core_died" // one of its processes
	CauseKilled         CauseCode = "killed"           // by a signal
	CauseExited         CauseCode = "exited"           // nothing more is known
)
