package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in runs a test with a fake clock.
func in(t *testing.T, test func(t *testing.T, r *rig), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change...)
		test(t, r)
		require.NoError(t, r.Close(context.Background(), false))
		synctest.Wait() // for writes that a disk has held up: the folder is removed next
	})
}

func types(r *rig) []launcherapi.EventType {
	events, err := r.opts.Feed.Next(r.t.Context(), 0)
	require.NoError(r.t, err)
	var out []launcherapi.EventType
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

func states(r *rig) []string {
	events, err := r.opts.Feed.Next(r.t.Context(), 0)
	require.NoError(r.t, err)
	var out []string
	for _, e := range events {
		out = append(out, e.Object.State)
	}
	return out
}

func TestInstancePassesThroughItsWholeLife(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		assert.Equal(t, "open", r.gates.gate("a").get())
		r.asleep("a")
		assert.Equal(t, "shut", r.gates.gate("a").get())
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		view, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "stopped", view.State)
		_, err = r.Get("a")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Equal(t, []string{"starting", "awake", "falling_asleep", "sleeping", "waking", "awake", "stopping", "stopped", "stopped"}, states(r))
		assert.Equal(t, []launcherapi.EventType{"CREATED", "UPDATED", "UPDATED", "UPDATED", "UPDATED", "UPDATED", "UPDATED", "STOPPED", "DELETED"}, types(r))
		assert.Equal(t, []string{"sleep 1", "wake 1"}, r.engine.noted())
		assert.True(t, r.gates.gate("a").closed)
		assert.Equal(t, []time.Duration{10 * time.Second}, r.runner.tree("a").stopped)
	})
}

func TestUnrequestedExitIsAFailureInEveryState(t *testing.T) {
	for name, bring := range map[string]func(r *rig){
		"starting":       func(r *rig) { r.engine.ready = broken; r.create("a", "0.9") },
		"awake":          func(r *rig) { r.awake("a", "0.9") },
		"falling_asleep": func(r *rig) { r.engine.sleep = never; r.awake("a", "0.9"); _, _ = r.Sleep("a", launcher.VerbRequest{}) },
		"sleeping":       func(r *rig) { r.awake("a", "0.9"); r.asleep("a") },
		"waking": func(r *rig) {
			r.engine.wake = never
			r.awake("a", "0.9")
			r.asleep("a")
			_, _ = r.Wake("a", launcher.VerbRequest{})
		},
	} {
		t.Run("while "+name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				bring(r)
				require.Equal(t, name, r.state("a"))
				r.runner.tree("a").signalled(syscall.SIGSEGV)
				view, err := r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == "failed" })
				require.NoError(t, err)
				assert.Equal(t, -11, *view.ExitCode)
				assert.Equal(t, "the_cause", view.Cause)
				assert.Contains(t, view.Reason, "while "+name)
				assert.Contains(t, view.Reason, "the cause in words")
				assert.Equal(t, []string{"the last line"}, view.LastLogLines)
				assert.Equal(t, launcherapi.StatusStopped, view.Status)
				synctest.Wait()
				assert.Equal(t, 1, r.runner.tree("a").killed, "what it left behind is cleared without a delete")
				assert.True(t, r.gates.gate("a").closed)
				_, err = r.Delete(t.Context(), "a")
				require.NoError(t, err)
			})
		})
	}
}

func TestTooSlowStartIsKilledWithAReason(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.ready = broken
		r.create("a", "0.9")
		_, err := r.AwaitState(t.Context(), "a", launcher.Awake)
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
		assert.Contains(t, err.Error(), "start_timeout")
		synctest.Wait()
		assert.Equal(t, 1, r.runner.tree("a").killed)
	})
}

func TestHangingSleepIsUndone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.sleep = never
		_, err := r.Sleep("a", launcher.VerbRequest{Limit: time.Second})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err), "%v", err)
		assert.Equal(t, "awake", r.state("a"))
		assert.Equal(t, "open", r.gates.gate("a").get())
		assert.Equal(t, []string{"sleep 1", "wake 1"}, r.engine.noted(), "told to wake, so that a slow sleep cannot come true later")
	})
}

