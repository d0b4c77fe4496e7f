package swap

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// in runs a test with a fake clock.
func in(t *testing.T, test func(t *testing.T, w *world), change ...func(*supervisor.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, change...)
		test(t, w)
		w.close()
	})
}

func residency(d time.Duration) func(*supervisor.Options) {
	return func(o *supervisor.Options) { o.Budget.MinResidency = launcherapi.Duration(d) }
}

func TestSecondSwapWithTheSameNewIDIsRefused(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		first := w.begin(requestForNew("x", "g0"))
		synctest.Wait()
		require.Equal(t, "falling_asleep", w.state("a"))
		_, err := w.begin(requestForNew("x", "g1")).Wait(t.Context())
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "swap "+first.ID())
		close(w.gates.busy)
		r, err := first.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
		assert.Equal(t, "awake", w.state("x"))
	})
}

func TestVictimCannotBeSwappedInWhileItsSwapDrains(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.asleep("v", "g1")
		w.gates.busy = make(chan struct{})
		first := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		_, err := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "v"}}).Wait(t.Context())
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		assert.ErrorContains(t, err, first.ID())
		close(w.gates.busy)
		r, err := first.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"v"}, r.Evicted)
	}, func(o *supervisor.Options) { o.Budget.MaxInstances = 2 })
}

func TestWaitForMinResidencyEndsWithTheInstance(t *testing.T) {
	for how, leave := range map[string]func(w *world){
		"deleted":      func(w *world) { _, _ = w.sup.Delete(w.t.Context(), "a") },
		"put to sleep": func(w *world) { _, _ = w.sup.Sleep("a", launcher.VerbRequest{}) },
	} {
		t.Run(how, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.awake("a", "g0")
				began := time.Now()
				r := w.begin(requestForNew("b", "g0"))
				synctest.Wait()
				leave(w)
				_, err := r.Wait(t.Context())
				require.NoError(t, err)
				assert.Less(t, time.Since(began), time.Minute, "and its time would have been an hour")
			}, residency(time.Hour))
		})
	}
}

// The request names no GPU: those of the instance count.
func TestWaitingSwapRunsTheReplacementOnItsGPUs(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"failed, then failed": {"failed", "failed"},
		"failed, then asleep": {"failed", "asleep"},
		"asleep, then failed": {"asleep", "failed"},
		"asleep, then asleep": {"asleep", "asleep"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				puts := func(state, id, gpu string) {
					w.asleep(id, gpu)
					if state == "failed" {
						w.runner.fail(id)
						synctest.Wait()
						require.Equal(t, "failed", w.state(id))
					}
				}
				puts(c.before, "b", "g0")
				w.awake("a", "g0")
				r := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "b"}})
				synctest.Wait() // the swap waits for min_residency of a
				_, err := w.sup.Delete(t.Context(), "b")
				require.NoError(t, err)
				puts(c.after, "b", "g1")
				_, err = r.Wait(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "awake", w.state("b"))
				assert.Equal(t, "awake", w.state("a"), "nothing came in on its GPU")
			}, residency(time.Minute))
		})
	}
}

func TestSwapNamingAMovedInstancesOldGPUsIsRefused(t *testing.T) {
	for name, req := range map[string]launcherapi.SwapRequest{
		"gpu_uuids":    {GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{InstanceID: "b"}},
		"in.gpu_uuids": {In: &launcherapi.SwapIn{InstanceID: "b", GPUUUIDs: []string{"g0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.asleep("b", "g0")
				w.awake("a", "g0")
				r := w.begin(req)
				synctest.Wait()
				_, err := w.sup.Delete(t.Context(), "b")
				require.NoError(t, err)
				w.asleep("b", "g1")
				_, err = r.Wait(t.Context())
				assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
				assert.Equal(t, "awake", w.state("a"))
			}, residency(time.Minute))
		})
	}
}

// The race detector sees it.
func TestSwapIDIsReadWhileTheSwapIsAdmitted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for range 20 {
			r := w.begin(launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}})
			for range 50 {
				assert.NotEmpty(t, r.ID())
			}
			_, err := r.Wait(t.Context())
			require.NoError(t, err)
		}
	})
}

func TestOtherSwapPassesOneThatWaitsForMinResidency(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		began := time.Now()
		b := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		c := w.begin(requestForNew("c", "g0"))
		synctest.Wait()
		r, err := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "a"}}).Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, launcherapi.OutcomeNoop, r.Outcome)
		assert.Less(t, time.Since(began), time.Second)
		_, err = b.Wait(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute-time.Second, "a had its time")
		assert.Equal(t, "awake", w.state("b"), "b was asked for before c")
		_, err = c.Wait(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), 2*time.Minute-time.Second, "and b had its time")
	}, residency(time.Minute))
}

func TestSwapGoesOnWhenTheLeaverIsDeleted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		swap := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		_, err := w.sup.Delete(t.Context(), "a")
		require.NoError(t, err)
		r, err := swap.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, r.Deleted)
		assert.Empty(t, r.Out)
		assert.Equal(t, "awake", w.state("b"))
		assert.Equal(t, "gone", w.state("a"))
		close(w.gates.busy)
	})
}

func TestInterruptedSwapUndoesOnlyItsOwnInstance(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.asleep("a", "g0")
		w.awake("x", "g1") // created by a client while the swap was not known yet
		w.awake("still", "g0")
		w.Recover([]Saved{{Plan: w.claimAndBreakOff(planToCreate("s", "x", "still"))}})
		synctest.Wait()
		assert.Equal(t, "awake", w.state("x"))
		assert.Equal(t, "awake", w.state("still"))
		assert.Empty(t, w.unfinished())
	})
}

func TestInterruptedSwapKeepsItsNewIDUntilItsEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		plan := w.claimAndBreakOff(planToCreate("s", "x", "a"))
		_, err := w.sup.Reclaim(plan).Drain(expired(t), "a") // the sleep goes on when the launcher is restarted
		require.ErrorIs(t, err, context.Canceled)
		w.Recover([]Saved{{Plan: plan}})
		x := launcher.CreateRequest{ID: "x", Spec: launcherapi.InstanceSpec{Args: []string{"model"}, GPUUUIDs: []string{"g1"}}}
		_, err = w.sup.Create(x)
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err))
		close(w.gates.busy)
		synctest.Wait()
		assert.Empty(t, w.unfinished())
		_, err = w.sup.Create(x)
		assert.NoError(t, err)
	})
}

func TestBrokenOffSwapKeepsItsMarks(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		swap := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		w.Close(over)
		_, err := swap.Wait(t.Context())
		require.Error(t, err)
		a, err := w.sup.Get("a")
		require.NoError(t, err)
		assert.Equal(t, swap.ID(), a.SwapID, "it is claimed until the next launcher has finished or undone the swap")
		assert.Len(t, w.unfinished(), 1)
		close(w.gates.busy)
	})
}

func TestClaimOfASwapWhoseTimeIsOverIsReleased(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r, err := w.newRunFor("s", requestForNew("c", "g0"))
		require.NoError(t, err)
		turn, err := w.opts.Turns.Take(t.Context(), "s", r.gpus)
		require.NoError(t, err)
		require.ErrorIs(t, r.claimOnceSettled(expired(t), turn, r.gpus), context.Canceled)
		turn.Release()
		w.awake("c", "g0")
	})
}
