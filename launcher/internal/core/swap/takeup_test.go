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

// A launcher dies in each of these phases and leaves a record. The next launcher reads
// the record, looks at the instances, and finishes or undoes the swap.
func TestRecoveredSwapIsFinishedOrUndone(t *testing.T) {
	undone := []string{"settle", "send back", "bring back a", "bring back b", "release"}
	done := []string{"settle", "open", "stop a", "stop b", "release"}
	tested := []string{"settle", "canary", "open", "stop a", "stop b", "release"}
	for name, c := range map[string]struct {
		at     string // the call in which the launcher dies
		phase  string
		states map[string]string // that the next launcher finds
		calls  []string
	}{
		"while a leaver drains":               {at: "drain b", phase: "sleep", states: map[string]string{"a": "awake", "b": "awake"}, calls: undone},
		"while a leaver falls asleep":         {at: "sleep b", phase: "sleep", states: map[string]string{"a": "sleeping", "b": "falling_asleep"}, calls: undone},
		"while a victim is evicted":           {at: "evict v", phase: "evict", states: map[string]string{"a": "sleeping", "b": "sleeping"}, calls: undone},
		"before the new instance was created": {at: "start", phase: "start", states: map[string]string{"a": "sleeping", "b": "sleeping"}, calls: undone},
		"after the new instance was created":  {at: "start", phase: "start", states: map[string]string{"a": "sleeping", "b": "sleeping", "n": "awake"}, calls: tested},
		"while the new instance starts":       {at: "healthy", phase: "healthy", states: map[string]string{"a": "sleeping", "b": "sleeping", "n": "starting"}, calls: undone},
		"after the new instance failed":       {at: "healthy", phase: "healthy", states: map[string]string{"a": "sleeping", "b": "sleeping", "n": "failed"}, calls: undone},
		"after the new instance became awake": {at: "healthy", phase: "healthy", states: map[string]string{"a": "sleeping", "b": "sleeping", "n": "awake"}, calls: tested},
		"while the canary is asked":           {at: "canary", phase: "canary", states: map[string]string{"a": "sleeping", "b": "sleeping", "n": "awake"}, calls: tested},
		"while a leaver is stopped":           {at: "stop b", phase: "open", states: map[string]string{"b": "stopping", "n": "awake"}, calls: done},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := newPaper(t)
				first := newStage(t, written)
				f := &fakeClaim{plan: withEverything(planToCreateN("a", "b")), hangs: c.at}
				r := first.run(f)
				withCanary(r)
				go func() {
					synctest.Wait()
					time.Sleep(time.Second)
					first.stop()
				}()
				result, err := first.play(t, r)
				require.Equal(t, launcherapi.OutcomeInterrupted, result.Outcome, "%v", err)
				require.Equal(t, "break off", f.calls[len(f.calls)-1], "its instances stay claimed")

				all := written.all()
				require.Len(t, all, 1)
				assert.Equal(t, c.phase, all[0].Phase)
				assert.Equal(t, f.plan.Out, all[0].Plan.Out)
				assert.Equal(t, f.plan.Evict, all[0].Plan.Evict)
				assert.Equal(t, f.plan.Room, all[0].Plan.Room)
				assert.True(t, f.plan.Until.Equal(all[0].Plan.Until))
				second := newStage(t, written)
				g := &fakeClaim{plan: all[0].Plan, states: c.states}
				result, err = second.takenUp(t, all[0], g)
				assert.Equal(t, c.calls, g.calls)
				assert.Empty(t, written.all())
				if slices.Contains(c.calls, "open") {
					require.NoError(t, err)
					assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
					return
				}
				assert.Equal(t, launcherapi.OutcomeUndone, result.Outcome)
				assert.Equal(t, c.phase, asFailed(err).Phase)
			})
		})
	}
}

func TestRecoveredSwapWhoseLeaverWasWokenSinceIsDone(t *testing.T) {
	for name, c := range map[string]struct {
		plan   launcher.Plan
		states map[string]string
		done   bool
	}{
		"awake":                            {planToCreateN("a"), map[string]string{"a": "awake", "n": "awake"}, true},
		"waking":                           {planToWake("a"), map[string]string{"a": "waking", "n": "awake"}, true},
		"nobody knows":                     {planToWake("a"), map[string]string{"a": "starting", "n": "awake"}, true},
		"the other one does not serve":     {planToWake("a"), map[string]string{"a": "awake", "n": "sleeping"}, false},
		"the other one was awake before":   {launcher.Plan{SwapID: "s", In: "n", Out: []string{"a"}}, map[string]string{"a": "awake", "n": "awake"}, false},
		"it would have been stopped first": {withStop(planToWake("a")), map[string]string{"a": "awake", "n": "awake"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := newStage(t, newPaper(t)), &fakeClaim{plan: c.plan, states: c.states}
				saved := Saved{Plan: c.plan, Phase: "healthy"}
				saved.Plan.Until = time.Now().Add(time.Minute)
				result, _ := s.takenUp(t, saved, f)
				assert.Equal(t, c.done, result.Outcome == launcherapi.OutcomeDone, "%v", f.calls)
			})
		})
	}
}

