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

func TestNoSleeperIsEvictedForALeaverToBeStopped(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.asleep("u", "g0")
		w.awake("x", "g0")
		w.awake("z", "g1")
		ready := make(chan struct{})
		m.starts(until(ready))
		request := requestForNew("n", "g0")
		request.Out = &launcherapi.SwapOut{Mode: launcherapi.OutStop}
		swap := w.begin(request)
		synctest.Wait()
		require.Equal(t, "sleeping", w.state("x"), "it ends when n is awake")
		require.Equal(t, "starting", w.state("n"))
		_, err := w.sup.Sleep("z", launcher.VerbRequest{}) // on another GPU; each sleep enforces the budgets
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "sleeping", w.state("z"))
		assert.Equal(t, "sleeping", w.state("u"), "the swap was admitted since x would not be a sleeper in the end")
		close(ready)
		r, err := swap.Wait(t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.Evicted)
		synctest.Wait()
		assert.Equal(t, "sleeping", w.state("u"))
		assert.Equal(t, "gone", w.state("x"))
	}, m.engines, func(o *supervisor.Options) { o.Budget.MaxSleepersPerGPU = 1 })
}
