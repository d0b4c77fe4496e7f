package swap

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func prepared(req launcherapi.SwapRequest) launcherapi.SwapRequest {
	req.Prepare = true
	return req
}

func untilHealthy(req launcherapi.SwapRequest) launcherapi.SwapRequest {
	req.Until = launcherapi.UntilHealthy
	return req
}

// at returns the state and the phase of a swap.
func at(r *Run) string {
	now, _ := r.Show()
	return now.State + " " + now.Phase
}

func TestPreparedSwapChangesNothingBeforeGo(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		first := w.begin(prepared(requestForNew("b", "g0")))
		synctest.Wait()
		second := w.begin(requestForNew("c", "g0"))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"waiting go", "waiting admit"}, []string{at(first), at(second)}, "the second one waits for the first")
		assert.Equal(t, []string{"awake", "gone"}, []string{w.state("a"), w.state("b")})
		assert.Empty(t, w.paper.ever())
		for range 2 {
			_, err := w.Go(first.ID())
			require.NoError(t, err)
		}
		result, err := first.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "b", result.In.InstanceID)
		_, err = w.Go(first.ID())
		require.NoError(t, err, "a client that has lost the answer asks again")
		_, err = second.Wait(t.Context())
		require.NoError(t, err)
		_, err = w.Go("another")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	})
}

func TestPreparedSwapIsRefusedAfterItsHold(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		request := prepared(requestForNew("b", "g0"))
		request.Hold = new(launcherapi.Duration)
		*request.Hold = launcherapi.Duration(time.Minute)
		r := w.begin(request)
		synctest.Wait()
		began := time.Now()
		result, err := r.Wait(t.Context())
		assert.ErrorContains(t, err, "no client said go within 1m0s")
		assert.Equal(t, []any{launcherapi.OutcomeRefused, launcherapi.PhaseGo, time.Minute}, []any{result.Outcome, asFailed(err).Phase, time.Since(began)})
		synctest.Wait()
		_, err = w.Go(r.ID())
		assert.ErrorContains(t, err, "no client said go", "it came too late")
		_, err = w.Undo(r.ID())
		assert.ErrorContains(t, err, "was not asked for with until")
		next, err := w.begin(requestForNew("b", "g0")).Wait(t.Context())
		require.NoError(t, err, "what it claimed is given back")
		assert.Equal(t, launcherapi.OutcomeDone, next.Outcome)
	})
}

func TestGoMayComeBeforeTheTurn(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		first := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		second := w.begin(prepared(requestForNew("c", "g0")))
		_, err := w.Go(second.ID())
		require.NoError(t, err)
		close(w.gates.busy)
		for _, r := range []*Run{first, second} {
			_, err = r.Wait(t.Context())
			require.NoError(t, err)
		}
		assert.Equal(t, "awake", w.state("c"))
	})
}

func TestPreparedSwapIsCancelled(t *testing.T) {
	for name, cancel := range map[string]func(*Coordinator, string) (*Run, error){"cancel": (*Coordinator).Cancel, "undo": (*Coordinator).Undo} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				r := w.begin(untilHealthy(prepared(requestForNew("b", "g0"))))
				synctest.Wait()
				_, err := cancel(w.Coordinator, r.ID())
				require.NoError(t, err)
				result, err := r.Wait(t.Context())
				assert.ErrorContains(t, err, "cancelled")
				assert.Equal(t, []string{launcherapi.OutcomeRefused, launcherapi.PhaseGo, "gone"}, []string{result.Outcome, asFailed(err).Phase, w.state("b")})
				_, err = w.Go(r.ID())
				assert.ErrorContains(t, err, "cancelled")
			})
		})
	}
}

