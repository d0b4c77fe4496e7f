package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// restartedEngine is a fakeEngine that cannot sleep in its process.
type restartedEngine struct {
	engine.Engine
	dir  string // where it saves
	fail error  // of Save and Restore
	dies func() // called by Restore
	ends func() // called by Save

	mu    sync.Mutex
	calls []string
}

func (e *restartedEngine) note(call string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, call)
}

func (e *restartedEngine) noted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

func (e *restartedEngine) Save(_ context.Context, _, dir string, _ engine.Secret) error {
	e.note("save")
	if e.ends != nil {
		e.ends()
	}
	if e.fail != nil {
		return e.fail
	}
	return os.WriteFile(filepath.Join(dir, "slot"), []byte("a conversation"), 0o600)
}

func (e *restartedEngine) Restore(_ context.Context, _, dir string, _ engine.Secret) error {
	if e.dies != nil {
		e.dies()
	}
	kept, err := os.ReadFile(filepath.Join(dir, "slot"))
	if err == nil {
		e.note("restore " + string(kept))
	}
	return e.fail
}

// serves makes it the launcher's engine.
func (e *restartedEngine) serves(o *Options) {
	e.Engine = o.Engines[0]
	o.Engines, o.SaveDir = []engine.Engine{e}, filepath.Dir(e.dir)
}

// inRestarted is in for an engine that cannot sleep in its process; the folder has what
// instance a saves.
func inRestarted(t *testing.T, test func(t *testing.T, r *rig, e *restartedEngine)) {
	t.Helper()
	e := &restartedEngine{dir: filepath.Join(t.TempDir(), "a")}
	in(t, func(t *testing.T, r *rig) { test(t, r, e) }, e.serves)
}

// nextRestarted is nextLife for an engine that cannot sleep in its process. It is recovered.
func nextRestarted(t *testing.T, old *rig, e *restartedEngine) *rig {
	t.Helper()
	saved := remembered(t, old)
	fresh, _ := nextLife(t, old, e.serves)
	require.NoError(t, fresh.Recover(t.Context(), saved))
	synctest.Wait()
	return fresh
}

func TestEngineThatCannotSleepInItsProcessIsEndedAndStartedAgain(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		first := r.runner.started[0]
		r.asleep("a")
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Zero(t, view.PID)
		assert.Empty(t, view.GPUBytes)
		assert.Empty(t, view.Cause)
		assert.Equal(t, "shut", r.gates.gate("a").get())
		assert.Equal(t, []string{"save"}, e.noted())
		r.wakes("a")
		view, err = r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, r.runner.tree("a").pid, view.PID)
		require.Len(t, r.runner.started, 2)
		again := r.runner.started[1]
		first.Output, again.Output = nil, nil
		assert.Equal(t, first, again, "it is the same process, started again")
		assert.Equal(t, []string{"save", "restore a conversation"}, e.noted())
		assert.Equal(t, "open", r.gates.gate("a").get())
		r.asleep("a")
		r.wakes("a")
		assert.Len(t, r.runner.started, 3)
	})
}

func TestSleepAtLevelTwoKeepsNoConversation(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a") // at level 1
		r.wakes("a")
		_, err := r.Sleep("a", launcher.VerbRequest{Level: 2})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.NoFileExists(t, filepath.Join(e.dir, "slot"), "what the sleep before has saved is stale")
		r.wakes("a")
		assert.Equal(t, []string{"save", "restore a conversation"}, e.noted())
	})
}

func TestConversationsThatCannotBeKeptDoNotKeepAnInstanceFromSleepAndWake(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		e.fail = errBroken
		r.asleep("a")
		r.wakes("a")
		assert.Equal(t, []string{"save"}, e.noted())
		assert.Equal(t, string(launcher.Awake), r.state("a"))
	})
}

func TestProcessThatEndsWhileItWakesLeavesASleeper(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		r.engine.ready = broken
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Equal(t, "did not wake: ended by signal 11 (segmentation fault) while waking: the cause in words", view.Reason)
		assert.Equal(t, "the_cause", view.Cause)
		assert.Zero(t, view.PID)
		r.engine.ready = nil
		r.wakes("a")
		assert.Equal(t, []string{"save", "restore a conversation"}, e.noted())
	})
}

func TestProcessThatEndsWhileItReadsItsConversationsLeavesASleeper(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		e.dies = func() { r.runner.tree("a").signalled(syscall.SIGSEGV) }
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "did not wake: ended by signal 11")
		assert.Zero(t, view.PID)
		e.dies = nil
		r.wakes("a")
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		_, err = r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == string(launcher.Failed) })
		require.NoError(t, err, "the exit of one that is awake is its failure")
	})
}

func TestEngineThatDoesNotBecomeHealthySleepsAgain(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, _ *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		r.engine.ready = broken
		began := time.Now()
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "did not become healthy in time")
		assert.Equal(t, 10*time.Minute, time.Since(began).Round(time.Second), "it loads, as in a start")
	})
}

func TestProcessThatEndsDuringTheDrainHasFailed(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		gate := r.gates.gate("a")
		gate.drained = make(chan struct{})
		_, err := r.Sleep("a", launcher.VerbRequest{Level: 1, Drain: -1})
		require.NoError(t, err)
		synctest.Wait()
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		view, err := r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return launcher.State(i.State).Ended() })
		require.NoError(t, err)
		assert.Equal(t, string(launcher.Failed), view.State, "requests were being answered")
		assert.Empty(t, e.noted())
	})
}

func TestProcessThatEndsAfterTheDrainSleeps(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		e.ends = func() { r.runner.tree("a").signalled(syscall.SIGSEGV) }
		r.asleep("a")
		assert.Equal(t, []string{"save"}, e.noted())
	})
}

