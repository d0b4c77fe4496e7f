package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// firstPID is the pid of the first instance of a fakeRunner.
const firstPID = 1_000_001

// awakeWith creates the first instance, which holds that many GiB when it is ready.
func (r *rig) awakeWith(id string, gibs uint64) {
	r.t.Helper()
	r.engine.ready = func(context.Context) error { r.gpus.hold("g0", firstPID, gibs); return nil }
	r.awake(id, "0.9")
	r.engine.ready = nil
}

// hardRunner is a Runner whose processes cannot be adopted or ended at first.
type hardRunner struct {
	*fakeRunner
	unadopted int           // how many adoptions fail although the process lives
	ending    chan struct{} // Clear returns when it is closed
}

func (r *hardRunner) Adopt(name string, id process.ID) (Tree, error) {
	r.mu.Lock()
	r.unadopted--
	failed := r.unadopted >= 0
	r.mu.Unlock()
	if failed {
		return nil, fmt.Errorf("cannot open process %d: %w", id.PID, syscall.EMFILE)
	}
	return r.fakeRunner.Adopt(name, id)
}

func (r *hardRunner) Clear(ctx context.Context, name string) error {
	select {
	case <-r.ending:
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.fakeRunner.Clear(ctx, name)
}

// nextLife is restart with a hardRunner and further changes.
func nextLife(t *testing.T, old *rig, change ...func(*Options)) (*rig, *hardRunner) {
	t.Helper()
	require.NoError(t, old.Close(context.Background(), false))
	hard := &hardRunner{fakeRunner: old.runner, ending: make(chan struct{})}
	kept := func(o *Options) {
		o.Records, o.ConfigDir, o.Runner, o.GPUs = old.records, old.opts.ConfigDir, hard, old.gpus
	}
	fresh := newRig(t, append([]func(*Options){kept}, change...)...)
	fresh.records, fresh.gpus = old.records, old.gpus
	fresh.runner, fresh.engine.ready, fresh.engine.asleep = old.runner, old.engine.ready, old.engine.asleep
	return fresh, hard
}

// remembered returns the saved state of a rig, once all pending events are handled.
func remembered(t *testing.T, r *rig) SavedState {
	t.Helper()
	synctest.Wait()
	all, err := r.records.Read()
	require.NoError(t, err)
	var memory SavedState
	for _, f := range all {
		saved, err := ReadSaved(f)
		require.NoError(t, err)
		memory.Add(saved)
	}
	return memory
}

func (r *rig) wakes(id string) []string {
	r.t.Helper()
	_, err := r.Wake(id, launcher.VerbRequest{})
	require.NoError(r.t, err)
	_, err = r.AwaitState(r.t.Context(), id, launcher.Awake)
	require.NoError(r.t, err)
	return r.engine.noted()
}

func TestRecordsNameTheSwapUntilRelease(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		carried := func() map[string]string {
			out := map[string]string{}
			for _, saved := range remembered(t, r).Instances {
				out[saved.Facts.ID] = saved.SwapID
			}
			return out
		}
		r.awake("out", "0.4")
		ask := r.toMake("s", "in")
		ask.Plan.Out = []string{"out"}
		c := r.claims(ask)
		assert.Equal(t, map[string]string{"out": "s"}, carried())
		require.NoError(t, c.Start(t.Context()))
		assert.Equal(t, map[string]string{"out": "s", "in": "s"}, carried())
		c.Release()
		assert.Equal(t, map[string]string{"out": "", "in": ""}, carried())
	})
}

