package swap

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// drainsBesideFailed has "b" fail on GPU g0, and a swap begin that drains "a" there until
// the gates are no longer busy.
func (w *world) drainsBesideFailed() {
	w.t.Helper()
	w.awake("b", "g0")
	w.runner.fail("b")
	synctest.Wait()
	w.awake("a", "g0")
	w.gates.busy = make(chan struct{})
	w.begin(launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}})
	synctest.Wait()
}

func TestWaitingSwapDoesNotRestartADeletedInstance(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.drainsBesideFailed()
		r := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "b"}})
		synctest.Wait()
		_, err := w.sup.Delete(t.Context(), "b")
		require.NoError(t, err)
		close(w.gates.busy)
		_, err = r.Wait(t.Context())
		require.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Equal(t, launcherapi.OutcomeRefused, asFailed(err).Result.Outcome)
		now, _ := r.Show()
		assert.Equal(t, "b", now.InstanceID, "the list still says what the swap was about")
		assert.Equal(t, "gone", w.state("b"))
	})
}

func TestWaitingSwapRestartsTheReplacementOfItsInstance(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.drainsBesideFailed()
		replaces := requestForNew("b", "g0")
		replaces.In.Args = []string{"another-model"}
		first := w.begin(replaces)
		synctest.Wait()
		second := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "b"}})
		synctest.Wait()
		m.starts(until(make(chan struct{}))) // the first one's engine fails before it is ready
		close(w.gates.busy)
		synctest.Wait()
		m.starts(nil)
		w.runner.fail("b")
		_, err := first.Wait(t.Context())
		require.Error(t, err)
		_, err = second.Wait(t.Context())
		require.NoError(t, err)
		view, err := w.sup.Get("b")
		require.NoError(t, err)
		assert.Equal(t, []string{"another-model"}, view.Args)
	}, m.engines)
}

// oneLeavesOneSleeps has "b" sleep on GPU g0, and a swap begin that drains "a" there until the gates are no
// longer busy.
func (w *world) oneLeavesOneSleeps() {
	w.t.Helper()
	w.asleep("b", "g0")
	w.awake("a", "g0")
	w.gates.busy = make(chan struct{})
	w.begin(launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}})
	synctest.Wait()
}

func TestWaitingSwapStartsItsInstanceAgainThatHasEnded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.oneLeavesOneSleeps()
		r := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "b"}})
		synctest.Wait()
		w.runner.fail("b")
		synctest.Wait()
		require.Equal(t, "failed", w.state("b"))
		close(w.gates.busy)
		_, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "awake", w.state("b"))
	})
}

func TestWaitingSwapIsRefusedWhoseInstanceHasEndedOnOtherGPUs(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.oneLeavesOneSleeps()
		r := w.begin(launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{InstanceID: "b"}})
		synctest.Wait()
		_, err := w.sup.Delete(t.Context(), "b")
		require.NoError(t, err)
		w.awake("b", "g1")
		w.runner.fail("b")
		synctest.Wait()
		close(w.gates.busy)
		_, err = r.Wait(t.Context())
		require.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		require.ErrorContains(t, err, "instance b ran on GPUs [g1], not on [g0]")
		require.NotNil(t, asFailed(err).Result.In, "the answer still says what the swap was about")
	})
}
