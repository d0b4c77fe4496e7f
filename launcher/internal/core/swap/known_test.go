package swap

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// states returns the state of each swap that the coordinator remembers, oldest first.
func (w *world) states() []string {
	var states []string
	for _, r := range w.List() {
		now, _ := r.Show()
		states = append(states, now.InstanceID+" "+now.State)
	}
	return states
}

func TestSwapIsShownWhileItWaitsRunsAndIsOver(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		began := time.Now()
		first := w.begin(requestForNew("b", "g0"))
		synctest.Wait()
		time.Sleep(time.Second)
		second, err := w.Begin(requestForNew("c", "g0"), "second")
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"b running", "c waiting"}, w.states())
		got, err := w.Get(first.ID())
		require.NoError(t, err)
		now, err := got.Show()
		require.NoError(t, err)
		assert.Equal(t, launcherapi.Swap{
			SwapID: first.ID(), State: launcherapi.SwapRunning, GPUUUIDs: []string{"g0"}, InstanceID: "b", Phase: launcherapi.PhaseDrain,
			BeganAt: began.UTC(), Deadline: began.Add(w.opts.Limits.Start).UTC(),
		}, now)

		close(w.gates.busy)
		for _, r := range []*Run{first, second} {
			_, err = r.Wait(t.Context())
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, []string{"b over", "c over"}, w.states())
		for _, r := range []*Run{first, second} {
			got, err := w.Get(r.ID())
			require.NoError(t, err)
			now, err := got.Show()
			require.NoError(t, err)
			assert.Equal(t, []string{launcherapi.OutcomeDone, ""}, []string{now.Result.Outcome, now.Phase})
			var steps []launcherapi.SwapProgress
			require.NoError(t, got.Follow(t.Context(), func(p launcherapi.SwapProgress) error { steps = append(steps, p); return nil }))
			assert.Equal(t, launcherapi.PhaseAdmit, steps[0].Phase, "from the beginning")
			assert.Equal(t, launcherapi.OutcomeDone, steps[len(steps)-1].Result.Outcome)
			assert.Equal(t, 1, len(steps)%2, "each phase begins and ends, and the result comes once: %v", steps)
		}
	})
}

func TestSwapIsCancelledByItsIDWhileItWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first, second := w.oneRunsOneWaits()
		_, err := w.Cancel(first.ID())
		assert.ErrorContains(t, err, "it has begun, and continues")
		_, err = w.Cancel("another")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		_, err = w.Cancel(second.ID())
		require.NoError(t, err)
		result, err := second.Wait(t.Context())
		assert.ErrorContains(t, err, "cancelled")
		assert.Equal(t, launcherapi.OutcomeRefused, result.Outcome)
		synctest.Wait()
		_, err = w.Cancel(second.ID())
		require.NoError(t, err, "a client that has lost the answer asks again")
		got, err := w.Get(second.ID())
		require.NoError(t, err)
		now, err := got.Show()
		assert.ErrorContains(t, err, "cancelled", "Show returns the error, too")
		assert.Equal(t, launcherapi.SwapOver, now.State)
		close(w.gates.busy)
		_, err = first.Wait(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		_, err = w.Cancel(first.ID())
		assert.ErrorContains(t, err, "it is over")
	})
}

func TestFinishedSwapsAreRememberedUpToABound(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		long := strings.Repeat("x", 2*maxResultBytes)
		noop := func(key string, dryRun bool) *Run {
			r, err := w.Begin(launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{InstanceID: "a"}, DryRun: dryRun}, key)
			require.NoError(t, err)
			_, err = r.Wait(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			return r
		}
		keyed, first := noop("key", false), noop("", false)
		for range maxFinished {
			noop("", false)
		}
		noop("", true)
		assert.Len(t, w.List(), maxFinished+1, "and the one with a key")
		assert.Empty(t, w.runs)
		_, err := w.Get(first.ID())
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		_, err = w.Get(keyed.ID())
		require.NoError(t, err, "a key keeps its swap")

		large := w.newRun("large")
		large.saved.Plan.SwapID = "large"
		large.result = launcherapi.SwapResult{SwapID: "large", In: &launcherapi.Instance{InstanceID: "b", Args: []string{long}}}
		large.end()
		got, err := w.Get("large")
		require.NoError(t, err)
		now, _ := got.Show()
		assert.Equal(t, []any{"b", []string(nil)}, []any{now.Result.In.InstanceID, now.Result.In.Args}, "without what a request may make large")
	})
}

func TestSwapsOfAnEarlierLauncherAreShown(t *testing.T) {
	written := newPaper(t)
	c := life(t, written)
	request := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}}
	s := saved("s1", "g0")
	s.Key = keyOf(t, "k", request)
	c.Recover([]Saved{s})
	r, err := c.Get("s1")
	require.NoError(t, err)
	now, _ := r.Show()
	assert.Equal(t, []any{"s1", []string{"g0"}}, []any{now.SwapID, now.GPUUUIDs})
	assert.NotEqual(t, launcherapi.SwapWaiting, now.State, "it cannot be cancelled")
	_, err = c.Cancel("s1")
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
	c.tasks.Wait()

	c = life(t, written)
	c.Recover(written.all())
	all := c.List()
	require.Len(t, all, 1)
	now, err = all[0].Show()
	assert.Equal(t, []any{"s1", launcherapi.SwapOver}, []any{now.SwapID, now.State})
	assert.ErrorContains(t, err, "old-s1 is gone")
}
