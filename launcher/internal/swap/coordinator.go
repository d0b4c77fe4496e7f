// Package swap makes models take turns: it puts whatever is awake on a set of
// GPUs to sleep and wakes or starts another in its place, or leaves everything
// as it was.
//
// A swap runs by itself once it has begun: the client that asked may go away.
// Its phases, in order, are
//
//	admit    its turn on the GPUs, then one decision from one picture of them,
//	         and with it a claim on all that it needs until its end
//	drain    gates shut; answers in flight end, or are cut
//	sleep    whoever was awake falls asleep
//	evict    sleepers over budget end
//	wake     the one to come in wakes, or
//	start    is started, and
//	healthy  answers
//	canary   gives one token, when asked to
//	open     its gate opens
//
// A failure in any of them, or the end of the swap's time, leads to undo: the
// one that came in goes back to sleep or is removed, and whoever was awake
// wakes again. The answer does not wait for that much longer than the swap's
// time; the undoing goes on.
package swap

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a Coordinator.
type Options struct {
	Supervisor *supervisor.Supervisor
	Turns      *gpuqueue.Queue
	Records    supervisor.Records
	Limits     supervisor.Limits // Start is the default limit of a whole swap; Wake and Sleep bound an undo
	Finished   func(outcome string, result launcherapi.SwapResult)
	Logger     *slog.Logger
}

// Coordinator runs swaps.
type Coordinator struct {
	opts  Options
	log   *slog.Logger
	ctx   context.Context //nolint:containedctx // the life of the coordinator and its swaps
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	closing chan struct{} // closed with closed
	keys    map[string]*kept
	recent  []string // keys in the order of their coming
	early   []string // keys that were called off before any swap came with them
}

