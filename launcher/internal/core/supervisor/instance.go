package supervisor

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// facts are known of an instance from its making on. No secret is among them, so
// facts may be shown and written down.
type facts struct {
	ID          string                   `json:"id"`
	Spec        launcherapi.InstanceSpec `json:"spec"` // redacted
	Model       string                   `json:"model"`
	ServedNames []string                 `json:"served_names"`
	PublicHost  string                   `json:"public_host,omitempty"`
	PublicPort  int                      `json:"public_port"`
	EnginePort  int                      `json:"engine_port"`
	LogName     string                   `json:"log_name"`
	StartedBy   string                   `json:"started_by,omitempty"`
	MadeBy      string                   `json:"made_by,omitempty"`   // the swap that made the instance; empty: none did
	Expected    map[string]uint64        `json:"expected,omitempty"`  // device memory while awake
	Inherited   uint64                   `json:"inherited,omitempty"` // main memory that each process of a forked engine began with
	Local       local                    `json:"local,omitzero"`
	Compiles    string                   `json:"compiles,omitempty"` // names what the engine compiles when it starts; empty: nothing that is kept
}

// instance is one supervised engine. The supervisor's lock guards all of it.
type instance struct {
	facts   facts
	engine  engine.Engine
	apiKey  engine.Secret
	secrets secrets.Set // hidden in reasons and log lines that clients see
	// keyForgotten: the instance was adopted, and its API key could not be read
	// from its process.
	keyForgotten bool
	tree         Tree            // nil before the process is made, and when making it failed
	exitTold     <-chan struct{} // closed once the exit of the root was handled, or nobody watches any more
	root         process.ID
	gate         Gate
	private      Reservation

	state    launcher.State
	created  time.Time
	since    time.Time
	released bool // ended, and nothing is held: tree gone, memory back, ports closed
	slept    bool // the instance was asleep when its end began
	reason   string
	unended  string // why the tree could not be ended yet; empty: no attempt has failed
	cause    string
	exit     *process.Exit
	lastLog  []string
	level    int // of the present or the coming sleep
	timings  []launcherapi.PhaseTime
	revision uint64

	awakeBytes map[string]uint64
	residue    map[string]uint64
	hostBytes  uint64
	asleepAt   int64 // length of the log when the instance last fell asleep
	lastWoken  time.Time

	swapID    string // of the swap that has claimed the instance; empty: none has
	shownSwap string // swapID as clients see it: once the swap is admitted
	victim    bool   // that swap is going to evict the instance
	holdGate  bool   // the gate of the awake instance stays shut until the swap opens the gate
	deleting  bool   // the instance is to be forgotten once it is released
	waiting   bool   // no process is made yet: the launcher waits for a preloader to fork one, or for what another instance compiles
	compiling bool   // the instance has had the turn to compile; it has it while it is starting
	found     bool   // the instance had no record on disk: its process was found when the launcher started
	unheard   bool   // the record was out of date, and the engine did not say whether it sleeps: it may, at level 2

	op      *operation
	changed chan struct{} // closed and replaced when anything changes
	over    chan struct{} // closed once released

	unendedSince time.Time

	sleepChecked, wakeChecked atomic.Bool // the engine was asked whether it sleeps, or is awake, after it was told to, and did
}

// operation is one conversation with an engine: a start, a sleep or a wake. An
// event of an operation that is no longer the instance's current one is stale and
// changes nothing.
type operation struct {
	ctx     context.Context //nolint:containedctx // the life of the operation, which outlives the call that began it
	cancel  context.CancelCauseFunc
	gate    Gate
	level   int
	drain   time.Duration
	limit   time.Duration
	err     error // why the operation failed
	cut     int   // requests cut by the drain
	drained bool  // the drain of a sleep is over
	resumed bool  // an earlier life of the launcher began the operation: how far the engine has got is not known

	asked    time.Time               // when the engine was told to sleep or wake
	giveUp   context.CancelCauseFunc // ends the wait for the engine's answer
	cutShort bool
}

