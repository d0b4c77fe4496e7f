package supervisor

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestWorkerIsAwakeWhileItsProcessLives(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.ready = broken // its engine cannot be asked
		view := r.createRank("worker", 1, "--port", "8000")
		assert.Zero(t, view.Port)
		assert.Nil(t, r.gates.gate("worker"))
		command := r.runner.started[0]
		assert.Equal(t, []string{"/bin/engine", "serve", "model", "--headless", "--nnodes", "2", "--node-rank", "1"}, command.Args[:8])
		assert.NotContains(t, command.Args, "--port")
		assert.Empty(t, command.Public)
		_, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		r.runner.tree("worker").signalled(syscall.SIGKILL)
		view, err = r.Await(t.Context(), "worker", func(i launcherapi.Instance) bool { return i.State == "failed" })
		require.NoError(t, err)
		assert.Equal(t, -9, *view.ExitCode)
		synctest.Wait()
		assert.Equal(t, []string{"take worker", "yield worker", "end worker"}, r.leases().calls)
	}, ranked)
}

// awakeWorker creates a worker, which then holds that much device memory, and returns its pid.
func (r *rig) awakeWorker(gibs uint64) (pid int) {
	r.t.Helper()
	r.createRank("worker", 1)
	_, err := r.AwaitState(r.t.Context(), "worker", launcher.Awake)
	require.NoError(r.t, err)
	pid = r.runner.tree("worker").pid
	r.gpus.hold("g0", pid, gibs)
	return pid
}

func TestWorkerSleepsOnceItsDeviceMemoryIsBack(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		pid := r.awakeWorker(70)
		_, err := r.Sleep("worker", launcher.VerbRequest{Drain: 30 * time.Second})
		require.NoError(t, err)
		time.Sleep(75 * time.Second) // the entry drains, then sleeps
		assert.Equal(t, "falling_asleep", r.state("worker"))
		r.gpus.hold("g0", pid, 60) // of 70
		time.Sleep(10 * time.Second)
		assert.Equal(t, "falling_asleep", r.state("worker"))
		r.gpus.hold("g0", pid, 2)
		view, err := r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"g0": 2 * gib}, view.GPUBytes)

		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "waking", r.state("worker"))
		r.gpus.hold("g0", pid, 70)
		view, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"g0": 70 * gib}, view.GPUBytes)
		assert.Empty(t, r.engine.noted(), "the engine of a worker cannot be asked")
	}, ranked)
}

// The entry may be told first, so that the worker sleeps before its launcher hears of it.
func TestWorkerThatSleepsAlreadyIsAsleepAtOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		pid := r.awakeWorker(70)
		time.Sleep(2 * loadPoll)
		r.gpus.hold("g0", pid, 2)
		began := time.Now()
		r.asleep("worker")
		assert.Less(t, time.Since(began), time.Second)
	}, ranked)
}

// bringIn is a swap that brings in a worker, which holds that much when the gate opens.
func (r *rig) bringIn(gibs uint64, committed bool) *Claim {
	r.t.Helper()
	d, err := r.Draft(launcher.CreateRequest{ID: "worker", Spec: rankSpec(1)})
	require.NoError(r.t, err)
	room := d.Want
	room.SwapID = "s"
	c := r.claims(ClaimRequest{Plan: launcher.Plan{SwapID: "s", In: "worker", Room: &room, Level: 1}, Draft: d})
	require.NoError(r.t, c.Start(r.t.Context()))
	require.NoError(r.t, c.Healthy(r.t.Context()))
	require.NoError(r.t, c.Canary(r.t.Context()), "the entry answers for it")
	r.gpus.hold("g0", r.runner.tree("worker").pid, gibs)
	c.Open(committed)
	return c
}

func TestWorkerThatStillLoadsIsNotPutToSleep(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		pid := old.awakeWorker(10)
		time.Sleep(time.Minute)
		_, slept := old.Sleep("worker", launcher.VerbRequest{})
		_, left := old.tryClaim(toDo(launcher.Plan{SwapID: "s", Out: []string{"worker"}}))
		for _, err := range []error{slept, left} {
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
			assert.ErrorContains(t, err, `the launcher has not seen that this worker has loaded; wait until it holds its device memory; if its device memory cannot be seen, bring it in by a swap with "until": "healthy", and commit that`)
		}
		assert.Equal(t, "awake", old.state("worker"))
		c := old.claims(toDo(launcher.Plan{SwapID: "s", In: "worker", Room: &launcher.Room{ID: "worker", SwapID: "s"}}))
		require.NoError(t, c.SendBack(t.Context()), "the undo of a swap goes on")
		c.Release()
		old.awakeAt("worker", 70)
		old.claims(toDo(launcher.Plan{SwapID: "s", Out: []string{"worker"}})).Release()

		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), remembered(t, old)))
		r.gpus.hold("g0", pid, 2)
		r.asleep("worker")
		_, err := r.Delete(t.Context(), "worker")
		require.NoError(t, err)
	}, ranked)
}

