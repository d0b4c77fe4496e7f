package swap

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/supervisor"
)

func TestAnInterruptedSwapIsNotDoneWhileTheOneThatLeavesFallsAsleep(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		_, err := w.sup.Sleep("a", supervisor.Ask{Drain: time.Hour}) // it goes on its way when the launcher comes back
		require.NoError(t, err)
		saved := Saved{ID: "s", GPUs: []string{"g0"}, Out: []string{"a"}, Stays: true, Level: 1, Until: time.Now().Add(-time.Hour)}
		w.Recover([]Saved{saved})
		w.tasks.Wait()
		assert.Empty(t, w.unfinished())
		assert.Equal(t, "awake", w.state("a"), "its time is over, so it is undone")
		close(w.gates.busy)
		synctest.Wait()
		assert.Equal(t, "awake", w.state("a"))
	})
}