func TestRecoveredSwapAsksItsCanaryThoughALeaverNeverSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := newStage(t, newPaper(t)), &fakeClaim{plan: planToWake("a"), hangs: "settle", states: map[string]string{"a": "starting", "n": "awake"}}
		result, err := s.takenUp(t, Saved{Plan: f.plan, Phase: "healthy", Canary: true}, f)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
		assert.Contains(t, f.calls, "canary")
	})
}

// The answer of a recovered swap has what the swap did before the launcher died. The
// next launcher still asks for the canary that the request wants.
func TestRecoveredSwapAsksItsCanaryAndReportsEarlierPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := newPaper(t)
		first := newStage(t, written)
		r := first.run(&fakeClaim{plan: withEverything(planToCreateN("a", "b")), hangs: "healthy"})
		withCanary(r)
		go func() {
			synctest.Wait()
			time.Sleep(time.Second)
			first.stop()
		}()
		_, _ = first.play(t, r) // the launcher's end breaks it off
		left := written.all()[0]
		states := map[string]string{"a": "sleeping", "b": "sleeping", "n": "awake"}
		g := &fakeClaim{plan: left.Plan, states: states, fails: map[string]error{"canary": errBroken}}
		result, err := newStage(t, written).takenUp(t, left, g)
		assert.Equal(t, []string{"settle", "canary", "send back", "bring back a", "bring back b", "release"}, g.calls)
		assert.Equal(t, launcherapi.PhaseCanary, asFailed(err).Phase)
		assert.Equal(t, launcherapi.OutcomeUndone, result.Outcome)
		assert.Equal(t, []string{"v", "c"}, result.Evicted)
		assert.Equal(t, 2, result.Cut)
	})
}

// takenUp takes up a swap of an earlier launcher.
func (s *stage) takenUp(t *testing.T, saved Saved, claim Claim) (launcherapi.SwapResult, error) {
	t.Helper()
	r := s.resumedRun(saved)
	r.claim = claim
	r.takeUp(s.ctx)
	r.finish()
	s.tasks.Wait()
	return r.Wait(t.Context())
}

func TestRecordDecidesHowASwapIsRecovered(t *testing.T) {
	for name, c := range map[string]struct {
		saved   Saved
		states  map[string]string
		calls   []string
		outcome string
		says    string
	}{
		"a swap with a recorded failure is undone though it looks complete": {
			saved: Saved{Plan: planToWake("a"), Phase: "undo", Failure: &SavedFailure{Phase: "canary", Code: launcherapi.CodeEngineFailed, Detail: "no token"}}, states: map[string]string{"a": "sleeping", "n": "awake"},
			calls: []string{"settle", "send back", "bring back a", "release"}, outcome: launcherapi.OutcomeUndone, says: "no token",
		},
		"a deleted leaver counts as having left": {
			saved: Saved{Plan: planToWake("a", "b"), Deleted: []string{"a"}}, states: map[string]string{"b": "sleeping", "n": "awake"},
			calls: []string{"settle", "open", "release"}, outcome: launcherapi.OutcomeDone,
		},
		"a deleted leaver is not brought back": {
			saved: Saved{Plan: planToWake("a", "b"), Deleted: []string{"a"}}, states: map[string]string{"b": "sleeping", "n": "sleeping"},
			calls: []string{"settle", "send back", "bring back b", "release"}, outcome: launcherapi.OutcomeUndoFailed, says: "a is gone: it was deleted",
		},
		"a swap without an incoming instance is done when the leavers sleep": {
			saved: Saved{Plan: launcher.Plan{SwapID: "s", Out: []string{"a"}}}, states: map[string]string{"a": "sleeping"},
			calls: []string{"settle", "open", "release"}, outcome: launcherapi.OutcomeDone,
		},
		"a swap without an incoming instance is undone when a leaver does not sleep": {
			saved: Saved{Plan: launcher.Plan{SwapID: "s", Out: []string{"a"}}}, states: map[string]string{"a": "falling_asleep"},
			calls: []string{"settle", "bring back a", "release"}, outcome: launcherapi.OutcomeUndone, says: "died during",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, newPaper(t))
				f := &fakeClaim{plan: c.saved.Plan, states: c.states}
				result, err := s.takenUp(t, c.saved, f)
				assert.Equal(t, c.calls, f.calls)
				assert.Equal(t, c.outcome, result.Outcome)
				if c.says == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, c.says)
				}
			})
		})
	}
}

func TestRecoveredSwapIsLeftToTheNextLauncherOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, newPaper(t))
		f := &fakeClaim{plan: planToWake("a"), hangs: "settle"}
		f.plan.Until = time.Now().Add(time.Hour)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { synctest.Wait(); s.Close(over) }()
		result, err := s.takenUp(t, Saved{Plan: f.plan}, f)
		assert.Equal(t, []string{"settle", "break off"}, f.calls)
		assert.Equal(t, launcherapi.OutcomeInterrupted, result.Outcome)
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
	})
}
