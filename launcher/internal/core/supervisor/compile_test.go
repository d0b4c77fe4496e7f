package supervisor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeCompiled remembers the names that were noted.
type fakeCompiled struct {
	mu        sync.Mutex
	noted     map[string]bool
	elsewhere bool // engines cache what they compile elsewhere
}

func (f *fakeCompiled) Keeps([]string) bool { return !f.elsewhere }

func (f *fakeCompiled) Has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noted[name]
}

func (f *fakeCompiled) Note(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted[name] = true
	return nil
}

// compiles returns a rig whose engines are ready when the test says so.
func compiles(t *testing.T, do func(t *testing.T, r *rig, ready *atomic.Bool), change ...func(*Options)) {
	t.Helper()
	in(t, func(t *testing.T, r *rig) {
		ready := &atomic.Bool{}
		r.engine.ready = func(context.Context) error {
			if ready.Load() {
				return nil
			}
			return errors.New("it compiles")
		}
		do(t, r, ready)
	}, append([]func(*Options){func(o *Options) { o.Compiled = &fakeCompiled{noted: map[string]bool{}} }}, change...)...)
}

// coldly creates an instance on a GPU, which is then starting, and reports whether it
// has a process.
func (r *rig) coldly(id, gpu string, more ...string) (started bool) {
	r.t.Helper()
	s := launcherapi.InstanceSpec{Args: append([]string{"model", "--gpu-memory-utilization", "0.2"}, more...), GPUUUIDs: []string{gpu}}
	view, err := r.Create(launcher.CreateRequest{ID: id, Spec: s})
	require.NoError(r.t, err)
	require.Equal(r.t, string(launcher.Starting), view.State)
	return r.runs(id)
}

func (r *rig) runs(id string) bool { return r.runner.tree(id) != nil }

func (r *rig) isAwake(id string) launcherapi.Instance {
	r.t.Helper()
	view, err := r.AwaitState(r.t.Context(), id, launcher.Awake)
	require.NoError(r.t, err)
	return view
}

func TestInstancesThatCompileTheSameStartInTurn(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
		assert.True(t, r.coldly("a", "g0"))
		assert.False(t, r.coldly("b", "g1"))
		assert.False(t, r.coldly("c", "g1"))
		view, err := r.Get("b")
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "waiting for what instance a compiles, which began to start at ")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		assert.False(t, r.runs("b"))
		ready.Store(true)
		for _, id := range []string{"a", "b", "c"} {
			view := r.isAwake(id)
			assert.Empty(t, view.Reason)
			waited := view.Timings[0].Name == "compile_wait" && view.Timings[0].DurationMS >= 40000
			assert.Equal(t, id != "a", waited, "%s: %v", id, view.Timings)
		}
		ready.Store(false)
		assert.True(t, r.coldly("d", "g1"), "it is compiled")
		assert.True(t, r.coldly("e", "g1"))
	})
}

func TestInstanceThatCompilesOtherwiseDoesNotWait(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, _ *atomic.Bool) {
		assert.True(t, r.coldly("a", "g0"))
		assert.True(t, r.coldly("b", "g1", "--max-model-len", "256"))
		assert.True(t, r.coldly("c", "g1", "--enforce-eager"))
		assert.True(t, r.coldly("d", "g1", "--enforce-eager"))
		assert.False(t, r.coldly("e", "g1", "--served-model-name", "another"))
	})
}

func TestInstanceWithItsOwnCacheDoesNotWait(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, _ *atomic.Bool) {
		assert.True(t, r.coldly("a", "g0"))
		assert.True(t, r.coldly("b", "g1"))
	}, func(o *Options) { o.Compiled.(*fakeCompiled).elsewhere = true })
}

func TestEndOfTheCompilerPassesTheTurn(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"it dies":       func(r *rig) { r.runner.tree("a").exitCode(1) },
		"it is deleted": func(r *rig) { _, err := r.Delete(r.t.Context(), "a"); require.NoError(r.t, err) },
	} {
		t.Run(name, func(t *testing.T) {
			compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
				assert.True(t, r.coldly("a", "g0"))
				r.coldly("b", "g1")
				r.coldly("c", "g1")
				synctest.Wait()
				end(r)
				synctest.Wait()
				assert.NotEqual(t, r.runs("b"), r.runs("c"), "one of them")
				ready.Store(true)
				r.isAwake("b")
				r.isAwake("c")
			})
		})
	}
}

func TestCompileWaitLeavesHalfOfTheStartTimeout(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, _ *atomic.Bool) {
		r.coldly("a", "g0")
		time.Sleep(time.Second)
		r.coldly("b", "g1")
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		assert.True(t, r.runs("b"))
		view, err := r.AwaitState(t.Context(), "b", launcher.Awake)
		require.Error(t, err)
		assert.Equal(t, string(launcher.Failed), view.State)
		assert.Equal(t, "did not become healthy within 10s (start_timeout)", view.Reason)
	}, func(o *Options) { o.Limits.Start = 20 * time.Second })
}

func TestInstanceDeletedWhileWaitingToCompileNeverStarts(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
		r.coldly("a", "g0")
		r.coldly("b", "g1")
		_, err := r.Delete(t.Context(), "b")
		require.NoError(t, err)
		ready.Store(true)
		r.isAwake("a")
		synctest.Wait()
		assert.False(t, r.runs("b"))
	})
}

func TestRestartKnowsWhoCompiles(t *testing.T) {
	compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
		r.coldly("a", "g0")
		again := restart(t, r)
		assert.False(t, again.coldly("b", "g1"))
		ready.Store(true)
		again.isAwake("a")
		again.isAwake("b")
	})
}

func TestWaitForAPreloaderTakesNoCompileTurn(t *testing.T) {
	f := &fakeForker{}
	compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
		f.runner, f.wait = r.runner, make(chan struct{})
		assert.False(t, r.coldly("a", "g0"))
		s := launcherapi.InstanceSpec{Args: []string{"model", "--gpu-memory-utilization", "0.2"}, GPUUUIDs: []string{"g1"}, StartMethod: launcherapi.StartExec}
		_, err := r.Create(launcher.CreateRequest{ID: "b", Spec: s})
		require.NoError(t, err)
		assert.True(t, r.runs("b"))
		close(f.wait)
		synctest.Wait()
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "waiting for what instance b compiles")
		ready.Store(true)
		assert.Equal(t, launcherapi.StartFork, r.isAwake("a").StartedBy)
	}, func(o *Options) { o.StartMethod, o.Forker = launcherapi.StartAuto, f })
}

// The arguments may name leased ports, as those of a KV connector do. Each lease has other ports.
func TestLeasedPortsMakeNoDifferenceToWhatIsCompiled(t *testing.T) {
	leased := func(o *Options) {
		o.Leases = &fakeLeases{ports: map[string][]int{"a": {41000, 41001}, "b": {41002, 41003}, "c": {41004, 41005}}}
	}
	compiles(t, func(t *testing.T, r *rig, ready *atomic.Bool) {
		const transfer = `{"kv_port": "$(PORT_1)"}`
		assert.True(t, r.coldly("a", "g0", "--kv-transfer-config", transfer))
		assert.False(t, r.coldly("b", "g1", "--kv-transfer-config", transfer))
		assert.True(t, r.coldly("c", "g1", "--kv-transfer-config", `{"kv_port": "$(PORT_0)"}`), "other arguments")
		assert.Contains(t, r.runner.started[0].Args, `{"kv_port": "41001"}`)
		ready.Store(true)
		r.isAwake("a")
		r.isAwake("b")
		r.isAwake("c")
	}, leased)
}
