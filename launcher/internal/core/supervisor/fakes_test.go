package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const gib = uint64(1) << 30

// fakeTree is a process tree that does what the test says.
type fakeTree struct {
	pid     int
	done    chan struct{}
	once    sync.Once
	exit    process.Exit
	stopped []time.Duration // the graces of its stops
	killed  int
	stuck   bool // Stop and Kill wait until it is released
	release chan struct{}
	refuse  func() error // of Stop and Kill
}

func (t *fakeTree) ID() process.ID        { return process.ID{PID: t.pid, StartTime: 1} }
func (t *fakeTree) Done() <-chan struct{} { return t.done }
func (t *fakeTree) Exit() process.Exit    { return t.exit }
func (t *fakeTree) Pids() []int           { return []int{t.pid} }
func (t *fakeTree) end(exit process.Exit) { t.once.Do(func() { t.exit = exit; close(t.done) }) }
func (t *fakeTree) exitCode(code int)     { t.end(process.Exit{Code: &code}) }
func (t *fakeTree) signalled(s syscall.Signal) {
	code := -int(s)
	t.end(process.Exit{Code: &code, Signal: s})
}

func (t *fakeTree) Stop(ctx context.Context, grace time.Duration) error {
	t.stopped = append(t.stopped, grace)
	return t.finish(ctx, func() { t.exitCode(0) })
}

func (t *fakeTree) Kill(ctx context.Context) error {
	t.killed++
	return t.finish(ctx, func() { t.signalled(syscall.SIGKILL) })
}