func TestUnendingProcessDoesNotDelayRecovery(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("awake", "0.1")
		r.awake("stopping", "0.1")
		r.runner.tree("stopping").stuck = true
		go func() { _, _ = r.Delete(t.Context(), "stopping") }()
		r.awake("stopped", "0.1")
		synctest.Wait()
		r.gpus.hold("g0", r.runner.tree("awake").pid, 8)
		memory := remembered(t, r)
		for n := range memory.Instances {
			if memory.Instances[n].Facts.ID == "stopped" {
				memory.Instances[n].State = launcher.Stopped
			}
		}
		r.runner.gone["awake"], r.runner.gone["stopping"] = process.Exit{}, process.Exit{}
		r.runner.found = []process.Found{{Name: "@preloader-1", PIDs: []int{1}}, {Name: "stopped", PIDs: []int{2}}}
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory), "it returns")
		synctest.Wait()
		for id, state := range map[string]string{"awake": "failed", "stopping": "stopping", "stopped": "stopped"} {
			view, err := fresh.Get(id)
			require.NoError(t, err)
			assert.Equal(t, state, view.State)
			_, over, err := fresh.LogName(id)
			require.NoError(t, err)
			select {
			case <-over:
				assert.Fail(t, "it is said to hold nothing", id)
			default:
			}
			assert.True(t, id == "stopped" || view.Reason != "", id)
		}
		assert.Empty(t, fresh.runner.cleared)

		close(hard.ending)
		synctest.Wait()
		assert.ElementsMatch(t, []string{"@preloader-1", "awake", "stopping", "stopped"}, fresh.runner.cleared)
		_, err := fresh.Get("stopping")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "it was to be deleted")
		fresh.gpus.hold("g0", r.runner.tree("awake").pid, 0)
		_, over, err := fresh.LogName("awake")
		require.NoError(t, err)
		<-over
	})
}

func TestUnadoptedEngineKeepsItsStateAndLives(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 5
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Contains(t, view.Reason, "too many open files")
		assert.Equal(t, "open", fresh.gates.gate("a").get())
		_, err = fresh.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.9")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err), "its memory is counted: %v", err)

		view, err = fresh.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.Reason == "" })
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State, "it was tried again")
		assert.Empty(t, fresh.runner.cleared)
		assert.Zero(t, fresh.runner.tree("a").killed)
		fresh.runner.tree("a").exitCode(3)
		view, err = fresh.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == "failed" })
		require.NoError(t, err)
		assert.Equal(t, 3, *view.ExitCode, "its end is seen")
	})
}

func TestRecordOfAnUnknownEngineCostsNoLivingEngine(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		memory.Instances[0].Engine = "vlmm"
		fresh, _ := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Contains(t, view.Reason, `names the engine "vlmm"`)
		assert.Equal(t, "open", fresh.gates.gate("a").get())
		_, err = fresh.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.9")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err), "its memory is counted: %v", err)
	})
}

// leases is a store that records who has a lease on which version.
type leases struct {
	Models

	of        map[string]string
	meanwhile func() // happens while a lease is taken
}

func (m *leases) Lease(key, holder string) error {
	m.of[holder] = key
	if m.meanwhile != nil {
		m.meanwhile()
	}
	return nil
}

func (m *leases) Release(holder string) error { delete(m.of, holder); return nil }

func (m *leases) ReleaseOthers(there func(string) bool) error {
	maps.DeleteFunc(m.of, func(holder, _ string) bool { return !there(holder) })
	return nil
}

// TestRecoveredInstancesHaveTheirLeasesAgain starts where another launcher of the same name has
// dropped the leases of one that was down for long.
func TestRecoveredInstancesHaveTheirLeasesAgain(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "ofaclaim", "withoutstore"} {
			r.awake(id, "0.2")
		}
		memory := remembered(t, r)
		for n := range memory.Instances {
			switch facts := &memory.Instances[n].Facts; facts.ID {
			case "a":
				facts.Local = modelSource{From: launcherapi.ModelFromCache, ID: "key"}
			case "ofaclaim":
				facts.Local = modelSource{From: launcherapi.ModelFromCache, ID: "theirs", Claim: "c"}
			}
		}
		models := &leases{of: map[string]string{"instance gone": "key"}}
		fresh, _ := nextLife(t, r, func(o *Options) { o.Models = models })
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		assert.Equal(t, map[string]string{"instance a": "key"}, models.of)
	})
}

// TestRecoveredInstanceThatEndsMeanwhileHasNoLease takes leases from a disk that stalls.
func TestRecoveredInstanceThatEndsMeanwhileHasNoLease(t *testing.T) {
	for name, ends := range map[string]func(*rig){
		"it holds nothing any more": func(r *rig) { r.instances["a"].released = true },
		"it is gone":                func(r *rig) { delete(r.instances, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.2")
				r.under(func() { r.instances["a"].facts.Local = modelSource{From: launcherapi.ModelFromCache, ID: "key"} })
				a := r.instances["a"]
				defer r.under(func() { r.instances["a"], a.released = a, false })
				r.opts.Models = &leases{of: map[string]string{}, meanwhile: func() { r.under(func() { ends(r) }) }}
				defer func() { r.opts.Models = nil }()
				r.takeLeasesAgain()
				assert.Empty(t, r.opts.Models.(*leases).of)
			})
		})
	}
}

