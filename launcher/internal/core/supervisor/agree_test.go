package supervisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// failsAwakeInPart has the wake of "a" fail after the engine took some of its memory again.
func failsAwakeInPart(r *rig, gibs uint64) {
	r.engine.wake = func(context.Context) error {
		r.gpus.hold("g0", firstPID, gibs)
		return errors.New("the reload failed")
	}
}

// asleepWith puts an instance to sleep that held 70 GiB and now holds 2.
func (r *rig) asleepWith(id string, level int) {
	r.t.Helper()
	r.awakeWith(id, 70)
	r.engine.sleep = func(context.Context) error { r.gpus.hold("g0", firstPID, 2); return nil }
	_, err := r.Sleep(id, launcher.VerbRequest{Level: level})
	require.NoError(r.t, err)
	_, err = r.AwaitState(r.t.Context(), id, launcher.Sleeping)
	require.NoError(r.t, err)
	r.engine.sleep = nil // vLLM ignores the sleep of an engine that reports that it sleeps
}

// failsToWake wakes "a" in vain, and returns what is left of it.
func (r *rig) failsToWake() launcherapi.Instance {
	r.t.Helper()
	_, err := r.Wake("a", launcher.VerbRequest{})
	require.NoError(r.t, err)
	_, err = r.AwaitState(r.t.Context(), "a", launcher.Awake)
	require.ErrorContains(r.t, err, "the reload failed")
	view, err := r.Get("a")
	require.NoError(r.t, err)
	return view
}

func TestFailedWakeFreesTheWeightsThatItLoaded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 2)
		failsAwakeInPart(r, 40)
		r.engine.resleep = func(context.Context) error { r.gpus.hold("g0", firstPID, 2); return nil }
		began := time.Now()
		view := r.failsToWake()
		assert.Equal(t, "sleeping", view.State)
		assert.LessOrEqual(t, time.Since(began), time.Second, "whoever was awake before waits for this")
		assert.Equal(t, []string{"sleep 2", "wake 2", "sleep 2", "resleep 2"}, r.engine.noted())
		assert.Zero(t, r.runner.tree("a").killed)
	})
}

func TestEngineThatCannotSleepAgainIsEndedWithinSeconds(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 2)
		failsAwakeInPart(r, 40)
		r.engine.resleep = func(context.Context) error { return errors.New("POST /wake_up?tags=weights answered 500") }
		began := time.Now()
		view := r.failsToWake()
		assert.Equal(t, "failed", view.State)
		assert.Contains(t, view.Reason, "it could not be put back to sleep: POST /wake_up?tags=weights answered 500")
		assert.LessOrEqual(t, time.Since(began), 7*time.Second, "whoever was awake before waits for this")
	})
}

func TestFailedWakeThatKeepsItsMemoryEndsTheEngine(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		failsAwakeInPart(r, 40)
		began := time.Now()
		view := r.failsToWake()
		assert.Equal(t, "failed", view.State)
		assert.Contains(t, view.Reason, "it reports that it sleeps, but holds 38.0 GiB of GPU g0 more than before")
		assert.LessOrEqual(t, time.Since(began), 6*time.Second, "whoever was awake before waits for this")
	})
}

func TestFailedWakeIsMeasuredByGPUIfNoProcessIsListed(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.gpus.blind = true
		failsAwakeInPart(r, 40)
		assert.Equal(t, "failed", r.failsToWake().State)
	})
}

func TestFailedWakeIsMeasuredByResidueAfterASilentDriver(t *testing.T) {
	for name, c := range map[string]struct {
		gibs  uint64
		state string
	}{"it holds more": {40, "failed"}, "it holds no more": {2, "sleeping"}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.asleepWith("a", 1)
				failsAwakeInPart(r, c.gibs)
				fails := r.engine.wake
				r.engine.wake = func(ctx context.Context) error { r.gpus.fallSilent(false); return fails(ctx) }
				r.gpus.fallSilent(true)
				assert.Equal(t, c.state, r.failsToWake().State)
			})
		})
	}
}

func TestFailedWakeThatTookNoMemoryStaysAsleep(t *testing.T) {
	for name, blind := range map[string]bool{"processes listed": false, "no process listed": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.asleepWith("a", 1)
				r.gpus.blind = blind
				failsAwakeInPart(r, 2)
				assert.Equal(t, "sleeping", r.failsToWake().State)
				assert.NotContains(t, r.engine.noted(), "resleep 1")
			})
		})
	}
}

func TestFailedWakeWhoseMemoryComesBackLateStaysAsleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		failsAwakeInPart(r, 40)
		r.engine.sleep = func(context.Context) error {
			time.AfterFunc(2*time.Second, func() { r.gpus.hold("g0", firstPID, 2) })
			return nil
		}
		assert.Equal(t, "sleeping", r.failsToWake().State)
	})
}

// One of two GPUs gave its memory back, and then the sleep failed.
func TestFailedSleepThatLostMemoryEndsTheEngine(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 70)
		r.engine.sleep = func(context.Context) error {
			r.gpus.hold("g0", firstPID, 35)
			return errors.New("a worker failed")
		}
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.ErrorContains(t, err, "it reports that it is awake, but holds 35.0 GiB of GPU g0 less than before")
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "failed", view.State)
	})
}

