package launcherapi

import "time"

// SwapRequest makes one instance the awake one on a set of GPUs.
type SwapRequest struct {
	GPUUUIDs     []string  `json:"gpu_uuids,omitempty" maxItems:"64" doc:"The GPUs to swap on. Default: the GPUs of the incoming instance."`
	In           *SwapIn   `json:"in,omitempty" doc:"The instance that the swap makes awake. Absent: the swap only sends instances away."`
	Out          *SwapOut  `json:"out,omitempty" doc:"What happens to the instances that are awake on the GPUs. Default: they sleep at level 1."`
	DrainTimeout *Duration `json:"drain_timeout,omitempty" doc:"How long requests in flight may take to end before they are cut. Absent or 0: the launcher's drain_timeout. Use 1ms to cut them at once."`
	Timeout      *Duration `json:"timeout,omitempty" doc:"Limit of the whole swap, including the wait for its turn. A swap that exceeds it is undone, which may take 15 s more. Absent or 0: the launcher's start_timeout."`
	Canary       bool      `json:"canary,omitempty" doc:"Ask the incoming instance for one answer, such as a token or an embedding, before its gate opens. An instance that wakes is asked anyway."`
	Prepare      bool      `json:"prepare,omitempty" doc:"Take the turn on the GPUs and claim what the swap needs, and then change nothing before POST /v2/swaps/{swap_id}/go. A swap that waits for go is in the phase go."`
	Hold         *Duration `json:"hold,omitempty" doc:"With prepare: how long the swap waits for go before it is refused. At most 5m. Absent or 0: 30s."`
	Until        string    `json:"until,omitempty" enum:"healthy" doc:"healthy: once the incoming instance is awake, and before its gate opens, wait for POST /v2/swaps/{swap_id}/commit or undo, in the phase commit. At its timeout the swap is undone. Absent: do not wait."`
	DryRun       bool      `json:"dry_run,omitempty" doc:"Answer what the swap would do and whether it fits, and change nothing."`
}

// SwapIn names an instance that exists (instance_id) or describes a new one
// (the body of a create call, with an optional id).
type SwapIn struct {
	InstanceID  string              `json:"instance_id,omitempty" doc:"Id of an instance that exists. The swap starts one that has failed again, as it was described."`
	ID          string              `json:"id,omitempty" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]{0,127})?$" patternDescription:"usable as an instance id: a letter or digit, then letters, digits, '.', '_' or '-', at most 128 in all" doc:"Id for a new instance; it cannot be watch. Absent: the launcher makes one."`
	Options     *string             `json:"options,omitempty"`
	Args        []string            `json:"args,omitempty" maxItems:"4096"`
	EnvVars     map[string]EnvValue `json:"env_vars,omitempty" maxProperties:"4096"`
	Annotations map[string]string   `json:"annotations,omitempty" maxProperties:"1024"`
	Engine      string              `json:"engine,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" patternDescription:"the name of an engine, such as vllm: a letter or digit, then letters, digits, '.', '_' or '-', at most 64 in all" doc:"Which engine runs a new instance, as in a create call."`
	GPUUUIDs    []string            `json:"gpu_uuids,omitempty" maxItems:"64" doc:"Must equal the swap's gpu_uuids when both are given."`
	StartMethod string              `json:"start_method,omitempty" enum:"auto,exec,fork" doc:"How the launcher starts a new instance, as in a create call."`
	ModelCache  string              `json:"model_cache,omitempty" enum:"auto,require,off" doc:"Where a new instance reads its model from, as in a create call."`
	Rank        *Rank               `json:"rank,omitempty" doc:"Which rank a new instance is, as in a create call."`
}

// SwapOut says what happens to the instances that are awake on the GPUs.
type SwapOut struct {
	Mode  string `json:"mode,omitempty" enum:"sleep,stop" doc:"Default: sleep."`
	Level int    `json:"level,omitempty" minimum:"1" maximum:"2" doc:"Sleep level: 1 keeps the weights in main memory, 2 drops them. Default: 1; with mode stop: 2."`
}

// The values of SwapOut.Mode.
const (
	OutSleep = "sleep"
	OutStop  = "stop"
)

