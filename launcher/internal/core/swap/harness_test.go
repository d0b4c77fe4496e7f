package swap

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const gib = uint64(1) << 30

// world is a coordinator and its supervisor, with two GPUs of 80 GiB and engines that
// obey at once.
type world struct {
	*Coordinator
	t     *testing.T
	sup   *supervisor.Supervisor
	gates *gates
	paper *paper

	runner *runner
}

func newWorld(t *testing.T, change ...func(*supervisor.Options)) *world {
	t.Helper()
	limits := supervisor.Limits{
		Start: 10 * time.Minute, Sleep: time.Minute, Wake: time.Minute, Drain: 30 * time.Second,
		StopGrace: 10 * time.Second, StartingGrace: 2 * time.Second, Memory: 30 * time.Second,
	}
	w := &world{t: t, gates: &gates{}, paper: newPaper(t), runner: &runner{}}
	opts := supervisor.Options{
		Engines: []engine.Engine{obedient{engine.NewVLLM(engine.VLLMOptions{})}}, Programs: map[string][]string{"vllm": {"/bin/engine"}}, SleepMode: engine.SleepModeAuto,
		GPUs: empty{}, Runner: w.runner, Processes: procfs.Table{}, Gates: w.gates, Logs: logs{dir: t.TempDir()}, Records: newPaper(t), Feed: eventlog.New(100, 0),
		Turns: &gpuqueue.Queue{}, ConfigDir: t.TempDir(), Limits: limits, Observer: supervisortest.Nobody{}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&opts)
	}
	w.sup = supervisor.New(opts)
	w.Coordinator = New(Options{Records: w.paper, Supervisor: w.sup, Turns: opts.Turns, Limits: limits, Logger: opts.Logger, Finished: func(string, launcherapi.SwapResult) {}})
	return w
}

// close waits for the swaps and closes everything.
func (w *world) close() {
	w.Close(context.Background())
	require.NoError(w.t, w.sup.Close(context.Background(), true))
}

// unfinished returns the recorded swaps that are not over.
func (w *world) unfinished() []Saved {
	return slices.DeleteFunc(w.paper.all(), func(s Saved) bool { return s.Done })
}

func (w *world) awake(id, gpu string) {
	w.t.Helper()
	_, err := w.sup.Create(launcher.CreateRequest{ID: id, Spec: launcherapi.InstanceSpec{Args: []string{"model"}, GPUUUIDs: []string{gpu}}})
	require.NoError(w.t, err)
	_, err = w.sup.AwaitState(w.t.Context(), id, launcher.Awake)
	require.NoError(w.t, err)
}

func (w *world) asleep(id, gpu string) {
	w.t.Helper()
	w.awake(id, gpu)
	_, err := w.sup.Sleep(id, launcher.VerbRequest{})
	require.NoError(w.t, err)
	_, err = w.sup.AwaitState(w.t.Context(), id, launcher.Sleeping)
	require.NoError(w.t, err)
}

// planToCreate is the plan of a swap that creates an instance on GPU g0, where the
// instances out leave.
func planToCreate(swapID, in string, out ...string) launcher.Plan {
	return launcher.Plan{
		SwapID: swapID, GPUs: []string{"g0"}, In: in, Room: &launcher.Room{ID: in, New: true, SwapID: swapID}, Out: out, Level: 1, Drain: time.Minute,
	}
}

// claimAndBreakOff claims what a swap on GPU g0 needs, and breaks the swap off as the
// end of the launcher does. It returns the plan with the instances that leave.
func (w *world) claimAndBreakOff(plan launcher.Plan) launcher.Plan {
	w.t.Helper()
	claim, err := w.sup.Claim(supervisor.ClaimRequest{Plan: launcher.Plan{SwapID: plan.SwapID, GPUs: plan.GPUs, Level: 1}, GPUs: plan.GPUs})
	require.NoError(w.t, err)
	claim.BreakOff()
	plan.Out = claim.Plan().Out
	return plan
}

// expired returns a context that has ended.
func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func (w *world) begin(req launcherapi.SwapRequest) *Run {
	w.t.Helper()
	r, err := w.Begin(req, "")
	require.NoError(w.t, err)
	return r
}

// oneRunsOneWaits begins a swap from a to b on GPU g0, which drains until w.gates.busy is closed,
// and one to c that waits for its turn there.
func (w *world) oneRunsOneWaits() (runs, waits *Run) {
	w.t.Helper()
	w.awake("a", "g0")
	w.gates.busy = make(chan struct{})
	runs = w.begin(requestForNew("b", "g0"))
	synctest.Wait()
	waits = w.begin(requestForNew("c", "g0"))
	synctest.Wait()
	return runs, waits
}

func requestForNew(id, gpu string) launcherapi.SwapRequest {
	return launcherapi.SwapRequest{GPUUUIDs: []string{gpu}, In: &launcherapi.SwapIn{ID: id, Args: []string{"model"}}}
}

