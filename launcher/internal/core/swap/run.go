package swap

import (
	"context"
	"errors"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Run is one swap: its request, its claim, its record and its progress.
type Run struct {
	c     *Coordinator
	id    string
	began time.Time

	req   launcherapi.SwapRequest
	gpus  []string          // GPUs to swap on
	draft *supervisor.Draft // of a new instance; nil: none
	limit time.Duration

	claim          Claim     // nil until the swap is admitted
	saved          Saved     // the record; once it is written, the coordinator's lock guards all of it but the plan
	written        bool      // the record is on disk, so the end has to be written too
	rowsBegun      int       // number of rows that were begun
	recorded       bool      // the record was given to the writer; the coordinator's lock guards it
	answerDeadline time.Time // for a recovered swap; zero: the plan decides

	mu          sync.Mutex
	progress    []launcherapi.SwapProgress
	changed     chan struct{}           // closed and replaced when progress grows
	ended       chan struct{}           // closed when the swap is over
	answered    bool                    // no more progress follows
	resultFinal bool                    // result and err are final
	begun       bool                    // the swap no longer waits for its turn or for go and cannot be cancelled
	cancelled   bool                    // while the swap waited for its turn or for go
	stopWaiting context.CancelCauseFunc // ends the wait for the turn, and for go
	goAsked     bool                    // a client has said go
	begin       chan struct{}           // closed when a client says go
	refusal     error                   // why the swap is refused though a client has held it
	atCommit    bool                    // the swap may be committed
	committed   bool                    // a client has said commit
	undoAsked   bool                    // a client has asked for the undo
	// commitWritten is closed when the commit is written down, or cannot be.
	commitWritten chan struct{}
	breakOff      context.CancelCauseFunc // ends the phases for the undo that a client asks for; nil: they have not begun
	over          bool                    // the swap does nothing any more; it may be answered before
	view          launcherapi.Swap        // what Show returns, but for the state and the outcome
	result        launcherapi.SwapResult
	err           error
}

// ID returns the swap's id.
func (r *Run) ID() string { return r.id }

func asFailed(err error) *launcher.SwapError {
	failed, _ := errors.AsType[*launcher.SwapError](err)
	return failed
}

func asDomain(err error) (*launcher.Error, bool) { return errors.AsType[*launcher.Error](err) }

// Wait returns when the swap is over. If ctx ends first, the swap goes on.
func (r *Run) Wait(ctx context.Context) (launcherapi.SwapResult, error) {
	select {
	case <-r.ended:
	case <-ctx.Done():
		return launcherapi.SwapResult{}, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result, r.err
}

// Follow calls tell with every step of the swap until the swap is over, beginning with
// the steps before the call. If tell fails or ctx ends, Follow returns that error and
// the swap goes on.
func (r *Run) Follow(ctx context.Context, tell func(launcherapi.SwapProgress) error) error {
	for n := 0; ; {
		r.mu.Lock()
		news, over, changed := r.progress[n:], r.answered, r.changed
		r.mu.Unlock()
		for _, p := range news {
			if err := tell(p); err != nil {
				return err
			}
		}
		n += len(news)
		if over && len(news) == 0 {
			return nil
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// appendProgress adds a step. The lock is held.
func (r *Run) appendProgress(p launcherapi.SwapProgress) {
	p.SwapID = r.ID()
	r.progress = append(r.progress, p)
	close(r.changed)
	r.changed = make(chan struct{})
}

// phase runs one phase and records how long it took.
func (r *Run) phase(name, instanceID string, step func() error) error {
	r.noteBegun(name, instanceID)
	crashpoint.At(crashpoint.Begun(name))
	began := time.Now()
	if err := step(); err != nil {
		r.noteDone(name, instanceID, began)
		if errors.Is(err, errTimeout) {
			err = launcher.EngineTimeoutf("%w (%s)", errTimeout, r.limit)
		}
		return &launcher.SwapError{Phase: name, Err: err}
	}
	r.noteDone(name, instanceID, began)
	crashpoint.At(crashpoint.Done(name))
	return nil
}

func (r *Run) noteBegun(name, instanceID string) {
	r.mu.Lock()
	if !r.answered {
		r.view.Phase = name
		r.appendProgress(launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, Phase: name, InstanceID: instanceID})
	}
	r.mu.Unlock()
	if !r.written {
		return
	}
	if err := r.updateRecord(func(s *Saved) { s.Phase = name }); err != nil {
		r.c.log.Warn("cannot record the progress of a swap", "swap", r.ID(), "phase", name, "error", err)
	}
}

func (r *Run) noteDone(name, instanceID string, began time.Time) {
	ms := milliseconds(time.Since(began))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return
	}
	r.result.Phases = append(r.result.Phases, launcherapi.PhaseTime{Name: name, InstanceID: instanceID, BeganMS: milliseconds(began.Sub(r.began)), DurationMS: ms})
	r.appendProgress(launcherapi.SwapProgress{Type: launcherapi.ProgressDone, Phase: name, InstanceID: instanceID, DurationMS: ms})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run executes the swap from beginning to end.
func (r *Run) run(parent context.Context) {
	ctx, cancel := context.WithDeadlineCause(parent, r.saved.Plan.Until, errTimeout)
	defer cancel()
	r.admitAndExecute(ctx)
	r.end()
}

// errTimeout is the cause of the cancellation when a swap's time is over.
var errTimeout = errors.New("the swap ran out of time")

func (r *Run) admitAndExecute(ctx context.Context) {
	release, err := r.awaitAdmission(ctx)
	if err != nil {
		r.conclude(launcherapi.OutcomeRefused, err)
		return
	}
	defer release()
	defer r.releaseClaim()
	r.executeOrUndo(ctx)
}

// executeOrUndo executes the plan, and undoes it if that fails.
func (r *Run) executeOrUndo(ctx context.Context) {
	switch {
	case r.req.DryRun:
		r.conclude(launcherapi.OutcomeDryRun, nil)
		return
	case r.saved.Plan.NothingToDo() && !r.saved.NeedsCommit:
		r.conclude(launcherapi.OutcomeNoop, nil)
		return
	}
	if err := r.save(); err != nil {
		r.conclude(launcherapi.OutcomeRefused, &launcher.SwapError{Phase: launcherapi.PhaseAdmit, Err: err})
		return
	}
	crashpoint.At(crashpoint.SwapWritten)
	r.claim.Publish()
	ctx, stop := r.untilUndo(ctx)
	defer stop()
	err := r.execute(ctx)
	switch {
	case errors.Is(err, errLauncherCloses):
		r.conclude(launcherapi.OutcomeInterrupted, err)
		return
	case err != nil && r.c.ctx.Err() == nil:
		r.undo(orUndoAsked(ctx, err))
		return
	}
	if err == nil {
		r.stopLeavers()
	}
	r.conclude(launcherapi.OutcomeDone, nil)
}

// releaseClaim gives back what the swap has claimed.
func (r *Run) releaseClaim() {
	r.c.mu.Lock()
	brokenOff := r.written && !r.saved.Done
	r.c.mu.Unlock()
	if brokenOff {
		r.claim.BreakOff()
		return
	}
	r.claim.Release()
}

// conclude sets the result of the swap and saves it. If the launcher is ending, conclude
// saves nothing: a swap that was broken off keeps its record, and a swap that has not
// begun has none.
func (r *Run) conclude(outcome string, err error) {
	if r.c.ctx.Err() == nil && !errors.Is(err, errLauncherCloses) {
		r.setResult(outcome, err)
		r.saveEnd()
		return
	}
	outcome = launcherapi.OutcomeRefused
	if r.written {
		outcome = launcherapi.OutcomeInterrupted
	}
	phase := phaseOf(r.saved.Phase)
	if failed := asFailed(err); failed != nil {
		phase = failed.Phase
	}
	r.setResult(outcome, &launcher.SwapError{Phase: phase, Err: errLauncherCloses})
}

// setResult sets the result and the error of the swap. Only the first call counts.
func (r *Run) setResult(outcome string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resultFinal {
		return
	}
	r.resultFinal = true
	r.result.Outcome = outcome
	r.result.BeganAt, r.result.TotalMS = r.began.UTC(), milliseconds(time.Since(r.began))
	r.result.In, r.result.Out = r.show()
	if failed := asFailed(err); failed != nil {
		failed.Result = r.result
	}
	r.err = err
}

// finish sends the result to all callers of Wait and Follow. Only the first call counts.
func (r *Run) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return
	}
	if r.err == nil {
		result := r.result
		r.appendProgress(launcherapi.SwapProgress{Type: launcherapi.ProgressResult, Result: &result})
	}
	r.answered = true
	close(r.ended)
	close(r.changed)
	r.changed = make(chan struct{})
	outcome := r.result.Outcome
	r.c.opts.Finished(outcome, r.result)
	r.c.log.Info("swap is over", "swap", r.ID(), "outcome", outcome, "in", r.saved.Plan.In, "out", r.saved.Plan.Out, "total_ms", r.result.TotalMS, "error", r.err)
}

// show returns the instance that comes in and the instances that leave. For a swap that
// was not admitted it returns the instance that the request names.
func (r *Run) show() (in *launcherapi.Instance, out []launcherapi.Instance) {
	if r.claim != nil {
		return r.claim.Show()
	}
	if view, err := r.c.opts.Supervisor.Get(r.saved.Plan.In); err == nil {
		view.SwapID = ""
		in = &view
	}
	return in, []launcherapi.Instance{}
}