func TestEngineThatNeitherSleepsNorWakesIsKilled(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.sleep, r.engine.wake = never, never
		_, err := r.Sleep("a", launcher.VerbRequest{Limit: time.Second})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.Error(t, err)
		assert.Equal(t, "failed", r.state("a"))
		synctest.Wait()
		assert.Equal(t, 1, r.runner.tree("a").killed)
	})
}

// vLLM does this when its EngineCore dies during a call.
func TestVerbIsCancelledWhenTheEngineClosesItsPort(t *testing.T) {
	for verb, want := range map[string]launcher.State{"sleep": launcher.Sleeping, "wake": launcher.Awake} {
		t.Run(verb, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				ask := r.Sleep
				if verb == "wake" {
					r.asleep("a")
					ask = r.Wake
				}
				refused := func(context.Context) error { return fmt.Errorf("cannot ask: %w", syscall.ECONNREFUSED) }
				r.engine.ready, r.engine.sleep, r.engine.wake = refused, refused, refused
				if verb == "sleep" {
					r.engine.sleep = never
				} else {
					r.engine.wake = never
				}
				began := time.Now()
				_, err := ask("a", launcher.VerbRequest{Limit: time.Hour})
				require.NoError(t, err)
				_, err = r.AwaitState(t.Context(), "a", want)
				assert.Equal(t, launcherapi.CodeEngineFailed, launcher.CodeOf(err), "%v", err)
				assert.ErrorContains(t, err, "no longer listens")
				assert.Equal(t, "failed", r.state("a"))
				assert.LessOrEqual(t, time.Since(began), listenPoll+settleLimit)
				synctest.Wait()
				assert.Equal(t, 1, r.runner.tree("a").killed)
			})
		})
	}
}

func TestFailedWakeLeavesTheInstanceAsleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.asleep("a")
		r.engine.wake = broken
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		assert.Equal(t, launcherapi.CodeEngineFailed, launcher.CodeOf(err))
		assert.Contains(t, err.Error(), "broken")
		assert.Equal(t, "sleeping", r.state("a"))
		assert.Equal(t, "shut", r.gates.gate("a").get())
		gone, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Empty(t, gone.Reason, "it told of the state before")
	})
}

func TestVerbsAreIdempotentOrRefusedByState(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.asleep("a")
		again, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		assert.Equal(t, "sleeping", again.State)
		assert.Equal(t, []string{"sleep 1"}, r.engine.noted())
		_, err = r.Sleep("a", launcher.VerbRequest{Level: 3})
		assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
		_, err = r.Sleep("nobody", launcher.VerbRequest{})
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		r.engine.ready = broken
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: launcherapi.InstanceSpec{Args: []string{"m"}, GPUUUIDs: []string{"g1"}}})
		require.NoError(t, err)
		_, err = r.Sleep("b", launcher.VerbRequest{})
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "sleep while starting")
		assert.Contains(t, err.Error(), "starting")
		view, err := r.Wake("b", launcher.VerbRequest{})
		require.NoError(t, err, "it will be awake")
		assert.Equal(t, "starting", view.State)
	})
}

func TestStopWhileStartingUsesTheStartingGrace(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.ready = broken
		r.create("a", "0.9")
		_, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{2 * time.Second}, r.runner.tree("a").stopped)
	})
}

func TestStopCancelsASleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.sleep = never
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		_, err = r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.NotContains(t, states(r)[3:], "awake")
	})
}

func TestTimedOutDrainCutsAndCountsAnswers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		gate := r.gates.gate("a")
		gate.inFlight, gate.drained = 2, make(chan struct{})
		_, err := r.Sleep("a", launcher.VerbRequest{Drain: 3 * time.Second})
		require.NoError(t, err)
		began := time.Now()
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, 2, r.instances["a"].op.cut)
	})
}

func TestCancelledDrainCutsNothing(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		gate := r.gates.gate("a")
		gate.inFlight, gate.drained, gate.opened = 1, make(chan struct{}), make(chan struct{})
		_, err := r.Sleep("a", launcher.VerbRequest{Drain: time.Minute})
		require.NoError(t, err)
		synctest.Wait()
		r.under(func() { r.cancelDrain(r.instances["a"]) })
		assert.Equal(t, "awake", r.state("a"))
		assert.Equal(t, "open", gate.get())
		synctest.Wait()
		assert.Empty(t, r.engine.noted(), "the engine was never told to sleep")
		gate.drained = nil
		r.asleep("a")
		r.under(func() { r.cancelDrain(r.instances["a"]) })
		assert.Equal(t, "sleeping", r.state("a"), "too late")
	})
}

