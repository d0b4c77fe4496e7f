package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeLeases has leases that the test makes, and records what becomes of them.
type fakeLeases struct {
	ports map[string][]int
	calls []string
	ended error // of Take
}

func (f *fakeLeases) Of(id string) []int { return f.ports[id] }
func (f *fakeLeases) Yield(id string)    { f.calls = append(f.calls, "yield "+id) }
func (f *fakeLeases) End(id string)      { f.calls = append(f.calls, "end "+id) }
func (f *fakeLeases) Take(id string, _ []int) error {
	f.calls = append(f.calls, "take "+id)
	return f.ended
}

// ranked makes a launcher whose instances entry and worker have leased ports.
func ranked(o *Options) {
	o.Leases = &fakeLeases{ports: map[string][]int{"entry": {41000, 41001}, "worker": {41000}}}
	o.RankAddress = "10.0.0.8"
	o.Interface = func(string) (string, error) { return "eth0", nil }
}

func (r *rig) leases() *fakeLeases { return r.opts.Leases.(*fakeLeases) }

// rankSpec is that of one of two ranks, which share two GPUs.
func rankSpec(index int, args ...string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{
		Args: append([]string{"model", "-tp", "2"}, args...), GPUUUIDs: []string{"g0"},
		Rank: &launcherapi.Rank{Group: "group", Index: index, Size: 2, Entry: "10.0.0.7:41000"},
	}
}

func (r *rig) createRank(id string, index int, args ...string) launcherapi.Instance {
	r.t.Helper()
	view, err := r.Create(launcher.CreateRequest{ID: id, Spec: rankSpec(index, args...)})
	require.NoError(r.t, err)
	return view
}

func TestEngineIsToldItsLeasedPortsAndTheyAreNoPartOfItsSpec(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		spec := spec("0.9")
		spec.Args = append(spec.Args, "--kv-transfer-config", `{"port": $(PORT_1)}`)
		spec.EnvVars = map[string]launcherapi.EnvValue{"A": {Value: "$(PORT_0) $(HOME)"}}
		view, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec})
		require.NoError(t, err)
		assert.Equal(t, spec.Args, view.Args)
		assert.Equal(t, spec.EnvVars, view.EnvVars)
		assert.Equal(t, []int{41000, 41001}, view.Leased)
		assert.Contains(t, r.runner.started[0].Args, `{"port": 41001}`)
		assert.Contains(t, r.runner.started[0].Env, "A=41000 $(HOME)")
		assert.Equal(t, []string{"take entry", "yield entry"}, r.leases().calls)
		synctest.Wait()
		_, err = r.Delete(t.Context(), "entry")
		require.NoError(t, err)
		assert.Equal(t, []string{"take entry", "yield entry", "end entry"}, r.leases().calls)
	}, ranked)
}

func TestInstanceThatNamesAPortWithoutALeaseIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for id, want := range map[string]string{
			"other":  "lease ports by PUT /v2/port-leases/ID with a count of at least 2",
			"worker": "the port lease of worker has 1",
		} {
			spec := spec("0.9")
			spec.Args = append(spec.Args, "--x", "$(PORT_1)")
			_, err := r.Create(launcher.CreateRequest{ID: id, Spec: spec})
			assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
			assert.ErrorContains(t, err, want)
			refused, _ := errors.AsType[*launcher.Error](err)
			assert.Equal(t, "body.args[4]", refused.Location)
		}
	}, ranked)
}

func TestInstanceWhoseLeaseHasEndedIsNotCreated(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.leases().ended = launcher.Conflictf("the lease has ended")
		_, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec("0.9")})
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		_, err = r.Get("entry")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Equal(t, []string{"take entry", "end entry"}, r.leases().calls)
	}, ranked)
}