func (i *instance) base() string { return fmt.Sprintf("http://127.0.0.1:%d", i.facts.EnginePort) }

func (i *instance) gpus() []string { return i.facts.Spec.GPUUUIDs }

func (i *instance) pinned() bool {
	return i.facts.Spec.Annotations[launcherapi.AnnotationPinned] == "true"
}

// lastUsed is when the instance last served a request, or else was last woken.
func (i *instance) lastUsed() time.Time {
	last := i.lastWoken
	if i.gate != nil && i.gate.LastUsed().After(last) {
		last = i.gate.LastUsed()
	}
	return last
}

func (i *instance) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *instance) untime(name string) {
	i.timings = slices.DeleteFunc(slices.Clone(i.timings), func(p launcherapi.PhaseTime) bool { return p.Name == name })
}

func (i *instance) timed(name string, took time.Duration) {
	i.untime(name)
	i.timings = append(i.timings, launcherapi.PhaseTime{Name: name, DurationMS: float64(took.Microseconds()) / 1000})
}

// view shows the instance as clients see it. The view shares slices and maps with
// the instance, which replaces and never changes them.
func (i *instance) view() launcherapi.Instance {
	v := launcherapi.Instance{
		InstanceID: i.facts.ID, Status: i.state.Status(), State: string(i.state),
		Reason: join(i.reason, i.unended), Cause: i.cause, LastLogLines: i.lastLog,
		Options: i.facts.Spec.Options, Args: i.facts.Spec.Args, GPUUUIDs: i.facts.Spec.GPUUUIDs,
		EnvVars: i.facts.Spec.EnvVars, Annotations: i.facts.Spec.Annotations, Engine: i.engine.Name(),
		StartMethod: i.facts.Spec.StartMethod, StartedBy: i.facts.StartedBy,
		Model: i.facts.Model, ServedModelNames: i.facts.ServedNames,
		ModelCache: i.facts.Spec.ModelCache, ModelFrom: i.facts.Local.From, ModelWhy: i.facts.Local.Why, ModelID: i.facts.Local.ID, ModelPath: i.facts.Local.Folder,
		Port: i.facts.PublicPort, PID: i.root.PID, LogName: i.facts.LogName, SwapID: i.shownSwap,
		CreatedAt: i.created.UTC(), StateSince: i.since.UTC(), Timings: i.timings,
		HostBytes: i.hostBytes, AsleepAt: i.asleepAt, Revision: i.revision,
	}
	if i.state == launcher.Sleeping || i.state == launcher.FallingAsleep || i.state == launcher.Waking {
		v.SleepLevel = i.level
	}
	if i.released {
		v.Port = 0 // another instance may have it by now
	}
	if i.exit != nil {
		v.ExitCode = i.exit.Code
	}
	if i.gate != nil {
		v.Host = i.gate.Host()
		v.InFlight, v.Held = i.gate.InFlight(), i.gate.Held()
	}
	if last := i.lastUsed(); !last.IsZero() {
		last = last.UTC()
		v.LastUsedAt = &last
	}
	switch {
	case i.state == launcher.Sleeping:
		v.GPUBytes = i.residue
	case !i.state.Ended():
		v.GPUBytes = i.awakeBytes
	}
	return v
}

// entry is the instance as the ledger sees it; now is the device memory that was
// just measured, by GPU.
func (i *instance) entry(now map[string]uint64) ledger.Instance {
	return ledger.Instance{
		ID: i.facts.ID, State: i.state, Since: i.since, Released: i.released, AsleepBeforeEnd: i.slept, GPUs: i.gpus(),
		Expected: i.facts.Expected, Awake: i.awakeBytes, Residue: i.residue, HeldNow: now,
		HostBytes: i.hostBytes, LastUsed: i.lastUsed(), Pinned: i.pinned(), SwapID: i.swapID, Victim: i.victim,
	}
}