func TestStopWaitsForALateAdoption(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 5
		require.NoError(t, fresh.Recover(t.Context(), memory))
		_, err := fresh.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{10 * time.Second}, fresh.runner.tree("a").stopped)
	})
}

func TestEngineFoundGoneAtLateAdoptionHasFailed(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 2
		code := 3
		fresh.runner.gone["a"] = process.Exit{Code: &code}
		close(hard.ending)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		require.Equal(t, "awake", fresh.state("a"))
		view, err := fresh.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.State == "failed" })
		require.NoError(t, err)
		assert.Equal(t, 3, *view.ExitCode)
		synctest.Wait()
		assert.Equal(t, []string{"a"}, fresh.runner.cleared)
	})
}

func TestUnrecordedEngineIsListedAndLives(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.5")
		tree := r.runner.tree("a")
		r.gpus.hold("g0", tree.pid, 40)
		r.runner.found = []process.Found{{Name: "a", Root: tree.ID(), PIDs: []int{tree.pid}}}
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		close(hard.ending)
		require.NoError(t, fresh.Recover(t.Context(), SavedState{}))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Equal(t, []string{"g0"}, view.GPUUUIDs, "it holds memory there")
		assert.Contains(t, view.Reason, "without a record")
		_, err = fresh.Sleep("a", launcher.VerbRequest{})
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "nobody knows where it listens")
		time.Sleep(time.Hour)
		assert.Equal(t, "awake", fresh.state("a"), "it runs until it is deleted")
		assert.Empty(t, fresh.runner.cleared)
		assert.Zero(t, tree.killed)
		fresh.gpus.hold("g0", tree.pid, 0)
		_, err = fresh.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Len(t, tree.stopped, 1)
	})
}

func TestUnknownSleepLevelCountsAs2(t *testing.T) {
	for name, c := range map[string]struct {
		level int
		harm  func(m *SavedState)
		want  string
	}{
		"level 1":          {1, func(*SavedState) {}, "wake 1"},
		"level 2":          {2, func(*SavedState) {}, "wake 2"},
		"level 1, doubted": {1, func(m *SavedState) { m.Instances[0].Doubted = true }, "wake 2"},
		"level 2, with a stale record of level 1": {2, func(m *SavedState) { m.Instances[0].Level, m.Instances[0].Doubted = 1, true }, "wake 2"},
		"level 2, with a record that says awake":  {2, func(m *SavedState) { m.Instances[0].Level, m.Instances[0].State = 1, launcher.Awake }, "wake 2"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				r.asleep("a")
				r.wakes("a")
				_, err := r.Sleep("a", launcher.VerbRequest{Level: c.level})
				require.NoError(t, err)
				_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
				require.NoError(t, err)
				tree := r.runner.tree("a")
				r.runner.found = []process.Found{{Name: "a", Root: tree.ID(), PIDs: []int{tree.pid}}}
				memory := remembered(t, r)
				c.harm(&memory)
				fresh, _ := nextLife(t, r)
				defer fresh.Close(context.Background(), false)
				require.NoError(t, fresh.Recover(t.Context(), memory))
				require.Equal(t, "sleeping", fresh.state("a"))
				assert.Equal(t, []string{c.want}, fresh.wakes("a"))
			})
		})
	}
}

func TestSleepLevelIsSavedBeforeTheEngineSleeps(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		told := false
		r.engine.sleep = func(context.Context) error {
			all, err := r.records.Read()
			require.NoError(t, err)
			saved, err := ReadSaved(all[0])
			require.NoError(t, err)
			assert.Equal(t, 2, saved.Level)
			told = true
			return nil
		}
		_, err := r.Sleep("a", launcher.VerbRequest{Level: 2})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.True(t, told)
	})
}