func TestEntryIsStartedWithItsRank(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		view := r.createRank("entry", 0, "--size", "$(GROUP_SIZE)")
		assert.NotZero(t, view.Port)
		assert.Equal(t, 0, view.Rank.Index)
		assert.Equal(t, []string{
			"/bin/engine", "serve", "model", "--host", "127.0.0.1", "--port", "40001",
			"--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.7", "--master-port", "41000", "--distributed-executor-backend", "mp",
			"-tp", "2", "--size", "2",
		}, r.runner.started[0].Args)
		for _, v := range []string{"VLLM_HOST_IP=10.0.0.8", "GLOO_SOCKET_IFNAME=eth0", "GROUP_SIZE=2", "WORKER_INDEX=0", "ENTRY_ADDRESS=10.0.0.7"} {
			assert.Contains(t, r.runner.started[0].Env, v)
		}
		_, err := r.AwaitState(t.Context(), "entry", launcher.Awake)
		require.NoError(t, err)
	}, ranked)
}

func TestRankThatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		at, text string
		change   func(o *Options, s *launcherapi.InstanceSpec)
	}{
		"a port that the entry has not leased":    {"body.rank.entry", "port 42000 is not leased to instance entry", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Entry = "10.0.0.7:42000" }},
		"an index beyond the size":                {"body.rank.index", "rank.index must be 0 to 1", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Index = 2 }},
		"GPUs that cannot be shared":              {"body.rank.size", "3 ranks cannot share 2 GPUs evenly", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Size = 3 }},
		"another number of GPUs":                  {"body.gpu_uuids", "the arguments need 1 GPU", func(_ *Options, s *launcherapi.InstanceSpec) { s.GPUUUIDs = []string{"g0", "g1"} }},
		"a leased port as the public one":         {"body", "--port 41001 is a leased port", func(_ *Options, s *launcherapi.InstanceSpec) { s.Args = append(s.Args, "--port", "$(PORT_1)") }},
		"a launcher without an address":           {"body.rank", "start it with --rank-address", func(o *Options, _ *launcherapi.InstanceSpec) { o.RankAddress = "" }},
		"an entry that cannot reach its loopback": {"body.rank", "the entry is at 10.0.0.7, but the ranks of this launcher listen at 127.0.0.1, which other machines cannot reach; start the launcher with --rank-address", func(o *Options, _ *launcherapi.InstanceSpec) { o.RankAddress = "127.0.0.1" }},
		"an address of another machine": {"body.rank", "no address of this machine", func(o *Options, _ *launcherapi.InstanceSpec) {
			o.Interface = func(string) (string, error) { return "", errors.New("no address of this machine") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := rankSpec(0)
			in(t, func(t *testing.T, r *rig) {
				_, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec})
				refused, ok := errors.AsType[*launcher.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, launcherapi.CodeInvalid, refused.Code)
				assert.Equal(t, c.at, refused.Location)
				assert.Contains(t, refused.Detail, c.text)
			}, ranked, func(o *Options) { c.change(o, &spec) })
		})
	}
}

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

func TestWorkerSleepsOnceItsDeviceMemoryIsBack(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.createRank("worker", 1)
		_, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		pid := r.runner.tree("worker").pid
		r.gpus.hold("g0", pid, 70)
		_, err = r.Sleep("worker", launcher.VerbRequest{Drain: 30 * time.Second})
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
		r.createRank("worker", 1)
		_, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		pid := r.runner.tree("worker").pid
		r.gpus.hold("g0", pid, 70)
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
		old.createRank("worker", 1)
		_, err := old.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		pid := old.runner.tree("worker").pid
		old.gpus.hold("g0", pid, 10)
		time.Sleep(time.Minute)
		_, slept := old.Sleep("worker", launcher.VerbRequest{})
		_, left := old.tryClaim(toDo(launcher.Plan{SwapID: "s", Out: []string{"worker"}}))
		for _, err := range []error{slept, left} {
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
			assert.ErrorContains(t, err, "the server of this worker has not been seen to answer; wait, or delete it")
		}
		assert.Equal(t, "awake", old.state("worker"))
		c := old.claims(toDo(launcher.Plan{SwapID: "s", In: "worker", Room: &launcher.Room{ID: "worker", SwapID: "s"}}))
		require.NoError(t, c.SendBack(t.Context()), "the undo of a swap goes on")
		c.Release()
		_, err = old.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		old.gpus.hold("g0", pid, 70)
		_, err = old.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		old.claims(toDo(launcher.Plan{SwapID: "s", Out: []string{"worker"}})).Release()

		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), remembered(t, old)))
		r.gpus.hold("g0", pid, 2)
		r.asleep("worker")
		_, err = r.Delete(t.Context(), "worker")
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
		r.createRank("worker", 1)
		_, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		r.under(func() { r.instances["worker"].facts.Expected = map[string]uint64{"g0": 0} })
		began := time.Now()
		r.asleep("worker")
		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		assert.Less(t, time.Since(began), time.Second)
	}, ranked)
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
		assert.ErrorContains(t, err, "did not fall asleep within 1m0s")
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