func TestGateOpensOnceTheSwapIsCommitted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		request := untilHealthy(requestForNew("b", "g0"))
		request.Out = &launcherapi.SwapOut{Mode: launcherapi.OutStop}
		r := w.begin(request)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"running commit", "awake", "sleeping"}, []string{at(r), w.state("b"), w.state("a")}, "the one that leaves is not stopped yet")
		for range 2 {
			_, err := w.Commit(r.ID())
			require.NoError(t, err)
		}
		assert.True(t, slices.ContainsFunc(w.paper.ever(), func(s Saved) bool { return s.Committed }), "written down when it is answered")
		_, err := w.Undo(r.ID())
		assert.ErrorContains(t, err, "it is committed")
		result, err := r.Wait(t.Context())
		require.NoError(t, err)
		last := result.Phases[len(result.Phases)-2:]
		assert.Equal(t, []string{launcherapi.PhaseCommit, launcherapi.PhaseOpen, "gone"}, []string{last[0].Name, last[1].Name, w.state("a")})
		synctest.Wait()
		_, err = w.Commit(r.ID())
		require.NoError(t, err, "a client that has lost the answer asks again")
		_, err = w.Undo(r.ID())
		assert.ErrorContains(t, err, "it is committed")
		assert.Empty(t, w.paper.all(), "a late commit writes nothing")
	})
}

func TestCommitBeforeItsPhaseIsRefused(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		r := w.begin(untilHealthy(prepared(requestForNew("b", "g0"))))
		synctest.Wait()
		_, err := w.Commit(r.ID())
		assert.ErrorContains(t, err, "in the phase go")
		_, err = w.Go(r.ID())
		require.NoError(t, err)
		synctest.Wait()
		_, err = w.Commit(r.ID())
		require.NoError(t, err)
		_, err = r.Wait(t.Context())
		require.NoError(t, err)
	})
}

// The instance that is to come in is awake already: it stays so until the swap is over.
func TestHeldSwapWithNothingToDoKeepsItsInstance(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		r := w.begin(untilHealthy(prepared(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "a"}})))
		synctest.Wait()
		kept := func() {
			_, err := w.sup.Sleep("a", launcher.VerbRequest{})
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		}
		kept()
		_, err := w.Go(r.ID())
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "running commit", at(r))
		kept()
		_, err = w.Commit(r.ID())
		require.NoError(t, err)
		result, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
		synctest.Wait()
		_, err = w.sup.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
	})
}

func TestPreparedSwapIsRefusedIfAnInstanceHasEndedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		request launcherapi.SwapRequest
		lose    func(w *world)
		says    string // empty: the swap is done
	}{
		"the one that leaves dies":      {requestForNew("b", "g0"), func(w *world) { w.runner.fail("a") }, "a has ended while the swap was held"},
		"the one that leaves is gone":   {requestForNew("b", "g0"), func(w *world) { _, _ = w.sup.Delete(w.t.Context(), "a") }, ""},
		"the one that comes in dies":    {launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "s"}}, func(w *world) { w.runner.fail("s") }, "s has ended while the swap was held"},
		"the one that comes in is gone": {launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "s"}}, func(w *world) { _, _ = w.sup.Delete(w.t.Context(), "s") }, "s was deleted while the swap was held"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.asleep("s", "g0")
				w.awake("a", "g0")
				r := w.begin(prepared(c.request))
				synctest.Wait()
				require.Equal(t, "waiting go", at(r))
				c.lose(w)
				synctest.Wait()
				_, err := w.Go(r.ID())
				require.NoError(t, err)
				result, err := r.Wait(t.Context())
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				assert.ErrorContains(t, err, c.says)
				assert.Equal(t, []string{launcherapi.OutcomeRefused, launcherapi.PhaseGo}, []string{result.Outcome, asFailed(err).Phase})
			})
		})
	}
}

// A launcher died after it had answered an undo, and before the undo had begun.
func TestUndoIsWrittenDownBeforeItIsAnswered(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		r := w.begin(untilHealthy(requestForNew("b", "g0")))
		synctest.Wait()
		_, err := w.Undo(r.ID())
		require.NoError(t, err)
		_, _ = r.Wait(t.Context())
		first := slices.IndexFunc(w.paper.ever(), func(s Saved) bool { return s.UndoAsked })
		require.GreaterOrEqual(t, first, 0)
		assert.Nil(t, w.paper.ever()[first].Failure, "before the undo begins")
	})
}

