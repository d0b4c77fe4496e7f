// Package swap makes models take turns on GPUs. A swap puts the instances that are
// awake on a set of GPUs to sleep, and wakes or starts another instance there. If that
// fails, it restores what was there before.
//
// A swap that has begun runs by itself: the client that asked may disconnect. Its
// phases, in order, are
//
//	admit    the swap takes its turn on the GPUs, decides once what to do, and
//	         claims all that it needs until its end
//	go       a client lets it begin, if the request asks for that
//	drain    gates shut; answers in flight end or are cut
//	sleep    the instances that leave fall asleep
//	evict    victims are stopped
//	wake     the engine of the one that comes in wakes, or
//	start    is started, and
//	healthy  is awake
//	canary   its engine gives one answer, if it has woken or the request asks for that
//	commit   a client lets it end, if the request asks for that
//	open     its gate opens
//
// If a phase fails or the swap's time is over, the swap is undone. The instance that
// came in goes back to sleep or is removed, and those that were awake wake again. The
// swap is answered at most undoGrace after its deadline; an undo that takes longer goes
// on after the answer.
package swap

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a Coordinator.
type Options struct {
	Supervisor *supervisor.Supervisor
	Turns      *gpuqueue.Queue
	Records    supervisor.Records
	Writes     *statedir.Queue   // that writes the records, with those of instances; nil: a queue of its own
	Clock      statedir.Clock    // by which records carry times
	Limits     supervisor.Limits // Start is the default time of a whole swap; Sleep, Wake and Memory bound an undo
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

	writes  *statedir.Queue
	records *statedir.Writer

	mu             sync.Mutex
	closed         bool
	closing        chan struct{}   // closed when closed is set
	runs           map[string]*Run // swaps that are not over, by id
	finished       []*Run          // the last swaps that are over, oldest first
	keys           map[string]*rememberedKey
	recent         []string // keys, oldest first
	cancelledEarly []string // keys cancelled before any swap came with them
}

// New returns a coordinator without swaps.
func New(opts Options) *Coordinator {
	c := &Coordinator{opts: opts, log: opts.Logger, closing: make(chan struct{}), runs: map[string]*Run{}, keys: map[string]*rememberedKey{}, writes: opts.Writes}
	if c.writes == nil {
		c.writes = &statedir.Queue{}
	}
	c.records = c.writes.Writer(opts.Records, c.noteWriteFailed)
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close waits until the running swaps are over or ctx ends. It then breaks off the
// swaps that still run; the next launcher finishes or undoes them. An undo that goes on
// after the swap's answer is broken off at once.
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

// isClosing reports whether Close was called: no more swaps begin.
func (c *Coordinator) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Begin reads a request and starts the swap. It returns errors of the request itself;
// the Run has all later errors. A request that it refuses has an id, which only the log
// names: the coordinator remembers swaps alone. If the key came with the same request before, Begin
// returns the earlier Run and starts nothing.
func (c *Coordinator) Begin(req launcherapi.SwapRequest, key string) (*Run, error) {
	id := uuid.NewString()
	r, err := c.begin(id, req, key)
	if err != nil {
		c.log.Info("refused a swap before it began", "swap", id, "code", launcher.CodeOf(err))
		return nil, &launcher.SwapError{Result: launcherapi.SwapResult{SwapID: id, Outcome: launcherapi.OutcomeRefused}, Err: err}
	}
	return r, nil
}

func (c *Coordinator) begin(id string, req launcherapi.SwapRequest, key string) (*Run, error) {
	digest, err := digestOf(req)
	if err != nil {
		return nil, err
	}
	if earlier, err := c.lookUpKey(key, digest); earlier != nil || err != nil {
		return earlier, err
	}
	r, err := c.newRunFor(id, req)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, err := c.lookUpKeyLocked(key, digest); earlier != nil || err != nil {
		return earlier, err // a swap with the same key came in the meantime
	}
	if c.closed {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	if slices.Contains(c.cancelledEarly, key) {
		return nil, errCancelledEarly
	}
	if key != "" {
		r.saved.Key = newKey(key, digest)
		forgotten := c.rememberLocked(&rememberedKey{saved: r.saved, run: r})
		c.forgetSwap(forgotten)
	}
	c.runs[id] = r
	c.tasks.Go(func() { r.run(c.ctx) })
	return r, nil
}

// Recover takes over the swaps of an earlier launcher, oldest first. It remembers the
// keys of swaps that were over. It finishes or undoes the swaps that were under way: a
// swap whose instance is awake or becomes awake is finished. Recover takes their places
// in the queue before any other swap can, and takes them up in the background.
func (c *Coordinator) Recover(swaps []Saved) {
	for _, saved := range swaps {
		switch {
		case !saved.Done:
			c.takeUp(saved)
		case saved.Key == nil:
			c.forgetSwap(saved.Plan.SwapID)
		default:
			c.remember(&rememberedKey{saved: saved})
		}
	}
	_ = c.writes.Settle() // what is forgotten now is not found again; a failure is logged elsewhere
}

func (c *Coordinator) takeUp(saved Saved) {
	r := c.resumedRun(saved)
	r.claim = c.opts.Supervisor.Reclaim(r.saved.Plan) // with the times of this process
	if saved.Key != nil {
		c.remember(&rememberedKey{saved: saved, run: r})
	}
	c.mu.Lock()
	c.runs[r.id] = r
	c.mu.Unlock()
	turn := c.opts.Turns.Enter(saved.Plan.SwapID, saved.Plan.GPUs)
	c.tasks.Go(func() {
		if turn.Await(c.ctx) != nil {
			r.conclude(launcherapi.OutcomeInterrupted, errLauncherCloses)
			r.end()
			return
		}
		r.takeUp(c.ctx)
		turn.Release()
		r.end()
	})
}

// resumedRun returns the Run of a swap that an earlier launcher broke off.
func (c *Coordinator) resumedRun(saved Saved) *Run {
	r := c.newRun(saved.Plan.SwapID)
	c.restoreTimes(&saved, r.began)
	r.began = saved.Began
	r.saved, r.written, r.recorded, r.limit = saved, true, true, c.opts.Limits.Start
	r.committed, r.undoAsked = saved.Committed, saved.UndoAsked
	r.begun = true // the swap may have moved instances, so nobody may cancel it
	r.result.Deleted, r.result.Evicted, r.result.Cut = saved.Deleted, saved.Evicted, saved.Cut
	r.view = viewOf(saved)
	return r
}

// restoreTimes turns the times of a record into times of this process. Its deadline is not
// further away than when the swap began, and it has begun by now.
func (c *Coordinator) restoreTimes(saved *Saved, now time.Time) {
	until := &saved.Plan.Until
	c.opts.Clock.Restore(saved.Stamp, &saved.Began, until)
	longest := until.Sub(saved.Began)
	switch {
	case until.IsZero():
		*until = now.Add(c.opts.Limits.Start)
	case !saved.Began.IsZero() && longest > 0 && until.Sub(now) > longest:
		*until = now.Add(longest)
	}
	if saved.Began.IsZero() || saved.Began.After(now) {
		saved.Began = now
	}
}