func (t *fakeTree) finish(ctx context.Context, end func()) error {
	if t.refuse != nil {
		if err := t.refuse(); err != nil {
			return err
		}
	}
	if t.stuck {
		select {
		case <-t.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	end()
	return nil
}

// fakeRunner makes fakeTrees.
type fakeRunner struct {
	mu      sync.Mutex
	refuse  error
	trees   map[string]*fakeTree
	started []process.Command
	gone    map[string]process.Exit // instances that ended while no launcher ran
	found   []process.Found
	cleared []string

	owners map[int]string // what Owners answers
	looks  int
	onLook func()
}

func (r *fakeRunner) Start(c process.Command) (Tree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.started = append(r.started, c)
	t := &fakeTree{pid: 1_000_000 + len(r.started), done: make(chan struct{}), release: make(chan struct{})}
	r.trees[c.Name] = t
	return t, nil
}

func (r *fakeRunner) Adopt(name string, id process.ID) (Tree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if exit, ok := r.gone[name]; ok {
		return nil, &process.GoneError{Name: name, ID: id, Exit: exit}
	}
	if t, ok := r.trees[name]; ok {
		return t, nil
	}
	return nil, &process.GoneError{Name: name, ID: id}
}

func (r *fakeRunner) Find() ([]process.Found, error) { return r.found, nil }

func (r *fakeRunner) Owners() (map[int]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	if r.onLook != nil {
		r.onLook()
	}
	return r.owners, nil
}

func (r *fakeRunner) looked() int { r.mu.Lock(); defer r.mu.Unlock(); return r.looks }

func (r *fakeRunner) Clear(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleared = append(r.cleared, name)
	return nil
}

func (r *fakeRunner) tree(id string) *fakeTree {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trees[id]
}

// fakeGate remembers whether it is open.
type fakeGate struct {
	mu       sync.Mutex
	port     int
	state    string
	inFlight int
	drained  chan struct{} // closed when the answers in flight have ended
	opened   chan struct{} // closed when the gate opens during a drain
	closed   bool
	used     time.Time
	quiet    time.Duration
}

func (g *fakeGate) set(s string) { g.mu.Lock(); g.state = s; g.mu.Unlock() }
func (g *fakeGate) get() string  { g.mu.Lock(); defer g.mu.Unlock(); return g.state }

func (g *fakeGate) Port() int { return g.port }
func (g *fakeGate) Open() {
	g.set("open")
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *fakeGate) Shut(string)         { g.set("shut") }
func (g *fakeGate) Fail(string)         { g.set("failed") }
func (g *fakeGate) Held() int           { return 0 }
func (g *fakeGate) LastUsed() time.Time { return g.used }

func (g *fakeGate) QuietFor() time.Duration { g.mu.Lock(); defer g.mu.Unlock(); return g.quiet }

func (g *fakeGate) InFlight() int { g.mu.Lock(); defer g.mu.Unlock(); return g.inFlight }

func (g *fakeGate) setInFlight(n int) { g.mu.Lock(); g.inFlight = n; g.mu.Unlock() }

func (g *fakeGate) setQuiet(d time.Duration) { g.mu.Lock(); g.quiet = d; g.mu.Unlock() }

func (g *fakeGate) Drain(ctx context.Context) (int, error) {
	if g.drained == nil {
		return 0, nil
	}
	select {
	case <-g.drained:
		return 0, nil
	case <-g.opened:
		return 0, errBroken
	case <-ctx.Done():
		return g.inFlight, ctx.Err()
	}
}

func (g *fakeGate) Close(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return nil
}

type fakePort int

func (p fakePort) Port() int    { return int(p) }
func (p fakePort) Close() error { return nil }

type fakeGates struct {
	mu    sync.Mutex
	next  int
	gates map[string]*fakeGate
	asked map[string]GateOptions // by id, the last ones
	taken map[int]bool
}

func (g *fakeGates) Listen(o GateOptions) (Gate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken[o.Port] {
		return nil, launcher.PortTakenf("port %d is taken", o.Port)
	}
	if o.Port == 0 {
		g.next++
		o.Port = 8100 + g.next
	}
	gate := &fakeGate{port: o.Port, state: "new"}
	g.gates[o.InstanceID], g.asked[o.InstanceID] = gate, o
	return gate, nil
}

func (g *fakeGates) Reserve() (Reservation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	return fakePort(40000 + g.next), nil
}

func (g *fakeGates) Claim(port int) (Reservation, error) { return fakePort(port), nil }

func (g *fakeGates) gate(id string) *fakeGate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gates[id]
}

// fakeEngine answers as the test says; a nil function means success.
type fakeEngine struct {
	ready, sleep, wake func(ctx context.Context) error
	resleep            func(ctx context.Context) error
	mu                 sync.Mutex
	calls              []string
	asleep             map[string]bool             // by base
	sleeps             func(context.Context) error // nil: the engine answers whether it sleeps
	probe              func(context.Context) (engine.Answer, error)
	probed             []string // the kind of each probe
	busy               bool     // its counters grow
	asked              int      // how often it was asked for them
}

// set records whether the engine at base sleeps, unless err says that the call failed.
func (e *fakeEngine) set(base string, asleep bool, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if e.asleep == nil {
			e.asleep = map[string]bool{}
		}
		e.asleep[base] = asleep
	}
	return err
}

// called returns a call as text, such as "sleep 1, unchecked".
func called(verb string, level int, check bool) string {
	if check {
		return fmt.Sprintf("%s %d", verb, level)
	}
	return fmt.Sprintf("%s %d, unchecked", verb, level)
}

func (e *fakeEngine) note(call string) { e.mu.Lock(); e.calls = append(e.calls, call); e.mu.Unlock() }

func (e *fakeEngine) noted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.calls...)
}

func run(f func(context.Context) error, ctx context.Context) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (e *fakeEngine) Name() string { return "vllm" }
func (e *fakeEngine) Close()       {}

func (e *fakeEngine) Paths() engine.Paths { return engine.Paths{} }

func (e *fakeEngine) Plan(r engine.Request) (engine.Plan, error) {
	return engine.NewVLLM(engine.VLLMOptions{}).Plan(r)
}

func (e *fakeEngine) Running(argv, env []string) (engine.Running, error) {
	return engine.NewVLLM(engine.VLLMOptions{}).Running(argv, env)
}

func (e *fakeEngine) Ready(ctx context.Context, _ string) error { return run(e.ready, ctx) }

func (e *fakeEngine) IsSleeping(ctx context.Context, base string) (bool, error) {
	if err := run(e.sleeps, ctx); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asleep[base], nil
}

func (e *fakeEngine) Sleep(ctx context.Context, base string, level int, check bool) error {
	e.note(called("sleep", level, check))
	return e.set(base, true, run(e.sleep, ctx))
}

