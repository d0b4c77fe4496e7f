package supervisor

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// facts are known of an instance from its creation on. They hold no secret but the
// launcher's marks, which clients do not see, so that records may have them.
type facts struct {
	ID          string                   `json:"id"`
	Mark        string                   `json:"mark,omitempty"`         // of the launcher that has the instance; empty: an earlier release wrote the record
	EarlierMark string                   `json:"earlier_mark,omitempty"` // that its processes carry; empty: Mark
	Spec        launcherapi.InstanceSpec `json:"spec"`                   // redacted
	Model       string                   `json:"model"`
	ServedNames []string                 `json:"served_names"`
	PublicHost  string                   `json:"public_host,omitempty"`
	PublicPort  int                      `json:"public_port"`
	AskedPort   int                      `json:"asked_port,omitempty"` // the public port before another process took it; 0: PublicPort
	EnginePort  int                      `json:"engine_port"`          // 0: the engine listens on EngineSocket, or it is not known where
	// EngineSocket is the path of the Unix socket at which the engine listens.
	EngineSocket string        `json:"engine_socket,omitempty"`
	Ports        []int         `json:"ports,omitempty"`      // that were leased for the instance
	KeepAlive    time.Duration `json:"keep_alive,omitempty"` // as in engine.Plan; 0: an earlier release wrote the record
	LogName      string        `json:"log_name"`
	StartedBy    string        `json:"started_by,omitempty"`
	MadeBy       string        `json:"made_by,omitempty"` // the swap that created the instance; empty: none
	// StartedAgain: a swap made the instance in place of one of the same id that had ended.
	StartedAgain bool              `json:"started_again,omitempty"`
	Expected     map[string]uint64 `json:"expected,omitempty"`  // device memory while awake
	Inherited    uint64            `json:"inherited,omitempty"` // main memory that each process of a forked engine starts with
	Local        modelSource       `json:"local,omitzero"`
	Compiles     string            `json:"compiles,omitempty"` // name of what the engine compiles when it starts; empty: nothing that is cached
}

// instance is one supervised engine. The supervisor's lock guards all of it.
type instance struct {
	facts   facts
	engine  engine.Engine
	apiKey  engine.Secret
	secrets secrets.Set // hidden in reasons and log lines that clients see
	// keyForgotten: the API key of the adopted instance could not be read from its
	// process.
	keyForgotten bool
	tree         Tree            // nil until the process is started, and if that failed
	draft        *Draft          // of an instance that has no process while it sleeps; nil: it is read from the request again
	exitHandled  <-chan struct{} // closed once the root's exit was handled, or no goroutine watches it any more
	root         process.ID
	gate         Gate
	private      Reservation

	state           launcher.State
	created         time.Time
	since           time.Time
	released        bool // ended, and holds nothing: tree gone, memory back, ports closed
	asleepBeforeEnd bool // the instance was asleep when its end began
	reason          string
	endFailure      string // why the tree could not be ended yet; empty: no attempt has failed
	awaitsDisk      string // why the launcher waits for the disk before it judges the engine; empty: it does not
	unreachable     string // that nothing listens at the engine's address, and what the launcher does about it; empty: it is not known
	portTaken       string // why the instance has another public port than it had; empty: it has not
	cause           string
	exit            *process.Exit
	lastLog         []string
	level           int // of the current or the next sleep
	timings         []launcherapi.PhaseTime
	revision        uint64
	announced       bool // watchers were told of the instance

	awakeBytes map[string]uint64 // of a worker, 0: it holds nothing of the GPU
	confirmed  bool              // the worker has loaded: a swap that brought it in was committed, or it was seen to hold its device memory
	// toBeMeasured: after a failed sleep, the instance is measured once the drivers of its
	// GPUs answer.
	toBeMeasured bool
	residue      map[string]uint64
	hostBytes    uint64
	asleepAt     int64 // length of the log when the instance last fell asleep
	lastWoken    time.Time
	// unmeasured: a wake failed while the driver of a GPU did not answer, so that part of the
	// instance may be awake while it sleeps; it is measured once the driver answers.
	unmeasured bool

	fingerprint *fingerprint // nil: none was taken
	hangChecked bool         // whether its engine hangs is being found out
	// listenChecked: whether its engine listens is being found out.
	listenChecked bool
	staleRecord   bool // the instance was adopted without a record, or with a stale one

	swapID          string    // the swap that has claimed the instance; empty: none
	publishedSwapID string    // swapID as clients see it, once the swap is recorded
	victim          bool      // that swap will evict the instance
	gateHeldShut    bool      // the gate stays shut while awake, until the swap opens it
	deleting        bool      // forget the instance once it is released
	endWanted       bool      // a swap that is undone ends the instance as soon as its process runs
	startDeferred   bool      // no process is started yet: the launcher waits for a preloader, or for an instance that compiles the same
	hasCompileTurn  bool      // the instance took the turn to compile; it has the turn while it is starting
	replaces        *instance // an instance of the same id that is over; nil once the new one is recorded
	foundUnrecorded bool      // the instance had no record when a launcher found its processes
	sleepUnknown    bool      // the record was stale and the engine did not answer whether it sleeps: it may sleep, at level 2

	record *statedir.Write // the latest; nil: none was written yet

	op           *operation
	changed      chan struct{} // closed and replaced when anything changes
	whenReleased chan struct{} // closed once released

	endFailureSince time.Time

	levelOnDisk int // sleep level that the record on the disk names; 0: it is not known

	sleepChecked, wakeChecked atomic.Bool // the engine has once obeyed a sleep or wake, by its own answer
}

