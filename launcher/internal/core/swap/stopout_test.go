package swap

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSwapStopsOnlyTheInstanceThatLeft(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.awake("x", "g0")
		ready := make(chan struct{})
		m.starts(until(ready))
		request := requestForNew("n", "g0")
		request.Out = &launcherapi.SwapOut{Mode: launcherapi.OutStop}
		swap := w.begin(request)
		synctest.Wait()
		require.Equal(t, "sleeping", w.state("x"))
		_, err := w.sup.Delete(t.Context(), "x")
		require.NoError(t, err)
		_, err = w.sup.Create(launcher.CreateRequest{ID: "x", Spec: launcherapi.InstanceSpec{Args: []string{"model"}, GPUUUIDs: []string{"g1"}}})
		require.NoError(t, err, "its id is nobody's any more")
		close(ready)
		r, err := swap.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, launcherapi.OutcomeDone, r.Outcome)
		synctest.Wait()
		assert.Equal(t, "awake", w.state("n"))
		assert.Equal(t, "awake", w.state("x"), "somebody has made it anew on another GPU")
	}, m.engines)
}

func TestSwapSaysThatItsNewInstanceWasDeleted(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.awake("x", "g0")
		m.starts(until(make(chan struct{})))
		swap := w.begin(requestForNew("n", "g0"))
		synctest.Wait()
		_, err := w.sup.Delete(t.Context(), "n")
		require.NoError(t, err)
		r, err := swap.Wait(t.Context())
		require.ErrorContains(t, err, "instance n was deleted while the swap brought it in")
		assert.Equal(t, launcherapi.OutcomeUndone, r.Outcome)
		assert.Equal(t, "awake", w.state("x"))
	}, m.engines)
}

// Two swaps to one failed instance: the first starts it, and for the second it is awake.
func TestSecondSwapToAFailedInstanceFindsItAwake(t *testing.T) {
	m, processes := newMoody(), &runner{}
	in(t, func(t *testing.T, w *world) {
		w.awake("n", "g0")
		processes.fail("n")
		synctest.Wait()
		require.Equal(t, "failed", w.state("n"))
		started := make(chan struct{})
		m.starts(until(started))
		to := launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "n"}}
		first, second := w.begin(to), w.begin(to)
		synctest.Wait()
		close(started)
		var outcomes []string
		for _, swap := range []*Run{first, second} {
			r, err := swap.Wait(t.Context())
			require.NoError(t, err)
			outcomes = append(outcomes, r.Outcome)
		}
		assert.ElementsMatch(t, []string{launcherapi.OutcomeDone, launcherapi.OutcomeNoop}, outcomes)
	}, m.engines, func(o *supervisor.Options) { o.Runner = processes })
}