func TestEngineSleepsOnlyAfterItsAnswersEnd(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		gate := r.gates.gate("a")
		gate.inFlight, gate.drained = 1, make(chan struct{})
		_, err := r.Sleep("a", launcher.VerbRequest{Drain: time.Minute})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, "shut", gate.get())
		assert.Empty(t, r.engine.noted())
		close(gate.drained)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
	})
}

func TestSleepEndsOnlyWhenMemoryIsBack(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		pid := r.runner.tree("a").pid
		r.gpus.hold("g0", pid, 72)
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.Equal(t, "falling_asleep", r.state("a"), "the engine says that it sleeps, but its memory is still taken")
		r.gpus.hold("g0", pid, 2)
		view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"g0": 2 * gib}, view.GPUBytes, "its residue")
	})
}

func TestDeleteEndsOnlyWhenMemoryIsBack(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		pid := r.runner.tree("a").pid
		r.gpus.hold("g0", pid, 72)
		done := make(chan error, 1)
		go func() { _, err := r.Delete(context.Background(), "a"); done <- err }()
		time.Sleep(4 * time.Second)
		assert.Empty(t, done)
		r.gpus.hold("g0", pid, 0)
		require.NoError(t, <-done)
	})
}

func TestStopShowsTheExitCodeDespiteASlowLog(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		view, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		require.NotNil(t, view.ExitCode)
		assert.Equal(t, 0, *view.ExitCode)
	}, func(o *Options) {
		logs := o.Logs.(fakeLogs)
		logs.slow = time.Second
		o.Logs = logs
	})
}

func TestMissingMemoryIsReported(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.gpus.hold("g0", r.runner.tree("a").pid, 72)
		r.runner.tree("a").exitCode(0)
		_, err := r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == "failed" })
		require.NoError(t, err)
		time.Sleep(31 * time.Second)
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "had not come back")
	})
}

func TestInstanceThatDoesNotFitIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		_, err := r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.2")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		assert.Contains(t, err.Error(), "a (awake)")
		assert.Len(t, r.runner.started, 1)
		assert.Nil(t, r.gates.gate("b"))
		r.awake("c", "0.1")
		r.asleep("a")
		r.awake("d", "0.9")
		_, err = r.Wake("a", launcher.VerbRequest{})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err), "a wake has to fit as well")
		assert.Equal(t, "sleeping", r.state("a"))
	})
}

func TestRefusedCreateLeavesNothingBehind(t *testing.T) {
	bad := func(s launcherapi.InstanceSpec, code, part string) func(t *testing.T) {
		return func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.gates.taken[9999] = true
				r.runner.refuse = nil
				_, err := r.Create(launcher.CreateRequest{ID: "b", Spec: s})
				require.Error(t, err)
				assert.Equal(t, code, launcher.CodeOf(err), "%v", err)
				assert.Contains(t, err.Error(), part)
				list, _ := r.List()
				assert.Empty(t, list)
				assert.Empty(t, r.runner.started)
				assert.Zero(t, r.opts.Feed.Revision())
			})
		}
	}
	options := "model --tensor-parallel-size 2"
	t.Run("unknown GPU", bad(launcherapi.InstanceSpec{Args: []string{"m"}, GPUUUIDs: []string{"GPU-x"}}, launcherapi.CodeInvalid, `"GPU-x"`))
	t.Run("GPU named twice", bad(launcherapi.InstanceSpec{Args: []string{"m"}, GPUUUIDs: []string{"g0", "g0"}}, launcherapi.CodeInvalid, "twice"))
	t.Run("no model", bad(launcherapi.InstanceSpec{}, launcherapi.CodeInvalid, ""))
	t.Run("two GPUs needed, one given", bad(launcherapi.InstanceSpec{Options: &options, GPUUUIDs: []string{"g0"}}, launcherapi.CodeInvalid, "2"))
	t.Run("unknown engine", bad(launcherapi.InstanceSpec{Args: []string{"m"}, Engine: "other"}, launcherapi.CodeInvalid, "other"))
	t.Run("port taken", bad(launcherapi.InstanceSpec{Args: []string{"m", "--port", "9999"}}, launcherapi.CodePortTaken, "9999"))
	t.Run("variable that cannot be", bad(launcherapi.InstanceSpec{Args: []string{"m"}, EnvVars: map[string]launcherapi.EnvValue{"A=B": {}}}, launcherapi.CodeInvalid, "A=B"))
	t.Run("file outside the allowed folders", bad(launcherapi.InstanceSpec{Args: []string{"m"}, EnvVars: map[string]launcherapi.EnvValue{"A": {FromFile: "/etc/hostname"}}}, launcherapi.CodeInvalid, "env_file_dirs"))
}