func TestSwapIsUndoneWhenItsClientAsks(t *testing.T) {
	for name, drains := range map[string]bool{"while it waits for its commit": false, "while an instance drains": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.awake("a", "g0")
				if drains {
					w.gates.busy = make(chan struct{})
				}
				r := w.begin(untilHealthy(requestForNew("b", "g0")))
				synctest.Wait()
				began := time.Now()
				for range 2 {
					_, err := w.Undo(r.ID())
					require.NoError(t, err)
				}
				_, err := w.Commit(r.ID())
				assert.ErrorContains(t, err, "undo", "it is being undone, or is undone")
				result, err := r.Wait(t.Context())
				assert.ErrorContains(t, err, "a client asked for the undo")
				assert.Equal(t, []any{launcherapi.OutcomeUndone, time.Duration(0)}, []any{result.Outcome, time.Since(began)})
				assert.Equal(t, []string{"awake", "gone"}, []string{w.state("a"), w.state("b")})
				synctest.Wait()
				_, err = w.Undo(r.ID())
				require.NoError(t, err)
				_, err = w.Commit(r.ID())
				assert.Equal(t, launcherapi.OutcomeUndone, asFailed(err).Result.Outcome)
			})
		})
	}
}

func TestSwapThatIsNotCommittedIsUndone(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(w *world)
		code string
	}{
		"at its deadline":              {func(*world) { time.Sleep(10*time.Minute - time.Nanosecond) }, launcherapi.CodeEngineTimeout},
		"when its engine dies":         {func(w *world) { w.runner.fail("b") }, launcherapi.CodeEngineFailed},
		"when the instance is deleted": {func(w *world) { _, _ = w.sup.Delete(w.t.Context(), "b") }, launcherapi.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.awake("a", "g0")
				r := w.begin(untilHealthy(requestForNew("b", "g0")))
				synctest.Wait()
				require.Equal(t, "running commit", at(r))
				c.fail(w)
				result, err := r.Wait(t.Context())
				assert.Equal(t, []string{launcherapi.OutcomeUndone, launcherapi.PhaseCommit, c.code}, []string{result.Outcome, asFailed(err).Phase, launcher.CodeOf(err)}, "%v", err)
				assert.Equal(t, []string{"awake", "gone"}, []string{w.state("a"), w.state("b")})
				_, err = w.Commit(r.ID())
				assert.Error(t, err)
			})
		})
	}
}

func TestHeldSwapIsInterruptedWhenTheLauncherCloses(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		held := w.begin(prepared(requestForNew("b", "g0")))
		w.awake("x", "g1")
		uncommitted := w.begin(untilHealthy(requestForNew("c", "g1")))
		synctest.Wait()
		began := time.Now()
		w.Close(context.Background())
		assert.Zero(t, time.Since(began))
		for _, c := range []struct {
			r       *Run
			outcome string
			phase   string
		}{{held, launcherapi.OutcomeRefused, launcherapi.PhaseGo}, {uncommitted, launcherapi.OutcomeInterrupted, launcherapi.PhaseCommit}} {
			result, err := c.r.Wait(t.Context())
			assert.Equal(t, []string{c.outcome, c.phase, launcherapi.CodeUnavailable}, []string{result.Outcome, asFailed(err).Phase, launcher.CodeOf(err)})
		}
		left := w.unfinished()
		require.Len(t, left, 1)
		assert.Equal(t, []any{"c", true, false}, []any{left[0].Plan.In, left[0].NeedsCommit, left[0].Committed})
	})
}

