package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// A worker that was given a small cache holds far less than its plan.
func TestCommitMeasuresAWorkerHoweverLittleItHolds(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		old.bringIn(10, true).Release() // of 72
		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), remembered(t, old)))
		_, err := r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		pid := r.runner.tree("worker").pid
		r.gpus.hold("g0", pid, 6)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "falling_asleep", r.state("worker"))
		r.gpus.hold("g0", pid, 2)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		require.NoError(t, err)
		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		r.gpus.hold("g0", pid, 6)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "waking", r.state("worker"))
		r.gpus.hold("g0", pid, 9)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
	}, ranked)
}

func TestWorkerThatWasNeverMeasuredWakesWithHalfOfItsPlan(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		pid := r.awakeWorker(70)
		time.Sleep(2 * loadPoll)
		r.gpus.hold("g0", pid, 2) // the entry is told first
		r.asleep("worker")
		_, err := r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		r.gpus.hold("g0", pid, 30) // of 72
		time.Sleep(10 * time.Second)
		assert.Equal(t, "waking", r.state("worker"))
		r.gpus.hold("g0", pid, 50)
		view, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"g0": 50 * gib}, view.GPUBytes)
	}, ranked)
}
