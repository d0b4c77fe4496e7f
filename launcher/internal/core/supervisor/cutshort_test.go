package supervisor

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

func TestSleepCutShortIsUndoneAtOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.sleep = never
		r.awake("a", "0.9")
		began := time.Now()
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		r.under(func() { r.cutShort(r.instances["a"]) })
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Zero(t, time.Since(began), "it waited for no limit")
		assert.Equal(t, []string{"sleep 1", "wake 1"}, r.engine.noted())
	})
}

func TestSlowSleepCutShortDoesNotKillTheEngine(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.sleep = never
		r.engine.wake = func(ctx context.Context) error { // it does one thing after the other
			select {
			case <-time.After(50 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.awake("a", "0.9")
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		r.under(func() { r.cutShort(r.instances["a"]) })
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State, "a sleep may take a minute here")
		assert.Zero(t, r.runner.tree("a").killed)
	})
}

func TestWakeCutShortIsUndoneAtOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.wake = never
		r.awake("a", "0.9")
		_, err := r.Sleep("a", launcher.VerbRequest{Level: 2})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		began := time.Now()
		_, err = r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		r.under(func() { r.cutShort(r.instances["a"]) })
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "sleeping", view.State)
		assert.Equal(t, 2, view.SleepLevel)
		assert.Zero(t, time.Since(began))
	})
}

func TestSleepAtSameLevelRepeatsTheLastLevel(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		for _, c := range []struct{ ask, level int }{{sameLevel, 1}, {2, 2}, {sameLevel, 2}, {1, 1}} {
			r.under(func() { require.NoError(t, r.sleep(r.instances["a"], "", launcher.VerbRequest{Level: c.ask})) })
			view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
			require.NoError(t, err)
			assert.Equal(t, c.level, view.SleepLevel)
			_, err = r.Wake("a", launcher.VerbRequest{})
			require.NoError(t, err)
			_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
			require.NoError(t, err)
		}
	})
}

func TestAwaitRoomEndsWithFreeMemoryOrTimeout(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.asleep("a")
		r.gpus.hold("g0", 77, 60) // of a foreign process
		var free atomic.Bool
		time.AfterFunc(10*time.Second, func() { free.Store(true); r.gpus.hold("g0", 77, 0) })
		claim := &Claim{s: r.Supervisor}
		require.NoError(t, claim.awaitRoom(t.Context(), r.instances["a"]))
		assert.True(t, free.Load())

		r.gpus.hold("g0", 77, 60)
		began := time.Now()
		err := claim.awaitRoom(t.Context(), r.instances["a"])
		assert.ErrorContains(t, err, "other processes hold 60.0 GiB")
		assert.Equal(t, r.opts.Limits.Memory, time.Since(began).Truncate(time.Second))
	})
}
