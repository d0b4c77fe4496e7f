package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// The core of the engine hangs; its API server answers /health.
func TestResumedSleepOfAHangingEngineEndsInTime(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 40)
		r.engine.sleep = never
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		memory := remembered(t, r)
		require.Equal(t, launcher.FallingAsleep, memory.Instances[0].State)
		fresh, _ := nextLife(t, r)
		fresh.engine.sleep, fresh.engine.sleeps = never, never
		require.NoError(t, fresh.Recover(context.Background(), memory))
		ctx, stop := context.WithTimeout(t.Context(), 24*time.Hour)
		defer stop()
		began := time.Now()
		_, err = fresh.AwaitState(ctx, "a", launcher.Sleeping)
		require.Error(t, err)
		assert.Less(t, time.Since(began), 10*time.Minute, "a sleep may take a minute, a wake one, memory half a minute")
	})
}

// The engine may sleep already: its gate must not open because the disk stalls.
func TestResumedSleepGoesOnWhileTheDiskStalls(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 40)
		r.engine.sleep = never
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		memory := remembered(t, r)
		disk := &stallingRecords{}
		fresh, _ := nextLife(t, r, func(o *Options) { disk.Records, o.Records = o.Records, disk })
		defer fresh.Close(context.Background(), false)
		end := disk.stall()
		defer end()
		require.NoError(t, fresh.Recover(t.Context(), memory))
		_, err = fresh.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.NotEqual(t, "open", fresh.gates.gate("a").get())
	})
}