func (e *fakeEngine) Wake(ctx context.Context, base string, level int, check bool) error {
	e.note(called("wake", level, check))
	return e.set(base, false, run(e.wake, ctx))
}

func (e *fakeEngine) Resleep(ctx context.Context, base string, level int) error {
	e.note(fmt.Sprintf("resleep %d", level))
	return e.set(base, true, run(e.resleep, ctx))
}

// rightAnswer is that of an engine that works.
var rightAnswer = engine.Answer{Kind: "completion", Token: "a", Likeliest: []string{"a", "b", "c", "d", "e"}}

func (e *fakeEngine) Probe(ctx context.Context, _, _ string, _ engine.Secret, kind string) (engine.Answer, error) {
	e.mu.Lock()
	e.probed = append(e.probed, kind)
	probe := e.probe
	e.mu.Unlock()
	if probe == nil {
		return rightAnswer, nil
	}
	return probe(ctx)
}

// answers has the engine answer probes that way from now on. It returns the kinds of the
// probes so far.
func (e *fakeEngine) answers(probe func(context.Context) (engine.Answer, error)) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.probed
	e.probe, e.probed = probe, nil
	return before
}

func (e *fakeEngine) Progress(context.Context, string, engine.Secret) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.busy {
		return strconv.Itoa(e.asked), nil
	}
	return "none", nil
}

func (e *fakeEngine) Diagnose(engine.Exit, []string) engine.Cause {
	return engine.Cause{Code: "the_cause", Message: "the cause in words"}
}

// fakeGPUs is two GPUs of 80 GiB; the test says which process holds what.
type fakeGPUs struct {
	mu        sync.Mutex
	blind     bool // lists no process, like the driver in a container
	silent    bool // does not answer
	hidden    []gpu.Device
	asked     int // how often for memory
	processes map[string][]gpu.Process
}

func (g *fakeGPUs) Kind() string  { return "simulated" }
func (g *fakeGPUs) Env() []string { return nil }

func (g *fakeGPUs) AllDevices() []gpu.Device { return append(g.Devices(), g.hidden...) }

func (g *fakeGPUs) Devices() []gpu.Device {
	return []gpu.Device{
		{UUID: "g0", Index: 0, MemoryTotalBytes: 80 * gib},
		{UUID: "g1", Index: 1, MemoryTotalBytes: 80 * gib},
	}
}

func (g *fakeGPUs) Health(string) gpu.Health { return gpu.Health{OK: true} }

func (g *fakeGPUs) Memory(uuid string) (gpu.Memory, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.silent {
		return gpu.Memory{}, &gpu.SilentError{UUID: uuid}
	}
	m := gpu.Memory{TotalBytes: 80 * gib, ProcessesKnown: true, Processes: append([]gpu.Process(nil), g.processes[uuid]...)}
	for _, p := range m.Processes {
		m.UsedBytes += p.Bytes
	}
	m.FreeBytes = m.TotalBytes - m.UsedBytes
	if g.blind {
		m.Processes = nil
	}
	return m, nil
}

func (g *fakeGPUs) fallSilent(silent bool) { g.mu.Lock(); defer g.mu.Unlock(); g.silent = silent }

func (g *fakeGPUs) questions() int { g.mu.Lock(); defer g.mu.Unlock(); return g.asked }

func (g *fakeGPUs) hold(uuid string, pid int, gibs uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var kept []gpu.Process
	for _, p := range g.processes[uuid] {
		if p.PID != pid {
			kept = append(kept, p)
		}
	}
	if gibs > 0 {
		kept = append(kept, gpu.Process{PID: pid, Bytes: gibs * gib})
	}
	g.processes[uuid] = kept
}

type fakeLogs struct {
	dir  string
	fail error
	slow time.Duration // how long a read takes
}

func (l fakeLogs) Create(id string) (*os.File, string, error) {
	if l.fail != nil {
		return nil, "", l.fail
	}
	f, err := os.Create(filepath.Join(l.dir, id+".log"))
	return f, id + ".log", err
}

func (l fakeLogs) Reopen(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(l.dir, name), os.O_WRONLY|os.O_APPEND, 0)
}

