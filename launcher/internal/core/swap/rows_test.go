package swap

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func withCanary(r *Run) { r.saved.Canary = true }

func dryRun(r *Run) { r.req.DryRun = true }

func TestSwapRunsItsPhasesInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		plan     launcher.Plan
		change   func(*Run)
		compares bool
		fails    map[string]error
		calls    []string
		outcome  string
	}{
		"a sleeper replaces an awake instance": {plan: planToWake("a"), calls: []string{"drain a", "sleep a", "wake", "open"}},
		"a new instance replaces an awake one": {plan: planToCreateN("a"), calls: []string{"drain a", "sleep a", "start", "healthy", "open"}},
		"a new instance comes to an idle GPU":  {plan: planToCreateN(), calls: []string{"start", "healthy", "open"}},
		"three instances leave side by side":   {plan: planToWake("c", "a", "b"), calls: []string{"drain a", "sleep a", "drain b", "sleep b", "drain c", "sleep c", "wake", "open"}},
		"leavers are stopped last":             {plan: withStop(planToWake("b", "a")), calls: []string{"drain a", "sleep a", "drain b", "sleep b", "wake", "open", "stop a", "stop b"}},
		"a leaver that is to be stopped and hangs is stopped first": {
			plan: withStop(planToWake("a")), fails: map[string]error{"sleep a": errors.New("it hangs")}, calls: []string{"drain a", "sleep a", "stop a", "wake", "open", "stop a"},
		},
		"victims are evicted in the plan's order":           {plan: withVictims(planToCreateN("a"), "v", "b"), calls: []string{"drain a", "sleep a", "evict v", "evict b", "start", "healthy", "open"}},
		"the canary is asked before the gate opens":         {plan: planToWake("a"), change: withCanary, calls: []string{"drain a", "sleep a", "wake", "canary", "open"}},
		"no instance comes in":                              {plan: launcher.Plan{SwapID: "s", Out: []string{"a"}}, change: withCanary, calls: []string{"drain a", "sleep a"}},
		"an awake instance stays and others leave":          {plan: launcher.Plan{SwapID: "s", In: "n", Out: []string{"a"}}, calls: []string{"drain a", "sleep a"}},
		"an awake instance that stays is asked for a token": {plan: launcher.Plan{SwapID: "s", In: "n", Out: []string{"a"}}, change: withCanary, calls: []string{"drain a", "sleep a", "canary"}},
		"the answers of a sleeper are compared":             {plan: planToWake("a"), compares: true, calls: []string{"drain a", "sleep a", "wake", "canary", "open"}},
		"a comparison serves as the canary":                 {plan: planToWake("a"), compares: true, change: withCanary, calls: []string{"drain a", "sleep a", "wake", "canary", "open"}},
		"an empty plan does nothing":                        {plan: launcher.Plan{SwapID: "s", In: "n"}, change: withCanary, calls: []string{}, outcome: launcherapi.OutcomeNoop},
		"a dry run does nothing":                            {plan: planToWake("a"), change: dryRun, calls: []string{}, outcome: launcherapi.OutcomeDryRun},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeClaim{plan: c.plan, fails: c.fails, compares: c.compares}
				if c.change == nil {
					c.change = func(*Run) {}
				}
				result, err := played(t, f, c.change)
				require.NoError(t, err)
				assert.Equal(t, c.calls, f.calls)
				if c.outcome == "" {
					c.outcome = launcherapi.OutcomeDone
				}
				assert.Equal(t, c.outcome, result.Outcome)
				assert.Equal(t, countDrains(f.calls), result.Cut)
				assert.Equal(t, min(len(c.plan.Evict), len(f.calls)), len(result.Evicted))
			})
		})
	}
}

// countDrains counts the drained instances.
func countDrains(calls []string) (n int) {
	for _, c := range calls {
		if c[:2] == "dr" {
			n++
		}
	}
	return n
}

func TestLeaversGoTogetherAndVictimsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := played(t, &fakeClaim{plan: withVictims(planToWake("b", "c"), "v", "c")})
		require.NoError(t, err)
		leaving, evicted := 2*pace["c"], pace["v"]+pace["c"]
		assert.Equal(t, leaving+evicted, time.Since(began))
	})
}

func TestSwapReportsWhatItDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result, err := played(t, &fakeClaim{plan: withVictims(planToCreateN("a"), "v"), states: map[string]string{"n": "awake", "a": "sleeping"}}, withCanary)
		require.NoError(t, err)
		var told []string
		for _, p := range result.Phases {
			told = append(told, p.Name+" "+p.InstanceID)
		}
		assert.Equal(t, []string{"drain a", "sleep a", "evict v", "start n", "healthy n", "canary n", "open n"}, told)
		assert.Equal(t, []string{"v"}, result.Evicted)
		assert.Equal(t, "n", result.In.InstanceID)
		assert.Equal(t, "a", result.Out[0].InstanceID)
	})
}

// Each of these calls goes wrong in each of two ways.
var failures = map[string]struct {
	plan   launcher.Plan
	phase  string
	calls  []string
	undone []string
}{
	"drain a":   {plan: withEverything(planToCreateN("a", "b")), phase: "drain", calls: []string{"drain a", "drain b", "sleep b"}, undone: []string{"bring back a", "bring back b"}},
	"drain b":   {plan: withEverything(planToCreateN("a", "b")), phase: "drain", calls: []string{"drain a", "sleep a", "drain b"}, undone: []string{"bring back a", "bring back b"}},
	"sleep a":   {plan: withVictims(planToCreateN("a", "b"), "v"), phase: "sleep", calls: []string{"drain a", "sleep a", "drain b", "sleep b"}, undone: []string{"bring back a", "bring back b"}},
	"evict v":   {plan: withEverything(planToCreateN("a", "b")), phase: "evict", calls: []string{"drain a", "sleep a", "drain b", "sleep b", "evict v"}, undone: []string{"bring back a", "bring back b"}},
	"start":     {plan: withEverything(planToCreateN("a")), phase: "start", calls: []string{"drain a", "sleep a", "evict v", "evict c", "start"}, undone: []string{"send back", "bring back a"}},
	"healthy":   {plan: withEverything(planToCreateN("a")), phase: "healthy", calls: []string{"drain a", "sleep a", "evict v", "evict c", "start", "healthy"}, undone: []string{"send back", "bring back a"}},
	"wake":      {plan: withEverything(planToWake("b", "a")), phase: "wake", calls: []string{"drain a", "sleep a", "drain b", "sleep b", "evict v", "evict c", "wake"}, undone: []string{"send back", "bring back a", "bring back b"}},
	"canary":    {plan: withEverything(planToWake("a")), phase: "canary", calls: []string{"drain a", "sleep a", "evict v", "evict c", "wake", "canary"}, undone: []string{"send back", "bring back a"}},
	"drain c":   {plan: launcher.Plan{SwapID: "s", In: "n", Out: []string{"c"}}, phase: "drain", calls: []string{"drain c"}, undone: []string{"bring back c"}},
	"canary of": {plan: launcher.Plan{SwapID: "s", In: "n", Out: []string{"a"}}, phase: "canary", calls: []string{"drain a", "sleep a", "canary"}, undone: []string{"bring back a"}},
}

// withEverything returns the plan with victims and a stop at the end.
func withEverything(p launcher.Plan) launcher.Plan { return withStop(withVictims(p, "v", "c")) }

func TestFailureUndoesBegunRowsInReverse(t *testing.T) {
	for call, c := range failures {
		for how, prepare := range map[string]func(f *fakeClaim, call string){
			"fails":            func(f *fakeClaim, call string) { f.fails = map[string]error{call: errBroken} },
			"runs out of time": func(f *fakeClaim, call string) { f.hangs = call },
		} {
			t.Run(call+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fakeClaim{plan: c.plan}
					if call == "canary of" {
						call = "canary"
					}
					prepare(f, call)
					began := time.Now()
					result, err := played(t, f, withCanary)
					assert.Equal(t, append(slices.Clone(c.calls), c.undone...), f.calls)
					assert.Equal(t, launcherapi.OutcomeUndone, result.Outcome)
					failed := asFailed(err)
					require.NotNil(t, failed)
					assert.Equal(t, c.phase, failed.Phase)
					assert.NoError(t, failed.Undo)
					if f.hangs == "" {
						assert.ErrorIs(t, err, errBroken)
						return
					}
					assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
					assert.Equal(t, time.Minute, time.Since(began).Truncate(time.Second))
				})
			})
		}
	}
}

func TestUndoGoesOnAfterAFailedStep(t *testing.T) {
	for call, says := range map[string]string{
		"send back":    "cannot put n back to sleep: broken",
		"bring back a": "broken",
		"bring back b": "broken",
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeClaim{plan: planToWake("a", "b"), fails: map[string]error{"wake": errors.New("did not wake"), call: errBroken}}
				result, err := played(t, f)
				assert.Equal(t, []string{"send back", "bring back a", "bring back b"}, f.calls[len(f.calls)-3:])
				assert.Equal(t, launcherapi.OutcomeUndoFailed, result.Outcome)
				assert.ErrorContains(t, err, "did not wake")
				assert.ErrorContains(t, asFailed(err).Undo, says)
			})
		})
	}
}