// A launcher died while a swap waited for its commit, and the instance that came in is awake.
func TestRecoveredSwapWaitsForItsCommit(t *testing.T) {
	undone := []string{"settle", "await loss", "send back", "bring back a", "release"}
	done := []string{"settle", "await loss", "open", "release"}
	for name, c := range map[string]struct {
		saved Saved
		told  func(*Run) error
		calls []string
		after time.Duration
	}{
		"and is committed":             {told: (*Run).commit, calls: done, after: time.Second},
		"and is undone":                {told: (*Run).askUndo, calls: undone, after: time.Second},
		"and is told nothing":          {calls: undone, after: time.Minute},
		"though it was committed":      {saved: Saved{Committed: true}, calls: []string{"settle", "open", "release"}},
		"though it was to be undone":   {saved: Saved{UndoAsked: true}, calls: []string{"settle", "send back", "bring back a", "release"}},
		"though it failed":             {saved: Saved{Failure: &SavedFailure{Phase: "commit"}}, calls: []string{"settle", "send back", "bring back a", "release"}},
		"and its canary was not asked": {saved: Saved{Phase: "healthy", Canary: true, Committed: true}, calls: []string{"settle", "canary", "open", "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, newPaper(t))
				f := &fakeClaim{plan: planToCreate("s", "n", "a"), states: map[string]string{"a": "sleeping", "n": "awake"}}
				f.plan.Until = time.Now().Add(time.Minute + pace["a"])
				c.saved.Plan, c.saved.NeedsCommit = f.plan, true
				if c.saved.Phase == "" {
					c.saved.Phase = launcherapi.PhaseCommit
				}
				r := s.resumedRun(c.saved)
				r.claim = f
				began := time.Now()
				s.tasks.Go(func() { r.takeUp(s.ctx); r.end() })
				if c.told != nil {
					time.Sleep(time.Second)
					require.NoError(t, c.told(r))
				}
				result, err := r.Wait(t.Context())
				assert.Equal(t, c.calls, f.calls)
				assert.Equal(t, c.after, time.Since(began).Truncate(time.Second))
				if assert.Equal(t, c.calls[len(c.calls)-2] == "open", err == nil, "%v", err); err == nil {
					assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
				}
				assert.Empty(t, s.paper.all())
			})
		})
	}
}

func TestCommitThatCannotBeWrittenIsSaid(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		r := w.begin(untilHealthy(requestForNew("b", "g0")))
		synctest.Wait()
		w.paper.fill(true)
		_, err := w.Commit(r.ID())
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
		w.paper.fill(false)
		result, err := r.Wait(t.Context())
		require.NoError(t, err, "the client has decided")
		assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
	})
}

func TestHalvesThatCannotBeAreRefused(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		long, short := launcherapi.Duration(6*time.Minute), launcherapi.Duration(time.Second)
		for location, change := range map[string]func(*launcherapi.SwapRequest){
			"body.hold without prepare": func(req *launcherapi.SwapRequest) { req.Prepare, req.Hold = false, &short },
			"body.hold too long":        func(req *launcherapi.SwapRequest) { req.Hold = &long },
			"body.until unknown":        func(req *launcherapi.SwapRequest) { req.Until = "open" },
			"body.until without in":     func(req *launcherapi.SwapRequest) { req.Until, req.In = launcherapi.UntilHealthy, nil },
		} {
			request := prepared(requestForNew("b", "g0"))
			change(&request)
			_, err := w.Begin(request, "")
			assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err), location)
			assert.ErrorContains(t, err, location[5:10], location)
		}
		r := w.begin(requestForNew("b", "g0"))
		for _, tell := range []func(string) (*Run, error){w.Commit, w.Undo} {
			_, err := tell(r.ID())
			assert.ErrorContains(t, err, "until: healthy")
		}
		dry := prepared(requestForNew("c", "g1"))
		dry.DryRun = true
		result, err := w.begin(dry).Wait(t.Context())
		require.NoError(t, err, "a dry run has nothing to wait for")
		assert.Equal(t, launcherapi.OutcomeDryRun, result.Outcome)
	})
}