// operation is a start, a sleep or a wake of an engine. Events of an operation that is no
// longer the instance's current one are stale and change nothing.
type operation struct {
	ctx         context.Context //nolint:containedctx // ends with the operation, which outlives the call that began it
	cancel      context.CancelCauseFunc
	gate        Gate
	level       int
	drain       time.Duration
	limit       time.Duration
	err         error // why the operation failed
	cut         int   // requests cut by the drain
	drained     bool  // the drain of a sleep is over
	resumed     bool  // an earlier launcher began the operation: how far the engine got is not known
	levelOnDisk bool  // the record on the disk names the level already
	woken       bool  // the engine of a wake has woken; its answers are not compared yet

	compared time.Duration // how long the comparison of the answers took

	askedAt     time.Time               // when the engine was told to sleep or wake
	stopWaiting context.CancelCauseFunc // ends the wait for the engine's answer

	// ownsProcess: the operation ends or starts the process, and handles its exit.
	ownsProcess   bool
	startsProcess bool // the process of a wake is being started at this moment
	cutShort      bool
}

// engineURL returns the base of calls to the engine.
func (i *instance) engineURL() string {
	if i.facts.EngineSocket != "" {
		return engine.SocketBase(i.facts.EngineSocket)
	}
	return engine.PortBase(i.facts.EnginePort)
}

// inPlace returns the engine of an instance that sleeps in its process.
func (i *instance) inPlace() engine.InPlace { return i.engine.(engine.InPlace) }

// knowsEngine reports whether it is known where the engine listens.
func (f *facts) knowsEngine() bool { return f.EngineSocket != "" || f.EnginePort != 0 }

func (i *instance) gpus() []string { return i.facts.Spec.GPUUUIDs }

func (i *instance) pinned() bool {
	return i.facts.Spec.Annotations[launcherapi.AnnotationPinned] == "true"
}

// lastUsed returns when the instance last served a request or was last woken.
func (i *instance) lastUsed() time.Time {
	last := i.lastWoken
	if i.gate != nil && i.gate.LastUsed().After(last) {
		last = i.gate.LastUsed()
	}
	return last
}

// isOver reports whether nothing is left of the instance but its entry in the list. The
// lock is held.
func (i *instance) isOver() bool { return i.state.Ended() && i.released && i.swapID == "" }

func (i *instance) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *instance) removeTiming(name string) {
	i.timings = slices.DeleteFunc(slices.Clone(i.timings), func(p launcherapi.PhaseTime) bool { return p.Name == name })
}

func (i *instance) addTiming(name string, took time.Duration) {
	i.removeTiming(name)
	i.timings = append(i.timings, launcherapi.PhaseTime{Name: name, DurationMS: float64(took.Microseconds()) / 1000})
}

// view returns the instance as clients see it. The view shares slices and maps with the
// instance, which replaces them and never changes them.
func (i *instance) view() launcherapi.Instance {
	v := launcherapi.Instance{
		InstanceID: i.facts.ID, Status: i.state.Status(), State: string(i.state),
		Reason: i.wholeReason(), Cause: i.cause, LastLogLines: i.lastLog,
		Options: i.facts.Spec.Options, Args: i.facts.Spec.Args, GPUUUIDs: i.facts.Spec.GPUUUIDs,
		EnvVars: i.facts.Spec.EnvVars, Annotations: i.facts.Spec.Annotations, Engine: i.engine.Name(),
		StartMethod: i.facts.Spec.StartMethod, StartedBy: i.facts.StartedBy, Rank: i.facts.Spec.Rank,
		Model: i.facts.Model, ServedModelNames: i.facts.ServedNames,
		ModelCache: i.facts.Spec.ModelCache, ModelFrom: i.facts.Local.From, ModelWhy: i.facts.Local.Why, ModelID: i.facts.Local.ID, ModelPath: i.facts.Local.Folder,
		Port: i.facts.PublicPort, Leased: i.facts.Ports, PID: i.root.PID, LogName: i.facts.LogName, SwapID: i.publishedSwapID,
		CreatedAt: i.created.UTC(), StateSince: i.since.UTC(), Timings: i.timings,
		HostBytes: i.hostBytes, AsleepAt: i.asleepAt, Revision: i.revision,
	}
	if i.state == launcher.Sleeping || i.state == launcher.FallingAsleep || i.state == launcher.Waking {
		v.SleepLevel = i.level
	}
	if i.released {
		v.Port, v.Leased = 0, nil // another instance may have the ports by now
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

// wholeReason returns the reason of the state, and what else clients should know.
func (i *instance) wholeReason() string {
	whole := join(join(join(i.reason, i.awaitsDisk), i.unreachable), i.endFailure)
	if i.unmeasured && i.state == launcher.Sleeping {
		whole = join(whole, "the driver of a GPU did not answer, so part of the engine may be awake; the launcher counts it as awake, and measures it once the driver answers")
	}
	if i.state.Ended() {
		return whole
	}
	return join(whole, i.portTaken)
}

// entry returns the instance as the ledger sees it. now is the device memory that was just
// measured, by GPU.
func (i *instance) entry(now map[string]uint64) ledger.Instance {
	return ledger.Instance{
		ID: i.facts.ID, State: i.state, Since: i.since, Released: i.released, AsleepBeforeEnd: i.asleepBeforeEnd, GPUs: i.gpus(),
		Expected: i.facts.Expected, Awake: i.awakeBytes, Residue: i.residue, HeldNow: now, Unmeasured: i.unmeasured && i.state != launcher.Awake,
		HostBytes: i.hostBytes, LastUsed: i.lastUsed(), Pinned: i.pinned(), SwapID: i.swapID, Victim: i.victim, Restarts: i.restarts(),
	}
}
