package swap

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var errBroken = errors.New("broken")

// pace is how long a call takes, by instance. It gives simultaneous calls for several
// instances a fixed order.
var pace = map[string]time.Duration{"a": time.Millisecond, "b": 10 * time.Millisecond, "c": 100 * time.Millisecond, "v": 5 * time.Millisecond}

// fakeClaim records each call as soon as the call takes effect, and does what the test
// says.
type fakeClaim struct {
	plan   launcher.Plan
	fails  map[string]error         // by call
	hangs  string                   // this call lasts until its context ends
	takes  map[string]time.Duration // how long a call lasts, whatever becomes of its context
	states map[string]string
	// compares: the answers of the one that comes in are compared after its wake.
	compares  bool
	published bool

	mu    sync.Mutex
	calls []string
}

// call records a call for an instance, after the instance's pace.
func (f *fakeClaim) call(ctx context.Context, name, id string) error {
	if id != "" {
		name += " " + id
	}
	if wait := pace[id]; wait > 0 {
		<-time.After(wait)
	}
	f.note(name)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	<-time.After(f.takes[name])
	if name == f.hangs {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return f.fails[name]
}

func (f *fakeClaim) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
}

func (f *fakeClaim) Plan() launcher.Plan { return f.plan }
func (f *fakeClaim) Publish()            { f.published = true }

func (f *fakeClaim) Drain(ctx context.Context, id string) (int, error) {
	return 1, f.call(ctx, "drain", id)
}

func (f *fakeClaim) Evict(ctx context.Context, id string) (bool, error) {
	err := f.call(ctx, "evict", id)
	return err == nil, err
}

func (f *fakeClaim) Sleep(ctx context.Context, id string) error { return f.call(ctx, "sleep", id) }
func (f *fakeClaim) Wake(ctx context.Context) error             { return f.call(ctx, "wake", "") }
func (f *fakeClaim) Start(ctx context.Context) error            { return f.call(ctx, "start", "") }
func (f *fakeClaim) Healthy(ctx context.Context) error          { return f.call(ctx, "healthy", "") }
func (f *fakeClaim) Canary(ctx context.Context) error           { return f.call(ctx, "canary", "") }
func (f *fakeClaim) Compares() bool                             { return f.compares }
func (*fakeClaim) Check() error                                 { return nil }

func (f *fakeClaim) AwaitLoss(ctx context.Context) error {
	f.note("await loss")
	<-ctx.Done()
	return context.Cause(ctx)
}
func (f *fakeClaim) Open(bool)                                 { f.note("open") }
func (f *fakeClaim) Stop(ctx context.Context, id string) error { return f.call(ctx, "stop", id) }
func (f *fakeClaim) SendBack(ctx context.Context) error        { return f.call(ctx, "send back", "") }
func (f *fakeClaim) BringBack(ctx context.Context, id string) error {
	return f.call(ctx, "bring back", id)
}
func (f *fakeClaim) Settle(ctx context.Context) { _ = f.call(ctx, "settle", "") }
func (f *fakeClaim) Release()                   { f.note("release") }
func (f *fakeClaim) BreakOff()                  { f.note("break off") }

func (f *fakeClaim) Show() (in *launcherapi.Instance, out []launcherapi.Instance) {
	if state := f.states[f.plan.In]; state != "" {
		in = &launcherapi.Instance{InstanceID: f.plan.In, State: state}
	}
	for _, id := range f.plan.Out {
		if state := f.states[id]; state != "" {
			out = append(out, launcherapi.Instance{InstanceID: id, State: state})
		}
	}
	return in, out
}

// planToWake is the plan of a swap that wakes n.
func planToWake(out ...string) launcher.Plan {
	return launcher.Plan{SwapID: "s", In: "n", Room: &launcher.Room{ID: "n"}, Out: out, Level: 1}
}

func planToCreateN(out ...string) launcher.Plan { return planToCreate("s", "n", out...) }

// withStop returns the plan with its leaving instances stopped at the end.
func withStop(p launcher.Plan) launcher.Plan { p.Stop = true; return p }

func withVictims(p launcher.Plan, victims ...string) launcher.Plan { p.Evict = victims; return p }

// stage is a coordinator whose swaps have fake claims.
type stage struct {
	*Coordinator
	paper *paper
}

func newStage(t *testing.T, written *paper) *stage {
	t.Helper()
	return &stage{New(Options{
		Records: written, Logger: slog.New(slog.DiscardHandler), Finished: func(string, launcherapi.SwapResult) {},
		Limits: supervisor.Limits{Start: time.Minute, Sleep: time.Minute, Wake: time.Minute, Memory: time.Second},
	}), written}
}

// run returns the Run of an admitted swap.
func (s *stage) run(f *fakeClaim) *Run {
	r := s.newRun("s")
	f.plan.Until = r.began.Add(time.Minute)
	r.claim, r.limit, r.saved.Plan = f, time.Minute, f.plan
	return r
}

// play executes a swap to its end.
func (s *stage) play(t *testing.T, r *Run) (launcherapi.SwapResult, error) {
	t.Helper()
	ctx, cancel := context.WithDeadlineCause(s.ctx, r.saved.Plan.Until, errTimeout)
	defer cancel()
	r.executeOrUndo(ctx)
	r.releaseClaim()
	r.end()
	s.tasks.Wait()
	return r.Wait(t.Context())
}

// played plays a swap and checks that nothing of it is left.
func played(t *testing.T, f *fakeClaim, change ...func(*Run)) (launcherapi.SwapResult, error) {
	t.Helper()
	s := newStage(t, newPaper(t))
	r := s.run(f)
	for _, c := range change {
		c(r)
	}
	result, err := s.play(t, r)
	require.Empty(t, s.paper.all())
	assert.Equal(t, "release", f.calls[len(f.calls)-1])
	f.calls = f.calls[:len(f.calls)-1]
	return result, err
}