func TestWorkerIsConfirmedByTheCommitOfItsSwap(t *testing.T) {
	for committed, want := range map[bool]string{true: "", false: launcherapi.CodeConflict} {
		in(t, func(t *testing.T, r *rig) {
			r.bringIn(10, committed).Release()
			_, err := r.Sleep("worker", launcher.VerbRequest{})
			assert.Equal(t, want, launcher.CodeOf(err), "%v", err)
			_, err = r.Delete(t.Context(), "worker")
			require.NoError(t, err)
		}, ranked)
	}
}

func TestWorkerWithoutDeviceMemoryIsBelievedAtOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWorker(0)
		r.under(func() { r.instances["worker"].facts.Expected = map[string]uint64{"g0": 0} })
		r.believed("worker")
	}, ranked)
}

func TestCommittedWorkerWithoutDeviceMemoryIsBelieved(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		old.gpus.hold("g0", 7, 5) // another tenant, which uses little
		old.bringIn(0, true).Release()
		state := remembered(t, old)
		old.believed("worker")
		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), state))
		r.believed("worker")

		r.gpus.hold("g0", 7, 0)
		r.gpus.hold("g0", r.runner.tree("worker").pid, 70) // it holds device memory after all
		_, err := r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "falling_asleep", r.state("worker"))
	}, ranked)
}

func TestCommitThatCannotSeeDeviceMemoryConcludesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		tenant, worker uint64
		silent         bool
	}{
		"the driver does not answer":             {silent: true},
		"another tenant uses the GPU":            {tenant: 40},
		"the driver does not list the processes": {worker: 70},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.gpus.blind = true
				swap := r.bringIn(c.worker, false)
				r.gpus.hold("g0", 7, c.tenant)
				r.gpus.fallSilent(c.silent)
				swap.Open(true)
				swap.Release()
				r.gpus.fallSilent(false)
				_, err := r.Sleep("worker", launcher.VerbRequest{})
				require.NoError(t, err)
				_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
				assert.ErrorContains(t, err, "did not fall asleep within 1m0s: the driver lists no process of it on GPU g0, and the used memory of that GPU has not fallen by 36.8 GiB")
				assert.Equal(t, "awake", r.state("worker"))
			}, ranked)
		})
	}
}

func TestUsedMemoryShowsWorkersThatTheDriverDoesNotList(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.gpus.blind = true
		r.bringIn(70, true).Release()
		pid := r.runner.tree("worker").pid
		held := func(steps ...uint64) {
			for _, gibs := range steps {
				time.Sleep(10 * time.Second)
				assert.True(t, launcher.State(r.state("worker")).Moving(), r.state("worker"))
				r.gpus.hold("g0", pid, gibs)
			}
		}
		_, err := r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		held(40, 2)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		require.NoError(t, err)
		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		held(30, 70)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)

		r.gpus.hold("g0", pid, 2) // the entry was told before
		_, err = r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		assert.ErrorContains(t, err, "did not fall asleep within 1m0s: the driver lists no process of it on GPU g0, and the used memory of that GPU has not fallen by 36.8 GiB")
		assert.Equal(t, "awake", r.state("worker"))
	}, ranked)
}

func TestWorkerOfASilentDriverIsNotBelieved(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.bringIn(70, true).Release()
		r.asleepAt("worker", 2)
		r.gpus.fallSilent(true)
		_, err := r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "waking", r.state("worker"))
	}, ranked)
}

// asleepAt puts a worker to sleep, which then holds that much.
func (r *rig) asleepAt(id string, gibs uint64) {
	r.t.Helper()
	_, err := r.Sleep(id, launcher.VerbRequest{})
	require.NoError(r.t, err)
	synctest.Wait()
	r.gpus.hold("g0", r.runner.tree(id).pid, gibs)
	_, err = r.AwaitState(r.t.Context(), id, launcher.Sleeping)
	require.NoError(r.t, err)
}

