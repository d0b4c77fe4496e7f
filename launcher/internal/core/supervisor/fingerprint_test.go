package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const fingerprintTime = 10 * time.Second

func withFingerprints(o *Options) { o.Limits.Fingerprint = fingerprintTime }

func garbage(context.Context) (engine.Answer, error) {
	return engine.Answer{Kind: "completion", Token: "!", Likeliest: []string{"!", "?", ".", ",", ";"}}, nil
}

func noAnswer(ctx context.Context) (engine.Answer, error) {
	return engine.Answer{}, never(ctx)
}

// asleepAndKnown puts a new instance to sleep whose fingerprint was taken.
func (r *rig) asleepAndKnown() {
	r.t.Helper()
	r.awakeWith("a", 70)
	r.engine.sleep = func(context.Context) error { r.gpus.hold("g0", firstPID, 2); return nil }
	r.asleep("a")
	require.Equal(r.t, []string{"", "completion"}, r.engine.answers(nil), "a new engine is asked twice")
}

// wakesInVain wakes "a", and returns what is left of it.
func (r *rig) wakesInVain() launcherapi.Instance {
	r.t.Helper()
	_, err := r.Wake("a", launcher.VerbRequest{})
	require.NoError(r.t, err)
	_, err = r.AwaitState(r.t.Context(), "a", launcher.Awake)
	require.Error(r.t, err)
	synctest.Wait() // its tree is being killed
	view, err := r.Get("a")
	require.NoError(r.t, err)
	assert.NotEqual(r.t, "open", r.gates.gate("a").get())
	return view
}

func TestWokenEngineIsAskedOnceBeforeItsGateOpens(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(func(context.Context) (engine.Answer, error) {
			assert.Equal(t, "waking", r.state("a"))
			assert.Equal(t, "shut", r.gates.gate("a").get())
			<-time.After(7 * time.Millisecond)
			return rightAnswer, nil
		})
		r.wakes("a")
		assert.Equal(t, []string{"completion"}, r.engine.answers(nil))
		assert.Equal(t, "open", r.gates.gate("a").get())
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Contains(t, view.Timings, launcherapi.PhaseTime{Name: "canary", DurationMS: 7})
	}, withFingerprints)
}

func TestWokenEngineThatAnswersGarbageIsEnded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(garbage)
		view := r.wakesInVain()
		assert.Equal(t, "failed", view.State)
		assert.Equal(t, "wrong_answers", view.Cause)
		assert.Equal(t, `woke, but cannot be used: its answers are wrong: it answers "!", and answered "a" when it was started; the launcher has ended it, and a swap to it starts it again`, view.Reason)
		assert.Equal(t, 1, r.runner.tree("a").killed)
		assert.Equal(t, []string{"completion", "likeliest"}, r.engine.answers(nil), "it is asked twice")
		assert.Equal(t, []string{"sleep 1", "wake 1"}, r.engine.noted(), "it is not put back to sleep")
	}, withFingerprints)
}

func TestWokenEngineThatDoesNotAnswerIsEnded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(noAnswer)
		began := time.Now()
		view := r.wakesInVain()
		assert.Equal(t, "failed", view.State)
		assert.Equal(t, "no_answers", view.Cause)
		assert.Contains(t, view.Reason, "it reports that it is awake, but did not answer a short request within 10s")
		assert.Equal(t, fingerprintTime, time.Since(began))
	}, withFingerprints)
}

func TestOneUnlikeAnswerAfterAWakeIsAskedAgain(t *testing.T) {
	for name, first := range map[string]func(context.Context) (engine.Answer, error){
		"garbage":  garbage,
		"an error": func(context.Context) (engine.Answer, error) { return engine.Answer{}, errBroken },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.asleepAndKnown()
				r.engine.answers(func(ctx context.Context) (engine.Answer, error) {
					r.engine.answers(nil)
					return first(ctx)
				})
				r.wakes("a")
				assert.Equal(t, []string{"likeliest"}, r.engine.answers(nil))
			}, withFingerprints)
		})
	}
}

func TestEngineThatNeverAnsweredIsStartedWithoutAFingerprint(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(context.Context) (engine.Answer, error)
		took    time.Duration
		says    string
	}{
		"no answer": {noAnswer, fingerprintTime, "did not answer two requests within 10s"},
		"refused":   {func(context.Context) (engine.Answer, error) { return engine.Answer{}, errBroken }, 0, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.engine.answers(c.answers)
				began := time.Now()
				r.awake("a", "0.9")
				assert.Equal(t, c.took, time.Since(began).Truncate(time.Second))
				r.asleep("a")
				r.wakes("a")
				text, err := os.ReadFile(filepath.Join(r.opts.Logs.(fakeLogs).dir, "a.log"))
				require.NoError(t, err)
				assert.Contains(t, string(text), "no fingerprint was taken")
				assert.Contains(t, string(text), c.says)
			}, withFingerprints)
		})
	}
}