func TestUndoFailsWhenARestoredInstanceEndsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeClaim{plan: planToWake("a", "b"), fails: map[string]error{"wake": errBroken}, states: map[string]string{"n": "sleeping", "a": "failed", "b": "awake"}}
		result, err := played(t, f)
		assert.Equal(t, launcherapi.OutcomeUndoFailed, result.Outcome)
		assert.EqualError(t, asFailed(err).Undo, "a is failed: ")
	})
}

func TestHangingUndoIsAnsweredInTimeAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeClaim{plan: planToWake("a"), fails: map[string]error{"wake": errBroken}, hangs: "bring back a", states: map[string]string{"n": "sleeping", "a": "waking"}}
		s := newStage(t, newPaper(t))
		r := s.run(f)
		r.saved.Key, r.begun = newKey("k", [32]byte{}), true
		s.runs[r.id] = r
		began := time.Now()
		go func() {
			result, err := r.Wait(t.Context())
			assert.Equal(t, time.Minute+undoGrace, time.Since(began))
			assert.Equal(t, launcherapi.OutcomeUndoFailed, result.Outcome)
			assert.ErrorContains(t, err, "the undo takes longer and continues; now a is waking, n is sleeping")
			all := s.List()
			if assert.Len(t, all, 1) {
				now, failed := all[0].Show()
				assert.Equal(t, launcherapi.SwapRunning, now.State, "it moves instances still")
				assert.Equal(t, err, failed)
			}
			assert.ErrorContains(t, r.cancel(), "it has begun, and continues")
		}()
		_, _ = s.play(t, r)
		over, err := s.Get(r.id)
		require.NoError(t, err)
		now, _ := over.Show()
		assert.Equal(t, launcherapi.SwapOver, now.State)
		assert.Equal(t, 2*time.Minute+time.Second, time.Since(began).Truncate(time.Second), "as long as a sleep, a wake and their memory may take")
		assert.Equal(t, []string{"bring back a", "release"}, f.calls[len(f.calls)-2:])
	})
}

func TestSwapThatFailsAfterItsDeadlineIsAnsweredAsSoonAsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeClaim{plan: planToWake("a"), takes: map[string]time.Duration{"wake": time.Minute + 3*time.Second}, fails: map[string]error{"wake": errBroken}, hangs: "bring back a"}
		s := newStage(t, newPaper(t))
		r := s.run(f)
		began := time.Now()
		go func() {
			_, err := r.Wait(t.Context())
			assert.ErrorContains(t, err, "the undo takes longer and continues")
			assert.Equal(t, time.Minute+undoGrace, time.Since(began))
		}()
		_, _ = s.play(t, r)
	})
}

func TestSwapGoesOnWithoutADeletedLeaver(t *testing.T) {
	for call, calls := range map[string][]string{
		"drain a": {"drain a", "drain b", "sleep b", "wake", "open", "stop b"},
		"sleep a": {"drain a", "sleep a", "drain b", "sleep b", "wake", "open", "stop b"},
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeClaim{plan: withStop(planToWake("a", "b")), fails: map[string]error{call: fmt.Errorf("so: %w", supervisor.ErrDeleted)}}
				result, err := played(t, f)
				require.NoError(t, err)
				assert.Equal(t, calls, f.calls)
				assert.Equal(t, []string{"a"}, result.Deleted)
			})
		})
	}
}

func TestUndoDoesNotRestoreADeletedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeClaim{plan: planToWake("a", "b"), fails: map[string]error{"sleep a": supervisor.ErrDeleted, "wake": errBroken}}
		result, err := played(t, f)
		assert.Equal(t, []string{"drain a", "sleep a", "drain b", "sleep b", "wake", "send back", "bring back b"}, f.calls)
		assert.Equal(t, launcherapi.OutcomeUndoFailed, result.Outcome)
		assert.ErrorContains(t, err, "a is gone: it was deleted")
	})
}

func TestUnwritableSwapDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeClaim{plan: planToWake("a")}
		result, err := played(t, f, func(r *Run) { r.c.opts.Records.(*paper).fill(true) })
		assert.Empty(t, f.calls)
		assert.Equal(t, launcherapi.OutcomeRefused, result.Outcome)
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
	})
}