// UntilHealthy is the value of SwapRequest.Until.
const UntilHealthy = "healthy"

// Outcomes of a swap.
const (
	OutcomeDone        = "done"        // the incoming instance is awake, those in out are asleep or stopped
	OutcomeNoop        = "noop"        // everything was so already
	OutcomeRefused     = "refused"     // the swap changed nothing
	OutcomeUndone      = "undone"      // it failed; the instances that were awake are awake again
	OutcomeUndoFailed  = "undo_failed" // it failed, and some of it could not be undone in time
	OutcomeInterrupted = "interrupted" // the launcher is closing; it finishes or undoes the swap after its restart
	OutcomeDryRun      = "dry_run"
)

// Names of the phases of a swap, in order.
const (
	PhaseAdmit   = "admit"
	PhaseGo      = "go" // only with SwapRequest.Prepare
	PhaseDrain   = "drain"
	PhaseSleep   = "sleep"
	PhaseEvict   = "evict"
	PhaseWake    = "wake"
	PhaseStart   = "start"
	PhaseHealthy = "healthy"
	PhaseCanary  = "canary"
	PhaseCommit  = "commit" // only with SwapRequest.Until
	PhaseOpen    = "open"
	PhaseUndo    = "undo"
)

// SwapResult is the answer to a swap, and the last line of its progress.
type SwapResult struct {
	SwapID  string      `json:"swap_id"`
	Outcome string      `json:"outcome" enum:"done,noop,refused,undone,undo_failed,interrupted,dry_run"`
	In      *Instance   `json:"in,omitempty"`
	Out     []Instance  `json:"out"`
	Evicted []string    `json:"evicted,omitempty" doc:"Sleepers that the swap stopped to keep within the budgets. If the swap failed, some of them may still be stopping."`
	Deleted []string    `json:"deleted,omitempty" doc:"Leaving instances that a client deleted during the swap. An undo does not restore them."`
	Cut     int         `json:"cut_requests" doc:"Requests in flight that were cut at the deadline of the drain."`
	BeganAt time.Time   `json:"began_at,omitzero" doc:"When the swap began to wait for its turn."`
	Phases  []PhaseTime `json:"phases"`
	TotalMS float64     `json:"total_ms"`
}

// Swap is a swap that the launcher remembers: it waits for its turn, runs or is over.
type Swap struct {
	SwapID     string      `json:"swap_id"`
	State      string      `json:"state" enum:"waiting,running,over" doc:"waiting: the swap waits for its turn or for go, and can be cancelled. running: the launcher finishes or undoes it, whether or not a client waits."`
	GPUUUIDs   []string    `json:"gpu_uuids" doc:"The GPUs on which the swap has its turn, or waits for it."`
	InstanceID string      `json:"instance_id,omitempty" doc:"Id of the instance that comes in. Absent: the swap only sends instances away."`
	Phase      string      `json:"phase,omitempty" doc:"The phase that began last. Absent once the swap is over."`
	BeganAt    time.Time   `json:"began_at" doc:"When the swap began to wait for its turn."`
	Deadline   time.Time   `json:"deadline" doc:"If the swap is not done by then, the launcher refuses it, or undoes it if it runs."`
	Result     *SwapResult `json:"result,omitempty" doc:"The answer to a swap that is over and has not failed."`
	Problem    *Problem    `json:"problem,omitempty" doc:"The answer to a swap that has failed. A swap with a problem runs if its undo takes longer than its answer."`
}

// States of a swap.
const (
	SwapWaiting = "waiting"
	SwapRunning = "running"
	SwapOver    = "over"
)

// SwapList has the swaps that the launcher remembers.
type SwapList struct {
	Swaps []Swap `json:"swaps" doc:"Oldest first: all that wait or run, and those that are over: the last 100, which the launcher forgets when it ends, and the last 1,000 with an Idempotency-Key. A result or a problem comes without instances, phases and log lines here."`
}

// CalledOff is the answer to a call that cancels a swap which waits for its turn.
type CalledOff struct {
	SwapID string `json:"swap_id"`
}

// SwapProgress is one line of a streamed swap: a phase began, a phase ended, or the swap
// ended with a result or a problem.
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