func TestEngineWhoseAnswersVaryNeedsOnlyToAnswer(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		tokens := []string{"x", "y", "z"}
		r.engine.answers(func(context.Context) (engine.Answer, error) {
			token := tokens[0]
			tokens = tokens[1:]
			return engine.Answer{Kind: "completion", Token: token}, nil
		})
		r.awake("a", "0.9")
		r.asleep("a")
		r.wakes("a")
		r.asleep("a")
		r.engine.answers(noAnswer)
		assert.Equal(t, "no_answers", r.wakesInVain().Cause)
	}, withFingerprints)
}

func TestFingerprintLeavesASwapHalfOfItsTime(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.answers(noAnswer)
		ask := r.toMake("s", "a")
		ask.Plan.Until = time.Now().Add(4 * time.Second)
		c := r.claims(ask)
		defer c.Release()
		began := time.Now()
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.Healthy(t.Context()))
		assert.Equal(t, 2*time.Second, time.Since(began).Round(100*time.Millisecond))
	}, withFingerprints)
}

func TestSwapShowsTheComparisonAsItsCanary(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		answer := make(chan struct{})
		r.engine.answers(func(context.Context) (engine.Answer, error) { <-answer; return rightAnswer, nil })
		c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{ID: "a"}}))
		defer c.Release()
		assert.False(t, c.Compares())
		require.NoError(t, c.Wake(t.Context()), "the engine has woken")
		assert.True(t, c.Compares())
		assert.Equal(t, "waking", r.state("a"))
		close(answer)
		require.NoError(t, c.Canary(t.Context()))
		assert.Equal(t, "awake", r.state("a"))
		assert.Equal(t, []string{"completion"}, r.engine.answers(nil), "a canary that is asked for costs no other request")
	}, withFingerprints)
}

func TestSwapFailsWhenItsEngineAnswersGarbage(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{ID: "a"}}))
		defer c.Release()
		r.engine.answers(garbage)
		require.NoError(t, c.Wake(t.Context()))
		err := c.Canary(t.Context())
		require.ErrorContains(t, err, "its answers are wrong")
		assert.Equal(t, launcherapi.CodeEngineFailed, launcher.CodeOf(err))
		require.NoError(t, c.SendBack(t.Context()))
		assert.Equal(t, "failed", r.state("a"))
	}, withFingerprints)
}

func TestComparisonCutShortPutsTheEngineBackToSleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(noAnswer)
		c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{ID: "a"}}))
		defer c.Release()
		require.NoError(t, c.Wake(t.Context()))
		began := time.Now()
		require.NoError(t, c.SendBack(t.Context()))
		assert.Equal(t, "sleeping", r.state("a"), "whether its answers are right is not known")
		assert.Less(t, time.Since(began), time.Second)
	}, withFingerprints)
}

func TestEngineWhoseSleepFailedIsComparedToo(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.sleep = broken
		r.engine.answers(garbage)
		began := time.Now()
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.ErrorContains(t, err, "did not fall asleep: broken; and it could not be brought back: its answers are wrong")
		assert.Equal(t, "failed", r.state("a"))
		assert.Less(t, time.Since(began), time.Second, "the launcher does not wait for such an engine to exit")
	}, withFingerprints)
}

// wokenUncompared returns the saved state of a launcher that died while it compared the
// answers of an engine that has woken.
func (r *rig) wokenUncompared() SavedState {
	r.t.Helper()
	r.asleepAndKnown()
	r.engine.answers(noAnswer)
	_, err := r.Wake("a", launcher.VerbRequest{})
	require.NoError(r.t, err)
	memory := remembered(r.t, r)
	require.Equal(r.t, launcher.Waking, memory.Instances[0].State)
	return memory
}

