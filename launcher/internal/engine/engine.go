// Package engine adapts an inference engine to the launcher: it turns what a
// client asked for into a command line and an environment, speaks the engine's
// health, sleep and wake endpoints, and says in plain words why an engine died.
//
// Deciding (Plan, Diagnose) has no side effects but for reading the file that
// the arguments name with --config. A second engine is a second implementation
// of Engine in a file of its own.
package engine

import (
	"context"
	"fmt"
)

// Engine is one kind of inference engine.
type Engine interface {
	// Name is what a create body calls this engine, such as "vllm".
	Name() string

	// Plan decides how to run what was asked for. Its errors are *InputError
	// where the request is at fault.
	Plan(Request) (Plan, error)

	// Running reads what the arguments and the environment of a process tell of
	// the engine in it. The error says that it was not started with a Plan.
	Running(argv, env []string) (Running, error)

	// Ready asks once whether the engine at base (such as
	// "http://127.0.0.1:40001") is up. It is nil when it is. Refused tells that
	// nothing listens there yet; a *StatusError that something answered
	// otherwise.
	Ready(ctx context.Context, base string) error

	// IsSleeping asks whether the engine sleeps.
	IsSleeping(ctx context.Context, base string) (bool, error)

	// Sleep puts the engine to sleep at level 1 (weights kept in host memory)
	// or 2 (weights dropped), and returns once the engine has done so; check
	// asks it afterwards whether it sleeps, and is an error when it does not.
	// Requests in flight are aborted: drain first. Sleeping twice is no error.
	Sleep(ctx context.Context, base string, level int, check bool) error

	// Wake undoes a Sleep of that level and returns once the engine has woken;
	// check asks it afterwards. Waking twice is no error.
	Wake(ctx context.Context, base string, level int, check bool) error

	// Canary has the model make one token. The key is the plan's APIKey.
	Canary(ctx context.Context, base, model string, key Secret) error

	// Diagnose explains an exit from the last lines of the engine's log,
	// oldest first. It always answers something.
	Diagnose(exit Exit, tail []string) Cause

	// Close gives back the idle connections.
	Close()
}

// Request is what a create body asked for, with GPUs and secrets resolved.
type Request struct {
	// Options is one string, split by the rules of a POSIX shell; Args is the
	// list. Exactly one of them is given (not nil); both may be empty.
	Options *string
	Args    []string

	// GPUs in the order asked for. Empty: the engine sees what the launcher
	// sees, and the number of GPUs is not checked.
	GPUs []GPU

	// Env is the user's environment, secrets resolved.
	Env map[string]string

	// Accelerator is where the GPUs come from: "nvml", "simulated", "file".
	Accelerator string

	// InstanceHost is where the public ports of instances listen, and no wider;
	// "" for loopback.
	InstanceHost string

	// SleepMode says whether the engine is started with its sleep mode on:
	// SleepModeAuto (or ""), SleepModeAlways, SleepModeNever.
	SleepMode string

	// BaseEnv is the launcher's own environment (KEY=value), which the engine
	// inherits but for the launcher's settings and secrets.
	BaseEnv []string

	// ExtraEnv is what the GPU provider adds (KEY=value). It wins over Env.
	ExtraEnv []string
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
	// Model is the model's path or repository name.
	Model string

	// ServedNames are the names that clients call the model by, at least one.
	ServedNames []string

	// The degrees of parallelism. The GPUs needed are their product.
	TP, PP  int // tensor, pipeline
	PCP     int // prefill context
	DPLocal int // data parallel ranks in this engine

	// PublicHost and PublicPort are --host and --port of the arguments: where
	// clients expect the instance. "" and 0: the launcher chooses. Where it does
	// listen is for the function PublicHost to say.
	PublicHost string
	PublicPort int

	// GPUMemoryUtilization is the share of each GPU's memory, from above 0 to
	// 1, that the engine takes for itself.
	GPUMemoryUtilization float64

	// SleepMode says whether the engine is started with its sleep mode on. vLLM
	// without it can still be paused by Sleep, but keeps its device memory.
	SleepMode bool

	// APIKey is the key that the engine asks its clients for; "" for none.
	APIKey Secret

	// Scratch is the variable that tells the engine where to keep its sockets;
	// empty when the user or the operator set it.
	Scratch string

	// Config is what was read of the file that the arguments name with --config,
	// nil without one. ConfigPath is where the engine finds it: that file, until
	// a copy is made which nobody changes.
	Config     []byte
	ConfigPath string

	// ConfigWords are the options of the file that the arguments name with
	// --config, as arguments. They may be secrets.
	ConfigWords []string

	// Notes are lines for the instance's log: what of the request was
	// overridden, and why.
	Notes []string

	argv func(host string, port int, config string) []string
	env  []string
}

// GPUs is how many GPUs the engine needs.
func (p Plan) GPUs() int { return p.TP * p.PP * p.PCP * p.DPLocal }

// Argv is everything after the program's name, with the engine listening on
// host and port and nowhere else. It is a fresh slice.
func (p Plan) Argv(host string, port int) []string { return p.argv(host, port, p.ConfigPath) }

// Env is the engine's whole environment (KEY=value), sorted by key. It is a
// fresh slice. It may hold secrets.
func (p Plan) Env() []string { return append([]string(nil), p.env...) }

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
	Field   string // of the create body: options, args, env_vars.NAME, gpu_uuids
	Flag    string // the engine's flag at fault, such as --uds; "" for none
	Message string // whole, and says what to do
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
	OOMKilled bool // the kernel killed something of it for want of host memory
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
	CauseDeviceMemoryTaken CauseCode = "device_memory_taken"  // others hold it when it starts
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
	CauseKilledForMemory    CauseCode = "killed_for_memory"  // the kernel killed it
	CauseBrokenInstallation CauseCode = "broken_installation"
	CauseProgramCannotBeRun CauseCode = "program_cannot_be_run"

	CauseEngineCoreDied CauseCode = "engine_core_died" // one of its processes
	CauseKilled         CauseCode = "killed"           // by a signal
	CauseExited         CauseCode = "exited"           // nothing more is known
)