// One of two GPUs gave its memory back, and then the sleep failed, while the driver hung.
func TestFailedSleepIsMeasuredOnceTheDriverAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		gibs                uint64
		silentBefore        bool
		sleepsInTheMeantime bool
		state               string
	}{
		"it has lost memory":                              {gibs: 35, state: "failed"},
		"it has lost memory, and was not measured before": {gibs: 35, silentBefore: true, state: "failed"},
		"it has lost memory, and sleeps meanwhile":        {gibs: 35, sleepsInTheMeantime: true, state: "failed"},
		"it has lost nothing":                             {gibs: 70, state: "awake"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awakeWith("a", 70)
				r.gpus.fallSilent(c.silentBefore)
				r.engine.sleep = func(context.Context) error {
					r.gpus.fallSilent(true)
					r.gpus.hold("g0", firstPID, c.gibs)
					return errors.New("a worker failed")
				}
				_, err := r.Sleep("a", launcher.VerbRequest{})
				require.NoError(t, err)
				view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
				require.ErrorContains(t, err, "a worker failed")
				assert.Equal(t, "awake", view.State, "nobody knows yet")
				if c.sleepsInTheMeantime {
					r.engine.sleep = nil
					r.asleep("a")
					r.gpus.fallSilent(false)
					time.Sleep(10 * time.Second)
					_, err = r.Wake("a", launcher.VerbRequest{}) // it may be ended in the moment in which it is awake
					require.NoError(t, err)
				}
				time.Sleep(time.Hour)
				r.gpus.fallSilent(false)
				time.Sleep(2 * driverPoll)
				view, err = r.Get("a")
				require.NoError(t, err)
				assert.Equal(t, c.state, view.State)
				if c.state == "failed" {
					assert.Contains(t, view.Reason, "holds 35.0 GiB of GPU g0 less than before")
				}
			})
		})
	}
}

// Clients go on asking for another model on the GPU whose driver hangs.
func TestFailedSleepsOfOneInstanceWaitForItsDriverOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 70)
		r.engine.sleep = func(context.Context) error {
			r.gpus.fallSilent(true)
			return errors.New("a worker failed")
		}
		fails := func() {
			_, err := r.Sleep("a", launcher.VerbRequest{})
			require.NoError(t, err)
			_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
			require.ErrorContains(t, err, "a worker failed")
			time.Sleep(time.Minute) // what else began with it has ended
		}
		questions := func() int {
			before := r.gpus.questions()
			time.Sleep(10 * driverPoll)
			return r.gpus.questions() - before
		}
		fails()
		once := questions()
		require.NotZero(t, once)
		for range 10 {
			fails()
		}
		assert.InDelta(t, once, questions(), 5, "and not ten times as many")
		r.gpus.fallSilent(false)
		time.Sleep(2 * driverPoll)
		assert.Zero(t, questions(), "it was measured")
		assert.Equal(t, "awake", r.state("a"))
		fails()
		r.gpus.hold("g0", firstPID, 35)
		r.gpus.fallSilent(false)
		time.Sleep(2 * driverPoll)
		assert.Equal(t, "failed", r.state("a"), "the next one is measured again")
	})
}

// The launcher was killed while a sleeper's weights were loaded, and its record was lost: the
// engine says that it sleeps. A swap needs only what the engine does not hold yet.
func TestSwapNeedsOnlyTheMemoryThatASleeperLacks(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 2)
		r.gpus.hold("g0", firstPID, 40)
		c, err := r.tryClaim(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{ID: "a", SwapID: "s"}}))
		require.NoError(t, err)
		defer c.Release()
		began := time.Now()
		require.NoError(t, c.Wake(t.Context()))
		assert.Zero(t, time.Since(began))
	})
}

func TestFailedWakeIsMeasuredByGPUIfItsProcessesVanish(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		failsAwakeInPart(r, 40)
		wake := r.engine.wake
		r.engine.wake = func(ctx context.Context) error { r.gpus.blind = true; return wake(ctx) }
		assert.Equal(t, "failed", r.failsToWake().State)
	})
}

// A sleep frees what PyTorch has cached, and the wake does not take that again.
func TestFailedSleepThatFreedOnlyCachesStaysAwake(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 70)
		r.engine.sleep = func(context.Context) error {
			r.gpus.hold("g0", firstPID, 66)
			return errors.New("the answer was late")
		}
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.ErrorContains(t, err, "the answer was late")
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
	})
}

// The launcher was told to use other GPUs than before.
func TestSleeperOnAHiddenGPUWakes(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.asleepWith("a", 1)
		r.under(func() { r.instances["a"].facts.Spec.GPUUUIDs = []string{"g7"} })
		r.gpus.hidden = []gpu.Device{{UUID: "g7", Index: 7, MemoryTotalBytes: 80 * gib}}
		r.wakes("a")
	})
}