func TestEngineAnswerOverridesADoubtedRecord(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		falls := make(chan struct{})
		r.engine.sleep = func(context.Context) error { <-falls; return nil }
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait() // the last state that can be written
		r.records.failing(syscall.ENOSPC)
		close(falls)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		r.wakes("a")
		memory := remembered(t, r)
		require.Equal(t, launcher.FallingAsleep, memory.Instances[0].State)
		fresh, _ := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		synctest.Wait()
		assert.Equal(t, "awake", fresh.state("a"))
		assert.Empty(t, fresh.engine.noted(), "it is not put to sleep")
		r.records.failing(nil)
		fresh.asleep("a")
		assert.False(t, remembered(t, fresh).Instances[0].Doubted, "what is written is true again")
	})
}

func TestUnreadableRecordIsRefused(t *testing.T) {
	for name, record := range map[string]string{
		"of another":       `{"facts":{"id":"other"},"state":"awake"}`,
		"of no known kind": `"a text"`,
		"of a wrong type":  `{"facts":{"id":"a"},"state":"awake","revision":"one"}`,
		"of no state":      `{"facts":{"id":"a"},"state":"awakf"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSaved(statedir.Found{Name: "a", Record: json.RawMessage(record)})
			assert.Error(t, err)
		})
	}
	saved, err := ReadSaved(statedir.Found{Name: "a", Record: json.RawMessage(`{"facts":{"id":"a"},"state":"awake"}`), Doubted: true})
	require.NoError(t, err)
	assert.True(t, saved.Doubted)
}

func TestResumedCompleteSleepWaitsForNoMemory(t *testing.T) {
	for name, known := range map[string]uint64{"what it held awake is known": 70, "it is not known": 0} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awakeWith("a", known)
				slept := make(chan struct{})
				r.engine.sleep = func(ctx context.Context) error { close(slept); return never(ctx) } // the engine sleeps, and the launcher dies
				_, err := r.Sleep("a", launcher.VerbRequest{})
				require.NoError(t, err)
				<-slept
				r.gpus.hold("g0", firstPID, 2)
				memory := remembered(t, r)
				require.Equal(t, launcher.FallingAsleep, memory.Instances[0].State)
				fresh, _ := nextLife(t, r)
				defer fresh.Close(context.Background(), false)
				require.NoError(t, fresh.engine.set("http://127.0.0.1:40001", true, nil))
				began := time.Now()
				require.NoError(t, fresh.Recover(t.Context(), memory))
				view, err := fresh.AwaitState(t.Context(), "a", launcher.Sleeping)
				require.NoError(t, err)
				assert.Equal(t, began, time.Now(), "no time passes")
				assert.Equal(t, 2*gib, view.GPUBytes["g0"])
			})
		})
	}
}

func TestResumedSleepWaitsForLateMemory(t *testing.T) {
	for name, known := range map[string]uint64{"what it held awake is known": 70, "it is not known": 0} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awakeWith("a", known)
				r.engine.sleep = never
				_, err := r.Sleep("a", launcher.VerbRequest{})
				require.NoError(t, err)
				memory := remembered(t, r)
				fresh, _ := nextLife(t, r)
				defer fresh.Close(context.Background(), false)
				fresh.gpus.hold("g0", firstPID, 70)
				require.NoError(t, fresh.engine.set("http://127.0.0.1:40001", true, nil))
				require.NoError(t, fresh.Recover(t.Context(), memory))
				time.Sleep(10 * time.Second)
				assert.Equal(t, "falling_asleep", fresh.state("a"))
				fresh.gpus.hold("g0", firstPID, 2)
				view, err := fresh.AwaitState(t.Context(), "a", launcher.Sleeping)
				require.NoError(t, err)
				assert.Equal(t, 2*gib, view.GPUBytes["g0"])
			})
		})
	}
}

func TestSilentSleeperBecomesSleepingWhenItAnswers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.asleep("a")
		tree := r.runner.tree("a")
		r.runner.found = []process.Found{{Name: "a", Root: tree.ID(), PIDs: []int{tree.pid}}}
		memory := remembered(t, r)
		memory.Instances[0].State, memory.Instances[0].Doubted = launcher.Starting, true // its later state could not be written
		fresh, _ := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		answers := time.Now().Add(time.Minute)
		fresh.engine.ready = func(ctx context.Context) error {
			if time.Now().Before(answers) {
				return errBroken
			}
			return nil
		}
		fresh.engine.sleeps = fresh.engine.ready
		require.NoError(t, fresh.Recover(t.Context(), memory))
		require.Equal(t, "starting", fresh.state("a"))
		_, err := fresh.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		assert.Equal(t, "shut", fresh.gates.gate("a").get())
	})
}

func TestSilentSleeperCountsForTheBudgetWhenItAnswers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			r.awake(id, "0.3")
			r.asleep(id)
			time.Sleep(time.Second)
		}
		memory := remembered(t, r)
		for n := range memory.Instances {
			if b := &memory.Instances[n]; b.Facts.ID == "b" {
				b.State, b.Doubted = launcher.Starting, true
			}
		}
		fresh, _ := nextLife(t, r, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
		defer fresh.Close(context.Background(), false)
		answers := time.Now().Add(time.Minute)
		fresh.engine.ready = func(context.Context) error {
			if time.Now().Before(answers) {
				return errBroken
			}
			return nil
		}
		fresh.engine.sleeps = fresh.engine.ready
		require.NoError(t, fresh.Recover(t.Context(), memory))
		fresh.EnforceBudgets()
		_, err := fresh.AwaitState(t.Context(), "b", launcher.Sleeping)
		require.NoError(t, err)
		synctest.Wait()
		all, _ := fresh.List()
		require.Len(t, all, 1, "the least recently used sleeper is evicted")
		assert.Equal(t, "b", all[0].InstanceID)
	})
}

func TestSilentEngineIsWokenWithTheLevel2Sequence(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		tree := r.runner.tree("a")
		r.runner.found = []process.Found{{Name: "a", Root: tree.ID(), PIDs: []int{tree.pid}}}
		memory := remembered(t, r)
		memory.Instances[0].Doubted = true // a sleep at level 2 could not be written, and the launcher was killed
		fresh, _ := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		fresh.engine.sleeps = func(context.Context) error { return errBroken }
		require.NoError(t, fresh.Recover(t.Context(), memory))
		require.Equal(t, "awake", fresh.state("a"))
		fresh.engine.sleeps = nil
		for range 2 {
			fresh.asleep("a")
			fresh.wakes("a")
		}
		assert.Equal(t, []string{"sleep 2", "wake 2", "sleep 1, unchecked", "wake 1, unchecked"}, fresh.engine.noted(), "once awake, it is known again")
	})
}

// refusing is an engine that answers a canary with an HTTP status.
type refusing struct {
	*fakeEngine
	status int
}

func (e refusing) Probe(context.Context, string, string, engine.Secret, string) (engine.Answer, error) {
	return engine.Answer{}, fmt.Errorf("cannot get an answer: %w", &engine.StatusError{Call: "POST /v1/completions", Status: e.status})
}

func TestCanaryWithAForgottenKeyIsNoFailure(t *testing.T) {
	for status, passes := range map[int]bool{http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusInternalServerError: false} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				ask := func(r *rig) error {
					c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "a", Room: &launcher.Room{}}))
					defer c.Release()
					return c.Canary(t.Context())
				}
				require.NoError(t, ask(r))
				memory := remembered(t, r)
				fresh, _ := nextLife(t, r, func(o *Options) {
					o.Engines = []engine.Engine{refusing{o.Engines[0].(*fakeEngine), status}}
				})
				defer fresh.Close(context.Background(), false)
				require.NoError(t, fresh.Recover(t.Context(), memory))
				if passes {
					assert.NoError(t, ask(fresh))
				} else {
					assert.Error(t, ask(fresh))
				}
			})
		})
	}
}

func TestSmallerBudgetsAreEnforcedAfterRestart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"first", "second", "third"} {
			r.awake(id, "0.3")
			r.asleep(id)
			time.Sleep(time.Second)
		}
		memory := remembered(t, r)
		fresh, _ := nextLife(t, r, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		fresh.EnforceBudgets()
		synctest.Wait()
		all, _ := fresh.List()
		require.Len(t, all, 1)
		assert.Equal(t, "third", all[0].InstanceID)
	})
}