func TestProcessThatEndsAsItsSleepIsResumedSleeps(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		r.wakes("a")
		saved := remembered(t, r)
		require.Len(t, saved.Instances, 1)
		saved.Instances[0].State, saved.Instances[0].Level = launcher.FallingAsleep, 1
		next, _ := nextLife(t, r, e.serves)
		e.fail = syscall.ECONNREFUSED // it was told to end, and has closed its socket
		e.ends = func() { next.runner.tree("a").signalled(syscall.SIGTERM) }
		require.NoError(t, next.Recover(t.Context(), saved))
		_, err := next.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.FileExists(t, filepath.Join(e.dir, "slot"), "the earlier launcher's engine has saved it")
	})
}

func TestEngineThatLogsIsAskedAtOnceWhetherItIsHealthy(t *testing.T) {
	e := &restartedEngine{dir: filepath.Join(t.TempDir(), "a")}
	var logs growingLogs
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.4")
		r.asleep("a")
		healthy := make(chan struct{})
		r.engine.ready = func(context.Context) error {
			select {
			case <-healthy:
				return nil
			default:
				return errBroken
			}
		}
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		<-time.After(10 * time.Second)
		close(healthy)
		logs.grown <- struct{}{}
		synctest.Wait()
		assert.Equal(t, string(launcher.Awake), r.state("a"))
	}, e.serves, func(o *Options) { logs = growingLogs{o.Logs, make(chan struct{})}; o.Logs = &logs })
}

// growingLogs tells that a log has grown.
type growingLogs struct {
	Logs
	grown chan struct{}
}

func (l *growingLogs) Watch(string) (<-chan struct{}, func(), error) { return l.grown, func() {}, nil }

func TestProcessThatDoesNotEndFailsTheSleep(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, _ *restartedEngine) {
		r.awake("a", "0.4")
		tree := r.runner.tree("a")
		tree.stuck = true
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		view, err := r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == string(launcher.Failed) })
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "its process did not end within 1m10s")
		close(tree.release)
		_, err = r.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.Port == 0 })
		require.NoError(t, err)
	})
}

func TestDeletedSleeperWithoutAProcessLeavesNothing(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		require.FileExists(t, filepath.Join(e.dir, "slot"))
		_, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.NoDirExists(t, e.dir)
		assert.True(t, r.gates.gate("a").closed)
	})
}

// startingRunner tells when a process is being started, and starts it once it may.
type startingRunner struct {
	*fakeRunner
	starting, may chan struct{}
}

func (r *startingRunner) Start(c process.Command) (Tree, error) {
	r.starting <- struct{}{}
	<-r.may
	return r.fakeRunner.Start(c)
}

func TestInstanceDeletedWhileItsProcessIsStartedAgainLeavesNoProcess(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, _ *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		slow := &startingRunner{r.runner, make(chan struct{}), make(chan struct{})}
		r.opts.Runner = slow
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		<-slow.starting
		deleted := make(chan error)
		go func() { _, err := r.Delete(t.Context(), "a"); deleted <- err }()
		synctest.Wait()
		close(slow.may)
		require.NoError(t, <-deleted)
		<-r.runner.tree("a").Done()
	})
}

func TestNextLauncherFindsSleepersWithoutAProcess(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		r.awake("a", "0.4")
		r.asleep("a")
		port := r.gates.gate("a").port
		delete(r.runner.trees, "a")
		next := nextRestarted(t, r, e)
		view, err := next.Get("a")
		require.NoError(t, err)
		assert.Equal(t, string(launcher.Sleeping), view.State)
		assert.Zero(t, view.PID)
		assert.Equal(t, port, view.Port)
		next.wakes("a")
		assert.Equal(t, []string{"save", "restore a conversation"}, e.noted())
	})
}

// TestNextLauncherGoesOnWhereAProcessIsEndedOrStarted: the launcher was killed on the way.
func TestNextLauncherGoesOnWhereAProcessIsEndedOrStarted(t *testing.T) {
	for name, c := range map[string]struct {
		state launcher.State
		alive bool
		next  launcher.State
	}{
		"the process of one that fell asleep has ended": {launcher.FallingAsleep, false, launcher.Sleeping},
		"the process of one that fell asleep lives":     {launcher.FallingAsleep, true, launcher.Sleeping},
		"one that woke was not started":                 {launcher.Waking, false, launcher.Awake},
		"one that woke was started":                     {launcher.Waking, true, launcher.Awake},
		"one that slept by its record was started":      {launcher.Sleeping, true, launcher.Awake},
	} {
		t.Run(name, func(t *testing.T) {
			inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
				r.awake("a", "0.4")
				saved := remembered(t, r)
				saved.Instances[0].State = c.state
				if !c.alive {
					saved.Instances[0].Root = process.ID{}
					delete(r.runner.trees, "a")
				}
				next, _ := nextLife(t, r, e.serves)
				require.NoError(t, next.Recover(t.Context(), saved))
				view, err := next.AwaitState(t.Context(), "a", c.next)
				require.NoError(t, err)
				assert.Equal(t, c.next == launcher.Awake, view.PID != 0)
			})
		})
	}
}

func TestSleeperWithSecretsDoesNotOutliveTheLauncherWithoutAProcess(t *testing.T) {
	inRestarted(t, func(t *testing.T, r *rig, e *restartedEngine) {
		s := spec("0.4")
		s.Args = append(s.Args, "--api-key", "very-secret")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		r.asleep("a")
		delete(r.runner.trees, "a")
		next := nextRestarted(t, r, e)
		view, err := next.Get("a")
		require.NoError(t, err)
		assert.Equal(t, string(launcher.Failed), view.State)
		assert.Contains(t, view.Reason, "does not keep the secrets of its request; create it again")
	})
}
