package swap

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

func TestRecoveredSwapWaitsWhileTheLeaverFallsAsleep(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		plan := w.claimAndBreakOff(launcher.Plan{SwapID: "s", GPUs: []string{"g0"}, Drain: time.Hour, Level: 1})
		_, err := w.sup.Reclaim(plan).Drain(expired(t), "a") // the sleep goes on when the launcher is restarted
		require.ErrorIs(t, err, context.Canceled)
		plan.Until = time.Now().Add(-time.Hour)
		w.Recover([]Saved{{Plan: plan}})
		w.tasks.Wait()
		assert.Empty(t, w.unfinished())
		assert.Equal(t, "awake", w.state("a"), "its time is over, so it is undone")
		close(w.gates.busy)
		synctest.Wait()
		assert.Equal(t, "awake", w.state("a"))
	})
}