// awakeAt wakes a worker, which then holds that much.
func (r *rig) awakeAt(id string, gibs uint64) {
	r.t.Helper()
	_, err := r.Wake(id, launcher.VerbRequest{})
	require.NoError(r.t, err)
	r.gpus.hold("g0", r.runner.tree(id).pid, gibs)
	_, err = r.AwaitState(r.t.Context(), id, launcher.Awake)
	require.NoError(r.t, err)
}

// believed puts a worker to sleep and wakes it, which both happen at once.
func (r *rig) believed(id string) {
	r.t.Helper()
	began := time.Now()
	r.asleep(id)
	r.awakeAt(id, 0)
	assert.Less(r.t, time.Since(began), time.Second)
}

func TestEndedWaitForAWakeTakesTheStateThatMemoryShows(t *testing.T) {
	for name, c := range map[string]struct {
		holds         uint64
		cut           bool
		state, reason string
	}{
		"timed out, and most memory is back": {40, false, "awake", "did not wake as a whole within 1m0s"},
		"cut short, and most memory is back": {40, true, "awake", "did not wake as a whole before the undo of its swap ended the wait"},
		"cut short, and no memory is back":   {2, true, "sleeping", "did not wake before the undo of its swap ended the wait"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.bringIn(70, true).Release()
				r.asleepAt("worker", 2)
				_, err := r.Wake("worker", launcher.VerbRequest{})
				require.NoError(t, err)
				r.gpus.hold("g0", r.runner.tree("worker").pid, c.holds)
				time.Sleep(10 * time.Second)
				assert.Equal(t, "waking", r.state("worker"))
				if c.cut {
					r.under(func() { r.cutShort(r.instances["worker"]) })
				}
				view, err := r.Await(t.Context(), "worker", func(i launcherapi.Instance) bool { return i.State != "waking" })
				require.NoError(t, err)
				assert.Equal(t, c.state, view.State)
				assert.Contains(t, view.Reason, c.reason)
			}, ranked)
		})
	}
}

func TestWorkerWhoseEntryIsNotToldStaysAsItIs(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		pid := r.awakeWorker(70)
		_, err := r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "it still holds 70.0 GiB of GPU g0; tell the launcher of the entry to put its server to sleep, too")
		assert.Equal(t, "awake", r.state("worker"))

		r.gpus.hold("g0", pid, 2)
		r.asleep("worker")
		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		assert.ErrorContains(t, err, "the entry of its server was not woken")
		assert.Equal(t, "sleeping", r.state("worker"))
		_, err = r.Delete(t.Context(), "worker")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{2 * time.Second}, r.runner.tree("worker").stopped, "a worker does not end by SIGTERM")
	}, ranked)
}

func TestAdoptedWorkerIsWhatItWas(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		old.awakeWorker(70)
		old.asleepAt("worker", 2)
		state := remembered(t, old)
		assert.Equal(t, map[string][]int{"worker": {41000}}, state.LeasedPorts())

		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), state))
		view, err := r.Get("worker")
		require.NoError(t, err)
		assert.Equal(t, "sleeping", view.State)
		assert.Equal(t, []int{41000}, view.Leased)
		assert.Equal(t, 1, view.Rank.Index)
		r.awakeAt("worker", 70)
		_, err = r.Delete(t.Context(), "worker")
		require.NoError(t, err)
	}, ranked)
}

func TestStopOfAWorkerGoesOnWithTheStartingGrace(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		old.awakeWorker(70)
		state := remembered(t, old)
		state.Instances[0].State = launcher.Stopping
		r, hard := nextLife(t, old, ranked)
		close(hard.ending)
		require.NoError(t, r.Recover(t.Context(), state))
		_, err := r.Await(t.Context(), "worker", func(i launcherapi.Instance) bool { return i.Status == launcherapi.StatusStopped })
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{2 * time.Second}, r.runner.tree("worker").stopped)
	}, ranked)
}

func TestWorkerThatASwapBringsInIsMeasuredWhenTheSwapOpens(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.bringIn(10, false)
		assert.Empty(t, r.engine.probed)
		for _, step := range []struct{ holds, measured uint64 }{{10, 0}, {60, 60}, {50, 60}, {59, 59}, {70, 70}} {
			r.gpus.hold("g0", r.runner.tree("worker").pid, step.holds)
			c.Open(false)
			view, err := r.Get("worker")
			require.NoError(t, err)
			assert.Equal(t, step.measured*gib, view.GPUBytes["g0"], "it may still load, or sleep already")
		}
		c.Release()
	}, ranked)
}