func (w *world) state(id string) string {
	view, err := w.sup.Get(id)
	if err != nil {
		return "gone"
	}
	return view.State
}

// obedient is an engine that obeys at once.
type obedient struct{ engine.InPlace }

func (obedient) Ready(context.Context, string) error            { return nil }
func (obedient) Sleep(context.Context, string, int, bool) error { return nil }
func (obedient) Wake(context.Context, string, int, bool) error  { return nil }
func (obedient) Probe(context.Context, string, string, engine.Secret, string) (engine.Answer, error) {
	return engine.Answer{Kind: "completion"}, nil
}

// runner starts fake processes that end when they are stopped.
type runner struct {
	mu    sync.Mutex
	count int
	trees map[string]*tree // the last one of each name
}

func (r *runner) Start(c process.Command) (supervisor.Tree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	t := &tree{pid: 1_000_000 + r.count, done: make(chan struct{})}
	if r.trees == nil {
		r.trees = map[string]*tree{}
	}
	r.trees[c.Name] = t
	return t, nil
}

// fail ends the process of an instance by itself.
func (r *runner) fail(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trees[name].once.Do(func() { close(r.trees[name].done) })
}

func (r *runner) Adopt(name string, id process.ID) (supervisor.Tree, error) {
	return nil, &process.GoneError{Name: name, ID: id}
}

func (*runner) Find() ([]process.Found, error)      { return nil, nil }
func (*runner) Owners() (map[int]string, error)     { return nil, nil }
func (*runner) Clear(context.Context, string) error { return nil }

type tree struct {
	pid  int
	once sync.Once
	done chan struct{}
}

func (t *tree) ID() process.ID        { return process.ID{PID: t.pid, StartTime: 1} }
func (t *tree) Done() <-chan struct{} { return t.done }
func (t *tree) Exit() process.Exit    { return process.Exit{Code: new(int)} }
func (t *tree) Pids() []int           { return []int{t.pid} }

func (t *tree) Stop(context.Context, time.Duration) error {
	t.once.Do(func() { close(t.done) })
	return nil
}
func (t *tree) Kill(ctx context.Context) error { return t.Stop(ctx, 0) }

// gates opens gates that drain at once, unless busy delays them.
type gates struct {
	mu    sync.Mutex
	count int
	busy  chan struct{} // drains end when it is closed; nil: at once
}

func (g *gates) Listen(o supervisor.GateOptions) (supervisor.Gate, error) {
	if o.Port == 0 {
		o.Port = g.next()
	}
	return &gate{all: g, port: o.Port}, nil
}

func (g *gates) next() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
	return 8000 + g.count
}

func (g *gates) Reserve() (supervisor.Reservation, error)  { return port(g.next()), nil }
func (*gates) Claim(p int) (supervisor.Reservation, error) { return port(p), nil }

type port int

func (p port) Port() int  { return int(p) }
func (port) Close() error { return nil }

type gate struct {
	all  *gates
	port int
}

func (*gate) Host() string { return "127.0.0.1" }
func (g *gate) Port() int  { return g.port }
func (*gate) Open()        {}
func (*gate) Shut(string)  {}
func (*gate) Fail(string)  {}

func (g *gate) Drain(ctx context.Context) (int, error) {
	if g.all.busy == nil {
		return 0, nil
	}
	select {
	case <-g.all.busy:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (*gate) InFlight() int               { return 0 }
func (*gate) Held() int                   { return 0 }
func (*gate) QuietFor() time.Duration     { return 0 }
func (*gate) LastUsed() time.Time         { return time.Time{} }
func (*gate) Close(context.Context) error { return nil }

// empty is GPUs that, by the driver's report, no process uses.
type empty struct{}

func (empty) Kind() string             { return "simulated" }
func (empty) Env() []string            { return nil }
func (empty) Health(string) gpu.Health { return gpu.Health{OK: true} }

func (e empty) AllDevices() []gpu.Device { return e.Devices() }

func (empty) Devices() []gpu.Device {
	return []gpu.Device{{UUID: "g0", MemoryTotalBytes: 80 * gib}, {UUID: "g1", Index: 1, MemoryTotalBytes: 80 * gib}}
}

func (empty) Memory(string) (gpu.Memory, error) {
	return gpu.Memory{TotalBytes: 80 * gib, FreeBytes: 80 * gib, ProcessesKnown: true}, nil
}

type logs struct{ dir string }

func (l logs) Create(id string) (*os.File, string, error) {
	f, err := os.Create(filepath.Join(l.dir, id+".log"))
	return f, id + ".log", err
}

func (l logs) Reopen(string) (*os.File, error)             { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) }
func (logs) Latest(string) (string, bool)                  { return "", false }
func (logs) Note(string, string) error                     { return nil }
func (logs) Tail(string, int, int) ([]string, error)       { return nil, nil }
func (logs) Size(string) int64                             { return 0 }
func (logs) Watch(string) (<-chan struct{}, func(), error) { return nil, func() {}, nil }
