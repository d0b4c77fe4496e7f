// Package swap makes models take turns: it puts whatever is awake on a set of
// GPUs to sleep and wakes or starts another in its place, or leaves everything
// as it was.
//
// A swap runs by itself once it has begun: the client that asked may go away.
// Its phases, in order, are
//
//	admit    its turn on the GPUs, then one decision from one picture of them
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
// wakes again.
package swap

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/launcher/internal/turns"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a Coordinator.
type Options struct {
	Supervisor *supervisor.Supervisor
	Turns      *turns.Queue
	Limits     supervisor.Limits // Start is the default limit of a whole swap; Wake and Sleep bound an undo
	Finished   func(outcome string, result launcherapi.SwapResult)
	Logger     *slog.Logger
}

// keptKeys bounds how many idempotency keys are remembered.
const keptKeys = 1000

// Coordinator runs swaps.
type Coordinator struct {
	opts  Options
	log   *slog.Logger
	ctx   context.Context //nolint:containedctx // the life of the coordinator and its swaps
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu     sync.Mutex
	closed bool
	saved  map[string]supervisor.SavedSwap // swaps that have touched something and not ended
	keys   map[string]keyed
	recent []string // keys in the order of their coming
}

type keyed struct {
	body [sha256.Size]byte
	run  *Run
}

// New makes a coordinator.
func New(opts Options) *Coordinator {
	c := &Coordinator{opts: opts, log: opts.Logger, saved: map[string]supervisor.SavedSwap{}, keys: map[string]keyed{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close waits for the swaps that run, until ctx ends; those that are left then
// are abandoned where they are, to be finished or undone by the next life of
// the launcher.
func (c *Coordinator) Close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
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

// Running gives the swaps that have touched something and not ended, for the
// journal's snapshot.
func (c *Coordinator) Running() []supervisor.SavedSwap {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]supervisor.SavedSwap, 0, len(c.saved))
	for _, s := range c.saved {
		out = append(out, s)
	}
	return out
}

// Begin reads a request and starts the swap. What is wrong with the request
// itself comes back at once; everything else is for the Run to tell. With a
// key that was used before for the same request, the earlier Run is given back
// and nothing is done again.
func (c *Coordinator) Begin(req launcherapi.SwapRequest, key string) (*Run, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, used := c.keys[key]; key != "" && used {
		if earlier.body != hash {
			return nil, &launcher.Error{Code: launcherapi.CodeKeyReused, Detail: "this Idempotency-Key came with another request before: use a new key for a new request"}
		}
		return earlier.run, nil
	}
	if c.closed {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	r, err := c.read(req)
	if err != nil {
		return nil, err
	}
	if key != "" {
		c.remember(key, keyed{body: hash, run: r})
	}
	c.tasks.Go(func() { r.run(c.ctx) })
	return r, nil
}

func (c *Coordinator) remember(key string, k keyed) {
	c.keys[key] = k
	c.recent = append(c.recent, key)
	if len(c.recent) > keptKeys {
		delete(c.keys, c.recent[0])
		c.recent = c.recent[1:]
	}
}

// read makes a Run of a request.
func (c *Coordinator) read(req launcherapi.SwapRequest) (*Run, error) {
	r := &Run{
		c: c, req: req, began: time.Now(), changed: make(chan struct{}), ended: make(chan struct{}),
		limit: duration(req.Timeout, c.opts.Limits.Start), drain: duration(req.DrainTimeout, c.opts.Limits.Drain),
	}
	r.order = order{swapID: uuid.NewString(), gpus: req.GPUUUIDs}
	if err := r.readOut(); err != nil {
		return nil, err
	}
	if err := r.readIn(); err != nil {
		return nil, err
	}
	if len(r.order.gpus) == 0 {
		return nil, launcher.Invalidf("body.gpu_uuids", "gpu_uuids is missing: name the GPUs to swap on")
	}
	r.result = launcherapi.SwapResult{SwapID: r.order.swapID, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{}}
	return r, nil
}

func duration(given *launcherapi.Duration, otherwise time.Duration) time.Duration {
	if given == nil {
		return otherwise
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
	if out.Level < 1 || out.Level > 2 {
		return launcher.Invalidf("body.out.level", "sleep level %d does not exist: 1 keeps the weights in host memory, 2 drops them", out.Level)
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
		ID: in.ID, SwapID: r.order.swapID, HoldGate: true,
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

// Recover finishes or undoes the swaps that were under way when the launcher
// died: one whose instance is awake, or becomes so, is finished.
func (c *Coordinator) Recover(swaps []supervisor.SavedSwap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, saved := range swaps {
		r := &Run{
			c: c, began: time.Now(), changed: make(chan struct{}), ended: make(chan struct{}), limit: c.opts.Limits.Start, saved: saved,
			order:  order{swapID: saved.ID, gpus: saved.GPUs, in: saved.In},
			intent: supervisor.Intent{In: saved.In, New: saved.New, Out: saved.Out, Stop: saved.Stop, Level: saved.Level},
			result: launcherapi.SwapResult{SwapID: saved.ID},
		}
		c.saved[saved.ID] = saved
		// The turn is taken before anybody else can ask for one.
		ctx, cancel := context.WithCancel(c.ctx)
		release, err := c.opts.Turns.Take(ctx, saved.ID, saved.GPUs)
		cancel()
		if err != nil {
			c.log.Error("cannot take up an interrupted swap", "swap", saved.ID, "error", err)
			continue
		}
		c.tasks.Go(func() {
			defer release()
			r.takeUp(c.ctx)
		})
	}
}

var errLauncherCloses = launcher.Unavailablef("the launcher is closing; the swap is taken up again when it is back")