// New makes a coordinator.
func New(opts Options) *Coordinator {
	c := &Coordinator{opts: opts, log: opts.Logger, closing: make(chan struct{}), keys: map[string]*kept{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close waits for the swaps that run, until ctx ends; those that are left then
// are abandoned where they are, to be finished or undone by the next life of
// the launcher. So are those at once that were answered and are still undone.
func (c *Coordinator) Close(ctx context.Context) {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.closing)
	}
	c.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		c.tasks.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	c.stop()
	<-idle
}

// isClosing says whether Close was called: no swap begins any more.
func (c *Coordinator) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Begin reads a request and starts the swap. What is wrong with the request
// itself comes back at once; everything else is for the Run to tell. With a
// key that was used before for the same request, the earlier Run is given back
// and nothing is done again.
func (c *Coordinator) Begin(req launcherapi.SwapRequest, key string) (*Run, error) {
	id := uuid.NewString()
	r, err := c.begin(id, req, key)
	if err != nil {
		return nil, &FailedError{Result: launcherapi.SwapResult{SwapID: id, Outcome: launcherapi.OutcomeRefused}, Err: err}
	}
	return r, nil
}

func (c *Coordinator) begin(id string, req launcherapi.SwapRequest, key string) (*Run, error) {
	digest, err := digestOf(req)
	if err != nil {
		return nil, err
	}
	if earlier, err := c.earlier(key, digest); earlier != nil || err != nil {
		return earlier, err
	}
	r, err := c.read(id, req)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, err := c.recall(key, digest); earlier != nil || err != nil {
		return earlier, err // it came while this one was read
	}
	if c.closed {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	if slices.Contains(c.early, key) {
		return nil, errNeverComes
	}
	if key != "" {
		r.saved.Key = newKey(key, digest)
		forgotten := c.remember(&kept{saved: r.saved, run: r})
		c.tasks.Go(func() { c.forgetSwap(forgotten) })
	}
	c.tasks.Go(func() { r.run(c.ctx) })
	return r, nil
}

// newRun makes a Run that has not begun.
func (c *Coordinator) newRun(id string) *Run {
	return &Run{
		c: c, began: time.Now(), changed: make(chan struct{}), ended: make(chan struct{}),
		order:  order{swapID: id},
		saved:  Saved{ID: id, Began: time.Now()},
		result: launcherapi.SwapResult{SwapID: id, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{}},
	}
}

// read makes a Run of a request.
func (c *Coordinator) read(id string, req launcherapi.SwapRequest) (*Run, error) {
	r := c.newRun(id)
	r.req = req
	r.limit, r.drain = orDefault(req.Timeout, c.opts.Limits.Start), orDefault(req.DrainTimeout, c.opts.Limits.Drain)
	r.until = r.began.Add(r.limit)
	r.order.gpus = req.GPUUUIDs
	if err := r.readOut(); err != nil {
		return nil, err
	}
	if err := r.readIn(); err != nil {
		return nil, err
	}
	if len(r.order.gpus) == 0 {
		return nil, launcher.Invalidf("body.gpu_uuids", "gpu_uuids is missing: name the GPUs to swap on")
	}
	return r, nil
}

// orDefault is a duration of a request: 0 is the default too.
func orDefault(given *launcherapi.Duration, standard time.Duration) time.Duration {
	if given == nil || *given == 0 {
		return standard
	}
	return given.D()
}

func (r *Run) readOut() error {
	if r.req.Out != nil {
		r.order.out = *r.req.Out
	}
	out := &r.order.out
	switch out.Mode {
	case "":
		out.Mode = launcherapi.OutSleep
	case launcherapi.OutSleep, launcherapi.OutStop:
	default:
		return launcher.Invalidf("body.out.mode", "out.mode %q does not exist: it is sleep or stop", out.Mode)
	}
	if out.Level == 0 {
		out.Level = 1
		if out.Mode == launcherapi.OutStop {
			out.Level = 2 // it only sleeps until the other is awake: keep no weights for that
		}
	}
	if err := launcherapi.CheckSleepLevel(out.Level); err != nil {
		return launcher.Invalidf("body.out.level", "%w", err)
	}
	return nil
}

func (r *Run) readIn() error {
	in := r.req.In
	sup := r.c.opts.Supervisor
	if in == nil {
		return sup.KnownGPUs("body.gpu_uuids", r.order.gpus)
	}
	if len(r.order.gpus) == 0 {
		r.order.gpus = in.GPUUUIDs
	}
	if in.GPUUUIDs != nil && !sameSet(in.GPUUUIDs, r.order.gpus) {
		return launcher.Invalidf("body.in.gpu_uuids", "in.gpu_uuids and gpu_uuids differ: give one of them")
	}
	if in.InstanceID != "" {
		if in.Options != nil || in.Args != nil || in.ID != "" || in.EnvVars != nil || in.Engine != "" || in.Annotations != nil || in.StartMethod != "" {
			return launcher.Invalidf("body.in", "in names the instance %s and describes a new one as well: give instance_id alone, or leave it out", in.InstanceID)
		}
		view, err := sup.Get(in.InstanceID)
		if err != nil {
			return err
		}
		r.order.in = in.InstanceID
		if len(r.order.gpus) == 0 {
			r.order.gpus = view.GPUUUIDs
		}
		return sup.KnownGPUs("body.gpu_uuids", r.order.gpus)
	}
	draft, err := sup.Draft(supervisor.Create{
		ID: in.ID, SwapID: r.order.swapID, HoldGate: true, DryRun: r.req.DryRun,
		Spec: launcherapi.InstanceSpec{
			Options: in.Options, Args: in.Args, EnvVars: in.EnvVars, Annotations: in.Annotations, Engine: in.Engine,
			GPUUUIDs: r.order.gpus, StartMethod: in.StartMethod,
		},
	})
	if err != nil {
		return err
	}
	r.order.draft, r.order.in, r.order.want = draft, draft.ID, &draft.Want
	return nil
}

// Recover remembers the keys of the swaps that had ended when the launcher died,
// and finishes or undoes those that were under way: one whose instance is
// awake, or becomes so, is finished. Their turns are asked for before anybody
// else can; they are taken up in the background. The swaps come in the order of
// their beginning.
func (c *Coordinator) Recover(swaps []Saved) {
	for _, saved := range swaps {
		if !saved.Done {
			c.takeUp(saved)
			continue
		}
		c.keep(&kept{saved: saved})
	}
}

func (c *Coordinator) takeUp(saved Saved) {
	r := c.newRun(saved.ID)
	r.saved, r.written = saved, true
	r.limit, r.until = c.opts.Limits.Start, saved.Until
	if saved.Until.IsZero() {
		r.until = r.began.Add(r.limit)
	}
	r.order.gpus, r.order.held, r.order.in = saved.GPUs, saved.GPUs, saved.In
	r.intent = supervisor.Intent{In: saved.In, New: saved.New, Out: saved.Out, Stop: saved.Stop, Level: saved.Level}
	made, moved := "", saved.Out
	if saved.New {
		made = saved.In
	}
	if !saved.Stays {
		moved = append(slices.Clone(moved), saved.In)
	}
	c.opts.Supervisor.Reclaim(saved.ID, made, moved)
	if saved.Key != nil {
		c.keep(&kept{saved: saved, run: r})
	}
	turn := c.opts.Turns.Enter(saved.ID, saved.GPUs)
	c.tasks.Go(func() {
		if turn.Await(c.ctx) != nil {
			return // the launcher closes
		}
		r.takeUp(c.ctx)
		turn.Release()
		r.finish()
	})
}

var errLauncherCloses = launcher.Unavailablef("the launcher is closing; a swap that had begun is taken up again when it is back")