func TestWorkerThatWasNeverMeasuredWakesWithHalfOfItsPlan(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.bringIn(10, true).Release()
		r.asleepAt("worker", 2)
		_, err := r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		pid := r.runner.tree("worker").pid
		r.gpus.hold("g0", pid, 30) // of 72
		time.Sleep(10 * time.Second)
		assert.Equal(t, "waking", r.state("worker"))
		r.gpus.hold("g0", pid, 50)
		view, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"g0": 50 * gib}, view.GPUBytes)
	}, ranked)
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
		r.createRank("worker", 1)
		_, err := r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		pid := r.runner.tree("worker").pid
		r.gpus.hold("g0", pid, 70)
		_, err = r.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Sleeping)
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "the entry of its server does not sleep")
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
		old.createRank("worker", 1)
		_, err := old.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		pid := old.runner.tree("worker").pid
		old.gpus.hold("g0", pid, 70)
		_, err = old.Sleep("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		old.gpus.hold("g0", pid, 2)
		_, err = old.AwaitState(t.Context(), "worker", launcher.Sleeping)
		require.NoError(t, err)
		state := remembered(t, old)
		assert.Equal(t, map[string][]int{"worker": {41000}}, state.LeasedPorts())

		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), state))
		view, err := r.Get("worker")
		require.NoError(t, err)
		assert.Equal(t, "sleeping", view.State)
		assert.Equal(t, []int{41000}, view.Leased)
		assert.Equal(t, 1, view.Rank.Index)
		_, err = r.Wake("worker", launcher.VerbRequest{})
		require.NoError(t, err)
		r.gpus.hold("g0", pid, 70)
		_, err = r.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		_, err = r.Delete(t.Context(), "worker")
		require.NoError(t, err)
	}, ranked)
}

func TestClaimTakesTheLeaseOfTheInstanceThatItCreates(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.claims(dry(r.toMake("s", "entry"))).Release()
		assert.Empty(t, r.leases().calls)
		r.claims(r.toMake("s", "entry")).Release()
		assert.Equal(t, []string{"take entry", "end entry"}, r.leases().calls)
		r.leases().calls = nil
		c := r.claims(r.toMake("s", "entry"))
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.SendBack(t.Context()))
		c.Release()
		assert.Equal(t, []string{"take entry", "yield entry", "end entry"}, r.leases().calls)
		r.leases().ended = launcher.Conflictf("the lease has ended")
		_, err := r.tryClaim(r.toMake("s", "entry"))
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
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

func TestConfigCopyOfAWorkerStaysUntilItSleeps(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		original := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(original, []byte("seed: 1\n"), 0o600))
		old.createRank("worker", 1, "--config", original)
		_, err := old.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		state := remembered(t, old)
		told := old.configPath("worker")
		assert.FileExists(t, told, "the engine may not have read it yet")
		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), state))
		assert.FileExists(t, told)
		r.gpus.hold("g0", r.runner.tree("worker").pid, 70)
		r.asleepAt("worker", 2)
		synctest.Wait()
		assert.NoFileExists(t, told)
	}, ranked)
}