func TestNextLauncherComparesBeforeItOpensTheGate(t *testing.T) {
	for name, change := range map[string]func(*SavedInstance){
		"the wake is recorded":                    func(*SavedInstance) {},
		"the wake could not be recorded":          func(s *SavedInstance) { s.State, s.Doubted = launcher.Sleeping, true },
		"nor the sleep before it":                 func(s *SavedInstance) { s.State, s.Doubted = launcher.Awake, true },
		"somebody else has woken it in the pause": func(s *SavedInstance) { s.State = launcher.Sleeping },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				memory := r.wokenUncompared()
				change(&memory.Instances[0])
				fresh, _ := nextLife(t, r, withFingerprints)
				defer fresh.Close(context.Background(), false)
				fresh.engine.answers(garbage)
				require.NoError(t, fresh.Recover(t.Context(), memory))
				assert.NotEqual(t, "open", fresh.gates.gate("a").get())
				_, err := fresh.AwaitState(t.Context(), "a", launcher.Awake)
				require.ErrorContains(t, err, "its answers are wrong")
				assert.Equal(t, "failed", fresh.state("a"))
			}, withFingerprints)
		})
	}
}

func TestFingerprintOutlivesTheLauncherAndNotTheEngine(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		memory := remembered(t, r)
		fresh, _ := nextLife(t, r, withFingerprints)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		fresh.engine.answers(garbage)
		_, err := fresh.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = fresh.AwaitState(t.Context(), "a", launcher.Awake)
		require.ErrorContains(t, err, "its answers are wrong")
		require.NoError(t, fresh.AwaitRest(t.Context(), "a"))
		fresh.awake("a", "0.9") // in place of the failed one
		synctest.Wait()
		assert.Equal(t, "!", remembered(t, fresh).Instances[0].Fingerprint.Token)
	}, withFingerprints)
}

func TestAnswersAreNotComparedWithoutAFingerprintTime(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.answers(func(context.Context) (engine.Answer, error) {
			return engine.Answer{}, errors.New("it is not to be asked")
		})
		r.awake("a", "0.9")
		r.asleep("a")
		r.wakes("a")
		assert.Empty(t, r.engine.answers(nil))
	})
}

func TestWakeOfAnEngineWithAForgottenKeyIsBelieved(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.under(func() { r.instances["a"].keyForgotten = true })
		r.engine.answers(func(context.Context) (engine.Answer, error) {
			return engine.Answer{}, &engine.StatusError{Call: "POST /v1/completions", Status: 401}
		})
		r.wakes("a")
	}, withFingerprints)
}

func TestWokenEngineThatRefusesGivesNoAnswers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(func(context.Context) (engine.Answer, error) { return engine.Answer{}, errBroken })
		assert.Equal(t, "no_answers", r.wakesInVain().Cause)
	}, withFingerprints)
}

func TestLateSwapStillTakesAFingerprint(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		ask := r.toMake("s", "a")
		ask.Plan.Until = time.Now().Add(-time.Minute)
		c := r.claims(ask)
		defer c.Release()
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.Healthy(t.Context()))
		assert.Equal(t, []string{"", "completion"}, r.engine.answers(nil))
	}, withFingerprints)
}

func TestResumedStartLeavesTimeToTheSwapThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		doubted bool
		swap    string // that was under way
		took    time.Duration
		says    string
	}{
		"a swap waits for it":  {swap: "s", took: resumedFingerprint, says: "did not answer two requests within 2.5s"},
		"no swap waits for it": {took: fingerprintTime, says: "did not answer two requests within 10s"},
		"its record is stale":  {doubted: true, says: "may have slept before"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.engine.ready = broken
				r.create("a", "0.9")
				memory := remembered(t, r)
				memory.Instances[0].Doubted = c.doubted
				memory.Instances[0].SwapID = c.swap
				memory.UnderWay = []string{"s"}
				r.engine.ready = nil
				fresh, _ := nextLife(t, r, withFingerprints, func(o *Options) { o.Logs = r.opts.Logs })
				defer fresh.Close(context.Background(), false)
				fresh.engine.answers(noAnswer)
				var answers atomic.Bool
				fresh.engine.sleeps = func(ctx context.Context) error {
					if answers.Load() {
						return nil
					}
					return broken(ctx)
				}
				require.NoError(t, fresh.Recover(t.Context(), memory))
				answers.Store(true)
				began := time.Now()
				_, err := fresh.AwaitState(t.Context(), "a", launcher.Awake)
				require.NoError(t, err)
				assert.Equal(t, c.took, time.Since(began).Round(time.Second/2))
				assert.Contains(t, fresh.logged("a"), c.says)
			}, withFingerprints)
		})
	}
}

func TestFingerprintEndsWithTheTimeOfTheStart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.answers(noAnswer)
		began := time.Now()
		r.awake("a", "0.9")
		assert.Equal(t, 3*time.Second, time.Since(began).Round(time.Second/2))
		assert.Contains(t, r.logged("a"), "no fingerprint was taken")
	}, withFingerprints, func(o *Options) { o.Limits.Start = 3 * time.Second })
}
