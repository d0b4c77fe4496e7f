package launcherapi

import (
	"fmt"
	"time"
)

// InstanceSpec is the body of a create call: what to run and on which GPUs.
// Exactly one of Options and Args is given.
type InstanceSpec struct {
	Options     *string             `json:"options,omitempty" doc:"The engine's command line as one string, split by shell rules; quotes are respected." example:"Qwen/Qwen3-8B --max-model-len 4096"`
	Args        []string            `json:"args,omitempty" maxItems:"4096" doc:"The engine's command line as a list; nothing is split."`
	GPUUUIDs    []string            `json:"gpu_uuids,omitempty" maxItems:"64" doc:"UUIDs of the GPUs to run on; the engine sees them in this order. Their number must be tensor-parallel × pipeline-parallel × local data-parallel size. Absent: the engine chooses its devices by itself, and its device memory counts as foreign."`
	EnvVars     map[string]EnvValue `json:"env_vars,omitempty" maxProperties:"4096" doc:"Environment variables of the engine; they override the launcher's own. A value is a string or {\"from_file\": path}."`
	Annotations map[string]string   `json:"annotations,omitempty" maxProperties:"1024" doc:"The launcher keeps and shows them. hotseat.dev/pinned=true keeps the instance from being evicted."`
	Engine      string              `json:"engine,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" patternDescription:"the name of an engine, such as vllm: a letter or digit, then letters, digits, '.', '_' or '-', at most 64 in all" doc:"Which engine runs it: vllm, llamacpp, or the name of a command of the launcher's configuration. Default: vllm."`
	StartMethod string              `json:"start_method,omitempty" enum:"auto,exec,fork" doc:"fork: fork from a preloader; refused unless a fitting one is ready. exec: run the engine's command. auto: fork, after a wait for a preloader that is loading, or exec if no preloader is possible. Default: the launcher's start_method."`
	ModelCache  string              `json:"model_cache,omitempty" enum:"auto,require,off" doc:"auto (default): the engine reads the model from the launcher's model store or from a claim if one of them has it, and else finds it by itself. require: the call is refused unless one of them has the model whole. off: the engine finds the model by itself."`
	Rank        *Rank               `json:"rank,omitempty" doc:"The instance is one rank of a server over several launchers. Absent: it is a server by itself."`
}

// Values of InstanceSpec.ModelCache, and of Instance.ModelFrom.
const (
	ModelCacheAuto    = "auto"
	ModelCacheRequire = "require"
	ModelCacheOff     = "off"

	ModelFromCache  = "cache"
	ModelFromSource = "source"
)

// AnnotationPinned is the annotation that, with the value "true", keeps a sleeper from being evicted.
const AnnotationPinned = "hotseat.dev/pinned"

// AnnotationGPUMemory is the annotation that says how many bytes of each of its GPUs an instance of a
// command takes, as a decimal number.
const AnnotationGPUMemory = "hotseat.dev/gpu-memory"

// Annotations of the instances of the front door's models, which no client may give: the model's
// name, and a digest of what its engine was started with.
const (
	AnnotationModel       = "hotseat.dev/model"
	AnnotationModelDigest = "hotseat.dev/model-digest"
)

// Status is the coarse state that the llm-d launcher's clients know.
type Status string

// The two values of Status.
const (
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
)