func (l fakeLogs) Size(name string) int64 {
	info, err := os.Stat(filepath.Join(l.dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (l fakeLogs) Tail(string, int, int) ([]string, error) {
	time.Sleep(l.slow)
	return []string{"the last line"}, nil
}

func (fakeLogs) Watch(string) (<-chan struct{}, func(), error) { return nil, func() {}, nil }

// fallibleRecords is the Records of a state folder that may be full.
type fallibleRecords struct {
	*statedir.Records
	mu   sync.Mutex
	fail error
}

func newRecords(t *testing.T) *fallibleRecords {
	t.Helper()
	state, err := statedir.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, state.Close()) })
	records, err := state.Records("instances")
	require.NoError(t, err)
	return &fallibleRecords{Records: records}
}

func (f *fallibleRecords) Put(id string, record any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	return f.Records.Put(id, record)
}

func (f *fallibleRecords) failing(err error) { f.mu.Lock(); f.fail = err; f.mu.Unlock() }

// bootClock goes on as simulated time does, whatever the wall clock says.
var bootClock = statedir.Clock{Boot: "this boot", Since: func() time.Duration {
	return time.Since(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
}}

// rig is a supervisor with fake dependencies.
type rig struct {
	*Supervisor
	t       *testing.T
	engine  *fakeEngine
	runner  *fakeRunner
	gates   *fakeGates
	gpus    *fakeGPUs
	records *fallibleRecords
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, engine: &fakeEngine{}, runner: &fakeRunner{trees: map[string]*fakeTree{}, gone: map[string]process.Exit{}},
		gates: &fakeGates{gates: map[string]*fakeGate{}, asked: map[string]GateOptions{}, taken: map[int]bool{}},
		gpus:  &fakeGPUs{processes: map[string][]gpu.Process{}}, records: newRecords(t),
	}
	opts := Options{
		Engines: []engine.Engine{r.engine}, Programs: map[string][]string{"vllm": {"/bin/engine"}}, SleepMode: engine.SleepModeAuto,
		GPUs: r.gpus, Runner: r.runner, Processes: procfs.Table{}, Gates: r.gates, Logs: fakeLogs{dir: t.TempDir()}, Records: r.records,
		Feed: eventlog.New(100, 0), Turns: &gpuqueue.Queue{}, ConfigDir: t.TempDir(), Clock: bootClock,
		Limits: Limits{Start: 10 * time.Minute, Sleep: time.Minute, Wake: time.Minute, Drain: 30 * time.Second,
			StopGrace: 10 * time.Second, StartingGrace: 2 * time.Second, Memory: 30 * time.Second},
		Observer: supervisortest.Nobody{}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&opts)
	}
	r.Supervisor = New(opts)
	t.Cleanup(func() { _ = r.Close(context.Background(), false) })
	return r
}

// create creates an instance that takes that share of GPU g0.
func (r *rig) create(id, share string) launcherapi.Instance {
	r.t.Helper()
	view, err := r.Create(launcher.CreateRequest{ID: id, Spec: spec(share)})
	require.NoError(r.t, err)
	return view
}

func spec(share string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{Args: []string{"model", "--gpu-memory-utilization", share}, GPUUUIDs: []string{"g0"}}
}

// awake creates an instance and waits until it is awake.
func (r *rig) awake(id, share string) {
	r.t.Helper()
	r.create(id, share)
	_, err := r.AwaitState(r.t.Context(), id, launcher.Awake)
	require.NoError(r.t, err)
}

func (r *rig) asleep(id string) {
	r.t.Helper()
	_, err := r.Sleep(id, launcher.VerbRequest{Drain: -1})
	require.NoError(r.t, err)
	_, err = r.AwaitState(r.t.Context(), id, launcher.Sleeping)
	require.NoError(r.t, err)
}

func (r *rig) state(id string) string {
	r.t.Helper()
	view, err := r.Get(id)
	require.NoError(r.t, err)
	return view.State
}

// never blocks until its context ends.
func never(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }

var errBroken = errors.New("broken")

func broken(context.Context) error { return errBroken }

// under calls a function with the supervisor's lock held.
func (r *rig) under(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}
