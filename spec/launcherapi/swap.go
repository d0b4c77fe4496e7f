package launcherapi

import "time"

// SwapRequest makes one instance the awake one on a set of GPUs.
type SwapRequest struct {
	GPUUUIDs     []string  `json:"gpu_uuids,omitempty" maxItems:"64" doc:"The GPUs to act on. Default: those of the instance to come in."`
	In           *SwapIn   `json:"in,omitempty" doc:"What shall be awake afterwards. Absent: swap out only."`
	Out          *SwapOut  `json:"out,omitempty" doc:"What becomes of whatever is awake there. Default: sleep at level 1."`
	DrainTimeout *Duration `json:"drain_timeout,omitempty" doc:"How long answers in flight may take to end before they are cut. Absent or 0: the launcher's drain_timeout. 1ms does not wait for them."`
	Timeout      *Duration `json:"timeout,omitempty" doc:"Limit of the whole swap, the wait for its turn included; past it the swap is undone, for which it may take 15 s longer. Absent or 0: the launcher's start_timeout."`
	Canary       bool      `json:"canary,omitempty" doc:"Ask the new one for one token before its gate opens."`
	DryRun       bool      `json:"dry_run,omitempty" doc:"Say what would happen and whether it fits; touch nothing."`
}

// SwapIn names an instance that exists (instance_id) or describes a new one
// (the body of a create call, with an optional id).
type SwapIn struct {
	InstanceID  string              `json:"instance_id,omitempty" doc:"An instance that exists."`
	ID          string              `json:"id,omitempty" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]{0,127})?$" patternDescription:"usable as an instance id: a letter or digit, then letters, digits, '.', '_' or '-', at most 128 in all" doc:"Id for a new instance, not watch; made by the launcher when absent."`
	Options     *string             `json:"options,omitempty"`
	Args        []string            `json:"args,omitempty" maxItems:"4096"`
	EnvVars     map[string]EnvValue `json:"env_vars,omitempty" maxProperties:"4096"`
	Annotations map[string]string   `json:"annotations,omitempty" maxProperties:"1024"`
	Engine      string              `json:"engine,omitempty" enum:"vllm"`
	GPUUUIDs    []string            `json:"gpu_uuids,omitempty" maxItems:"64" doc:"Must equal the swap's gpu_uuids when both are given."`
	StartMethod string              `json:"start_method,omitempty" enum:"auto,exec,fork" doc:"How a new instance is started, as in a create call."`
	ModelCache  string              `json:"model_cache,omitempty" enum:"auto,require,off" doc:"From where a new instance has its model, as in a create call."`
}

// SwapOut says what becomes of whatever is awake on the GPUs.
type SwapOut struct {
	Mode  string `json:"mode,omitempty" enum:"sleep,stop" doc:"Default: sleep."`
	Level int    `json:"level,omitempty" minimum:"1" maximum:"2" doc:"Sleep level: 1 keeps the weights in host memory, 2 drops them. Default: 1, and 2 with mode stop."`
}

// The values of SwapOut.Mode.
const (
	OutSleep = "sleep"
	OutStop  = "stop"
)

// Outcomes of a swap.
const (
	OutcomeDone        = "done"        // in is awake, out is asleep or gone
	OutcomeNoop        = "noop"        // it was so already
	OutcomeRefused     = "refused"     // nothing was touched
	OutcomeUndone      = "undone"      // it failed; whoever was awake is awake again
	OutcomeUndoFailed  = "undo_failed" // it failed, and not everything could be undone, or not in time
	OutcomeInterrupted = "interrupted" // the launcher is closing: it finishes or undoes the swap when it is back
	OutcomeDryRun      = "dry_run"
)

// Names of the phases of a swap, in order.
const (
	PhaseAdmit   = "admit"
	PhaseDrain   = "drain"
	PhaseSleep   = "sleep"
	PhaseEvict   = "evict"
	PhaseWake    = "wake"
	PhaseStart   = "start"
	PhaseHealthy = "healthy"
	PhaseCanary  = "canary"
	PhaseOpen    = "open"
	PhaseUndo    = "undo"
)

// SwapResult is the answer to a swap, and the last line of its progress.
type SwapResult struct {
	SwapID  string      `json:"swap_id"`
	Outcome string      `json:"outcome" enum:"done,noop,refused,undone,undo_failed,interrupted,dry_run"`
	In      *Instance   `json:"in,omitempty"`
	Out     []Instance  `json:"out"`
	Evicted []string    `json:"evicted,omitempty" doc:"Sleepers that were stopped to keep within the budgets; in a swap that failed also those whose stop is not over."`
	Deleted []string    `json:"deleted,omitempty" doc:"Those that were to leave and that somebody deleted meanwhile. An undo does not bring them back."`
	Cut     int         `json:"cut_requests" doc:"Answers in flight that were cut when the drain ran out of time."`
	BeganAt time.Time   `json:"began_at,omitzero" doc:"When the swap began, the wait for its turn included."`
	Phases  []PhaseTime `json:"phases"`
	TotalMS float64     `json:"total_ms"`
}

// CalledOff answers a swap that was called off while it waited for its turn.
type CalledOff struct {
	SwapID string `json:"swap_id"`
}

// SwapProgress is one line of a streamed swap: a phase that began, a phase
// that ended, or the end (result or problem).
type SwapProgress struct {
	Type       string      `json:"type" enum:"phase_started,phase_done,result,problem"`
	SwapID     string      `json:"swap_id"`
	Phase      string      `json:"phase,omitempty"`
	InstanceID string      `json:"instance_id,omitempty"`
	DurationMS float64     `json:"duration_ms,omitempty"`
	Result     *SwapResult `json:"result,omitempty"`
	Problem    *Problem    `json:"problem,omitempty"`
}

// Types of SwapProgress.
const (
	ProgressStarted = "phase_started"
	ProgressDone    = "phase_done"
	ProgressResult  = "result"
	ProgressProblem = "problem"
)
