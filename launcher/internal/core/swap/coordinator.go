// Package swap makes models take turns: a swap puts the instances that are awake on
// a set of GPUs to sleep and wakes or starts another in their place, or leaves
// everything as it was.
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
// instance that came in goes back to sleep or is removed, and those that were awake
// wake again. The answer comes at most undoGrace after the swap's time; an undoing
// that takes longer goes on.
package swap

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
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
	early   []string // keys called off before any swap came with them
}

// New makes a coordinator.
func New(opts Options) *Coordinator {
	c := &Coordinator{opts: opts, log: opts.Logger, closing: make(chan struct{}), keys: map[string]*kept{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close waits for the swaps that run, until ctx ends; swaps that still run then are
// abandoned where they are, to be finished or undone by the next life of the
// launcher. Swaps that are answered already and still being undone are abandoned at
// once.
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

// Begin reads a request and starts the swap. Errors of the request itself are
// returned at once; all others are the Run's. For a key that was used before with
// the same request, Begin returns the earlier Run and begins nothing.
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
		return earlier, err // a swap with the same key came while this request was read
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

// Recover remembers the keys of the swaps that had ended when the launcher died,
// and finishes or undoes the swaps that were under way: a swap whose instance is
// awake, or becomes so, is finished. Recover takes their places in the queue,
// before any other swap can, and the swaps are then taken up in the background. The
// swaps are given in the order of their beginning.
func (c *Coordinator) Recover(swaps []Saved) {
	for _, saved := range swaps {
		switch {
		case !saved.Done:
			c.takeUp(saved)
		case saved.Key == nil:
			c.forgetSwap(saved.Plan.SwapID)
		default:
			c.keep(&kept{saved: saved})
		}
	}
}

func (c *Coordinator) takeUp(saved Saved) {
	r := c.resumed(saved, c.opts.Supervisor.Reclaim(saved.Plan))
	if saved.Key != nil {
		c.keep(&kept{saved: saved, run: r})
	}
	turn := c.opts.Turns.Enter(saved.Plan.SwapID, saved.Plan.GPUs)
	c.tasks.Go(func() {
		if turn.Await(c.ctx) != nil {
			return // the launcher closes
		}
		r.takeUp(c.ctx)
		turn.Release()
		r.finish()
	})
}

// resumed makes the Run of a swap that an earlier life of the launcher left.
func (c *Coordinator) resumed(saved Saved, claim Claim) *Run {
	r := c.newRun(saved.Plan.SwapID)
	if saved.Plan.Until.IsZero() {
		saved.Plan.Until = r.began.Add(c.opts.Limits.Start)
	}
	r.saved, r.written, r.limit, r.claim = saved, true, c.opts.Limits.Start, claim
	r.begun = true // it has touched what it has claimed, so nobody calls it off
	r.result.Deleted, r.result.Evicted, r.result.Cut = saved.Deleted, saved.Evicted, saved.Cut
	return r
}
