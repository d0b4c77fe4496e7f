package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// failsAwakeInSilence has the wake of "a" fail while the driver does not answer. The engine then
// holds so many GiB.
func (r *rig) failsAwakeInSilence(gibs uint64) {
	r.t.Helper()
	r.gpus.fallSilent(true)
	failsAwakeInPart(r, gibs)
	view := r.failsToWake()
	require.Equal(r.t, "sleeping", view.State)
	require.Contains(r.t, view.Reason, "part of the engine may be awake")
}

// driverAnswers has the driver answer again, and waits until what waited for it is measured.
func (r *rig) driverAnswers() {
	r.gpus.fallSilent(false)
	time.Sleep(2*driverPoll + freedLate)
}

func TestFailedWakeIsMeasuredOnceTheDriverAnswers(t *testing.T) {
	silentSince := map[string]func(r *rig){
		"the wake": func(r *rig) { r.asleepWith("a", 1) },
		"before its first sleep": func(r *rig) {
			r.awakeWith("a", 70)
			r.gpus.fallSilent(true)
			r.asleep("a")
		},
		"its first sleep": func(r *rig) {
			r.awakeWith("a", 70)
			r.engine.sleep = func(context.Context) error { r.gpus.fallSilent(true); return nil }
			r.asleep("a")
		},
	}
	for since, sleeps := range silentSince {
		for name, c := range map[string]struct {
			gibs  uint64
			state string
		}{"it holds more": {40, "failed"}, "it holds no more": {2, "sleeping"}} {
			t.Run("silent since "+since+", "+name, func(t *testing.T) {
				in(t, func(t *testing.T, r *rig) {
					sleeps(r)
					r.failsAwakeInSilence(c.gibs)
					time.Sleep(time.Hour)
					require.Equal(t, "sleeping", r.state("a"))
					r.driverAnswers()
					view, err := r.Get("a")
					require.NoError(t, err)
					assert.Equal(t, c.state, view.State)
					assert.NotContains(t, view.Reason, "may be awake")
					if c.state == "failed" {
						assert.Contains(t, view.Reason, "it reports that it sleeps, but holds")
						return
					}
					assert.Equal(t, map[string]uint64{"g0": 2 * gib}, view.GPUBytes)
					assert.False(t, remembered(t, r).Instances[0].Unmeasured)
				})
			})
		}
	}
}

func TestUnmeasuredSleeperIsChargedAsIfAwake(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.failsAwakeInSilence(40)
		_, err := r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		require.ErrorContains(t, err, "a (sleeping) holds 70.0 GiB, expected")
		r.gpus.hold("g0", firstPID, 2)
		r.driverAnswers()
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		require.NoError(t, err)
	})
}

// The next wake begins before the sleeper is measured.
func TestSecondFailedWakeIsMeasuredByResidue(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.failsAwakeInSilence(40)
		r.gpus.fallSilent(false)
		assert.Equal(t, "failed", r.failsToWake().State)
	})
}

func TestUnmeasuredSleeperThatWakesIsNotEnded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.failsAwakeInSilence(40)
		r.engine.wake = func(context.Context) error { r.gpus.hold("g0", firstPID, 70); return nil }
		r.wakes("a")
		r.driverAnswers()
		assert.Equal(t, "awake", r.state("a"))
		assert.False(t, remembered(t, r).Instances[0].Unmeasured)
	})
}

func TestUnmeasuredSleeperOfASwapIsMeasuredAfterTheSwap(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.failsAwakeInSilence(40)
		c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{ID: "a", SwapID: "s"}}))
		r.driverAnswers()
		assert.Equal(t, "sleeping", r.state("a"))
		c.Release()
		r.driverAnswers()
		assert.Equal(t, "failed", r.state("a"))
	})
}

func TestNextLauncherMeasuresAnUnmeasuredSleeper(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.failsAwakeInSilence(40)
		memory := remembered(t, r)
		fresh, hard := nextLife(t, r)
		close(hard.ending)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		require.Equal(t, "sleeping", fresh.state("a"))
		fresh.driverAnswers()
		assert.Equal(t, "failed", fresh.state("a"))
	})
}