func TestPublicPortIsUniqueAmongInstances(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.3")
		s.Args = append(s.Args, "--port", "8123")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.NoError(t, err)
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: s})
		assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		assert.Contains(t, err.Error(), "instance a")
	})
}

func TestUnrunnableProgramFailsWithAReason(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.runner.refuse = errBroken
		view := r.create("a", "0.9")
		assert.Equal(t, "a", view.InstanceID)
		view, err := r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == "failed" })
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "/bin/engine")
		_, err = r.Delete(t.Context(), "a")
		require.NoError(t, err)
	})
}

func TestUnwritableStateFolderRefusesOnlyNewInstances(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.4")
		r.records.failing(syscall.ENOSPC)
		_, err := r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.4")})
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
		assert.ErrorIs(t, err, syscall.ENOSPC)
		assert.Len(t, r.runner.started, 1)
		r.asleep("a")
		r.records.failing(nil)
		r.awake("b", "0.4")
	})
}

func TestSecretsAreShownNowhere(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-verysecret", "--max-num-batched-tokens", "4096")
		s.EnvVars = map[string]launcherapi.EnvValue{"HF_TOKEN": {Value: "hf_verysecret"}, "PLAIN": {Value: "shown"}, "COPY": {Value: "x hf_verysecret"}}
		view, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.NoError(t, err)
		synctest.Wait()
		shown, err := json.Marshal(view)
		require.NoError(t, err)
		written, err := json.Marshal(remembered(t, r))
		require.NoError(t, err)
		for _, text := range []string{string(shown), string(written)} {
			assert.NotContains(t, text, "verysecret")
			assert.Contains(t, text, "4096")
			assert.Contains(t, text, `"PLAIN":"shown"`)
		}
		assert.Contains(t, r.runner.started[0].Env, "HF_TOKEN=hf_verysecret", "the engine gets it")
		assert.Contains(t, r.runner.started[0].Args, "sk-verysecret")
	})
}

func TestSleepEnforcesTheBudgetOfSleepers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		time.Sleep(time.Second)
		r.awake("b", "0.3")
		r.asleep("a")
		r.asleep("b")
		synctest.Wait()
		_, err := r.Get("a")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "the least recently used sleeper is evicted")
		assert.Equal(t, "sleeping", r.state("b"))
	}, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
}

func TestFailedWakeEnforcesTheBudgetOfSleepers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.awake("b", "0.3")
		r.asleep("a")
		r.engine.wake = func(context.Context) error {
			r.asleep("b") // while a does not count as a sleeper
			return errBroken
		}
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.ErrorContains(t, err, "did not wake")
		synctest.Wait()
		all, _ := r.List()
		require.Len(t, all, 1)
		assert.Equal(t, "sleeping", all[0].State)
	}, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
}

func TestUnlistedEnginesMemoryIsNotForeign(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.gpus.blind = true
		r.awake("a", "0.9")
		r.gpus.hold("g0", 4711, 72)
		g := r.GPUs().GPUs[0]
		assert.EqualValues(t, 72*gib, g.MemoryUsedBytes)
		assert.Zero(t, g.ForeignBytes)
		require.Len(t, g.Awake, 1)
		assert.EqualValues(t, 72*gib, g.Awake[0].Bytes)
		assert.False(t, g.Awake[0].Measured)
	})
}

func TestCloseWithStopAllEndsEverything(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.awake("b", "0.3")
		r.asleep("b")
		require.NoError(t, r.Close(context.Background(), true))
		list, _ := r.List()
		assert.Empty(t, list)
		_, err := r.Create(launcher.CreateRequest{ID: "c", Spec: spec("0.1")})
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
	})
}