// Instance is one supervised engine as the launcher shows it.
type Instance struct {
	InstanceID string `json:"instance_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" doc:"Identity of the instance on this launcher."`
	Status     Status `json:"status" enum:"running,stopped"`
	State      string `json:"state" enum:"starting,awake,falling_asleep,sleeping,waking,stopping,stopped,failed" doc:"State of the instance; see spec/states.md."`
	Reason     string `json:"reason,omitempty" doc:"Why it is in this state, in words."`
	Cause      string `json:"cause,omitempty" doc:"Short code of a recognised failure, such as out_of_device_memory or model_not_found."`

	ExitCode     *int     `json:"exit_code,omitempty" doc:"Exit code of the engine; −N for signal N. Absent while it runs, or if its exit code is unknown."`
	LastLogLines []string `json:"last_log_lines,omitempty" doc:"On failure: the end of the engine's log."`

	Options     *string             `json:"options,omitempty"`
	Args        []string            `json:"args,omitempty"`
	GPUUUIDs    []string            `json:"gpu_uuids,omitempty"`
	EnvVars     map[string]EnvValue `json:"env_vars,omitempty" doc:"As given, but with values redacted that look like secrets. With --llm-d-compat also the CUDA_VISIBLE_DEVICES that the launcher sets."`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Engine      string              `json:"engine"`
	StartMethod string              `json:"start_method,omitempty" doc:"As given."`
	Rank        *Rank               `json:"rank,omitempty" doc:"As given."`
	StartedBy   string              `json:"started_by,omitempty" enum:"exec,fork" doc:"How the launcher made its process; absent before. If fork was asked for and exec was used, reason says why, until the instance sleeps or ends."`

	Model            string   `json:"model" doc:"Name of the model in the request."`
	ModelCache       string   `json:"model_cache,omitempty" doc:"As given."`
	ModelFrom        string   `json:"model_from,omitempty" enum:"cache,source" doc:"cache: the engine reads the model from the launcher's model store or from a claim. source: the engine finds the model by itself, and model_why says why. Absent if the launcher has no store."`
	ModelWhy         string   `json:"model_why,omitempty"`
	ModelID          string   `json:"model_id,omitempty" doc:"With model_from cache: id of the version in the store. The version cannot be removed from the launcher's own store while the instance lives."`
	ModelPath        string   `json:"model_path,omitempty" doc:"Folder from which the engine reads the model, in the model store or in a claim."`
	ServedModelNames []string `json:"served_model_names" doc:"Names that clients may ask for."`
	SleepLevel       int      `json:"sleep_level,omitempty" minimum:"1" maximum:"2" doc:"Level at which it sleeps: 1 keeps the weights in main memory, 2 drops them."`

	Host     string `json:"host,omitempty" doc:"Address of the public port: --host of the arguments, limited by the launcher's instance_host. Absent while the port is closed."`
	Port     int    `json:"port" minimum:"0" maximum:"65535" doc:"Public port, at which the launcher's proxy serves inference and read-only paths. 0 after it was released, and for a rank that is not the entry."`
	Leased   []int  `json:"leased_ports,omitempty" doc:"Ports that the instance has taken over from its port lease: $(PORT_0), $(PORT_1) and so on."`
	PID      int    `json:"pid,omitempty" minimum:"1" doc:"Process id of the engine's API server."`
	LogName  string `json:"log_name,omitempty" doc:"Name of its log file, in the folder logs of the state folder."`
	AsleepAt int64  `json:"asleep_log_bytes,omitempty" doc:"Length of its log when it last fell asleep. The engine wrote the rest after that."`
	SwapID   string `json:"swap_id,omitempty" doc:"The swap that has claimed it, to make it awake, send it away or evict it."`
	InFlight int    `json:"in_flight" doc:"Inference requests that the engine is working on."`
	Held     int    `json:"held" doc:"Inference requests that wait at the gate."`

	CreatedAt  time.Time   `json:"created_at"`
	StateSince time.Time   `json:"state_since"`
	LastUsedAt *time.Time  `json:"last_used_at,omitempty" doc:"When an inference request last began or ended, or it was last woken."`
	Timings    []PhaseTime `json:"timings,omitempty" doc:"How long each phase of its life took, the latest of each name."`

	GPUBytes  map[string]uint64 `json:"gpu_memory_bytes,omitempty" doc:"Device memory held, by GPU UUID, where measured."`
	HostBytes uint64            `json:"host_memory_bytes,omitempty" doc:"While asleep: main memory of its process tree, without the part that it shares with its preloader."`

	Revision uint64 `json:"revision" doc:"Revision of the last change of this instance."`
}

// PhaseTime is how long one phase took.
type PhaseTime struct {
	Name       string  `json:"name"`
	InstanceID string  `json:"instance_id,omitempty"`
	BeganMS    float64 `json:"began_ms,omitempty" doc:"For a phase of a swap: time from the beginning of the swap."`
	DurationMS float64 `json:"duration_ms"`
}

// InstanceList is the answer to a list call with detail.
type InstanceList struct {
	Revision         uint64     `json:"revision"`
	TotalInstances   int        `json:"total_instances"`
	RunningInstances int        `json:"running_instances"`
	Instances        []Instance `json:"instances"`
}

// InstanceIDList is the answer to a list call with detail=false.
type InstanceIDList struct {
	Revision    uint64   `json:"revision"`
	InstanceIDs []string `json:"instance_ids"`
	Count       int      `json:"count"`
}

// StoppedList is the answer to a call that deletes every instance.
type StoppedList struct {
	Status           string     `json:"status" enum:"all_stopped"`
	StoppedInstances []Instance `json:"stopped_instances"`
	TotalStopped     int        `json:"total_stopped"`
}

// AllStopped is the status in a StoppedList.
const AllStopped = "all_stopped"

// SleepRequest asks for an instance to be put to sleep.
type SleepRequest struct {
	Level        int       `json:"level,omitempty" minimum:"1" maximum:"2" doc:"1 (default) keeps the weights in main memory, 2 drops them."`
	DrainTimeout *Duration `json:"drain_timeout,omitempty" doc:"How long requests in flight may take to end before they are cut. Absent or 0: the launcher's drain_timeout. Use 1ms to cut them at once."`
	Timeout      *Duration `json:"timeout,omitempty" doc:"How long the engine may take to fall asleep. Absent or 0: the launcher's sleep_timeout."`
	Wait         *bool     `json:"wait,omitempty" doc:"false: answer 202 at once; the watch stream brings the outcome. Default: true."`
}

// CheckSleepLevel refuses a level other than 1 and 2. vLLM itself answers 200 to any
// level.
func CheckSleepLevel(level int) error {
	if level != 1 && level != 2 {
		return fmt.Errorf("sleep level %d does not exist: 1 keeps the weights in main memory, 2 drops them", level)
	}
	return nil
}

// WakeRequest asks for a sleeping instance to be woken.
type WakeRequest struct {
	Timeout *Duration `json:"timeout,omitempty" doc:"How long the engine may take to wake. Absent or 0: the launcher's wake_timeout."`
	Wait    *bool     `json:"wait,omitempty" doc:"false: answer 202 at once; the watch stream brings the outcome. Default: true."`
}