// restart returns a second supervisor with the first one's state folder and processes.
func restart(t *testing.T, old *rig) *rig {
	t.Helper()
	require.NoError(t, old.Close(context.Background(), false))
	memory := remembered(t, old)
	fresh := newRig(t, func(o *Options) {
		o.Records, o.ConfigDir, o.Compiled = old.records, old.opts.ConfigDir, old.opts.Compiled
	})
	fresh.records = old.records
	fresh.runner.trees, fresh.runner.gone, fresh.runner.found = old.runner.trees, old.runner.gone, old.runner.found
	fresh.engine.ready, fresh.engine.asleep = old.engine.ready, old.engine.asleep
	require.NoError(t, fresh.Recover(t.Context(), memory))
	return fresh
}

func TestRestartAdoptsLiveEnginesInTheirState(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("awake", "0.1")
		r.awake("asleep", "0.1")
		_, err := r.Sleep("asleep", launcher.VerbRequest{Level: 2})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "asleep", launcher.Sleeping)
		require.NoError(t, err)
		r.awake("falling", "0.1")
		r.engine.sleep = never
		_, err = r.Sleep("falling", launcher.VerbRequest{})
		require.NoError(t, err)
		r.awake("died", "0.1")
		before, err := r.Get("awake")
		require.NoError(t, err)
		code := -9
		r.runner.gone["died"] = process.Exit{Code: &code, Signal: syscall.SIGKILL}

		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		synctest.Wait()
		after, err := fresh.Get("awake")
		require.NoError(t, err)
		assert.Equal(t, "awake", after.State)
		assert.Equal(t, before.PID, after.PID)
		assert.Equal(t, before.Port, after.Port)
		assert.Equal(t, "open", fresh.gates.gate("awake").get())
		assert.Equal(t, "sleeping", fresh.state("asleep"))
		assert.Equal(t, "shut", fresh.gates.gate("asleep").get())
		assert.Equal(t, "sleeping", fresh.state("falling"), "what was on its way goes on its way")
		died, err := fresh.Get("died")
		require.NoError(t, err)
		assert.Equal(t, "failed", died.State)
		assert.Equal(t, -9, *died.ExitCode)
		assert.Contains(t, died.Reason, "while the launcher was down")
		_, err = fresh.Wake("asleep", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Contains(t, fresh.engine.noted(), "wake 2", "the level is remembered")
	})
}

func TestRestartBelievesEnginesOverStaleRecords(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("slept", "0.1")
		r.awake("woke", "0.1")
		r.asleep("woke")
		r.records.failing(errors.New("no space left on device"))
		r.asleep("slept")
		_, err := r.Wake("woke", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()

		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		assert.Equal(t, "sleeping", fresh.state("slept"))
		assert.Equal(t, "awake", fresh.state("woke"))
		_, err = fresh.Wake("slept", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Contains(t, fresh.engine.noted(), "wake 2", "which is right whatever its level")
	})
}

func TestFailedWriteIsRepeatedWithTheNextEvent(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.1")
		r.awake("b", "0.1")
		r.awake("gone", "0.1")
		r.records.failing(errors.New("no space left on device"))
		r.asleep("a")
		_, err := r.Delete(t.Context(), "gone")
		require.NoError(t, err)
		r.records.failing(nil)
		r.asleep("b")
		synctest.Wait()
		states := map[string]launcher.State{}
		for _, saved := range remembered(t, r).Instances {
			assert.False(t, saved.Doubted)
			states[saved.Facts.ID] = saved.State
		}
		assert.Equal(t, map[string]launcher.State{"a": launcher.Sleeping, "b": launcher.Sleeping}, states)
	})
}

func TestUnrecordedTreeWithoutRootIsFailedAndCleared(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.runner.found = []process.Found{
			{Name: "a", Root: process.ID{PID: r.runner.tree("a").pid}},
			{Name: "stranger", Root: process.ID{PID: 4}},
		}
		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		assert.Equal(t, "awake", fresh.state("a"))
		synctest.Wait()
		assert.Equal(t, "failed", fresh.state("stranger"), "its process cannot be adopted: it has ended")
		assert.Equal(t, []string{"stranger"}, fresh.runner.cleared, "what that left is cleared")
	})
}
