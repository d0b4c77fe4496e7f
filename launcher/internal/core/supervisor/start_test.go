package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeForker forks with the fake runner, or returns why it cannot.
type fakeForker struct {
	runner      *fakeRunner
	never       string
	check, fork error
	forked      []string
	checked     int           // calls of Check, which may start a preloader
	wait        chan struct{} // closed when a preloader is ready or the wait is over; nil: one is ready
}

func (f *fakeForker) Never() string        { return f.never }
func (f *fakeForker) Check([]string) error { f.checked++; return f.check }
func (f *fakeForker) Look([]string) error  { return f.check }

func (f *fakeForker) Awaits([]string) string {
	if f.wait == nil {
		return ""
	}
	return "waiting for the preloader"
}

// Await waits until the channel is closed.
func (f *fakeForker) Await(ctx context.Context, _ []string, told func(string)) error {
	told("waiting for the preloader")
	select {
	case <-f.wait:
		return f.fork
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fakeForker) Fork(c process.Command) (Tree, error) {
	if f.fork != nil {
		return nil, f.fork
	}
	f.forked = append(f.forked, c.Name)
	return f.runner.Start(c)
}

func TestStartMethodDecidesHowAnEngineStarts(t *testing.T) {
	busy := errors.New("the preloader is busy")
	for name, c := range map[string]struct {
		method    string
		forker    fakeForker
		startedBy string
		reason    string
		code      string
	}{
		"auto forks": {method: "auto", startedBy: "fork"},
		"without a method the launcher's default counts": {startedBy: "fork"},
		"exec never forks":                {method: "exec", startedBy: "exec"},
		"auto falls back with the reason": {method: "auto", forker: fakeForker{fork: busy}, startedBy: "exec", reason: "started by exec: the preloader is busy"},
		"auto is exec, without a reason, if no preloader can ever be ready": {method: "auto", forker: fakeForker{never: "no Python", fork: busy}, startedBy: "exec"},
		"fork forks": {method: "fork", startedBy: "fork"},
		"fork is refused while no preloader is ready": {method: "fork", forker: fakeForker{check: busy}, code: launcherapi.CodeUnavailable},
		"fork is invalid if none can ever be ready":   {method: "fork", forker: fakeForker{never: "no Python"}, code: launcherapi.CodeInvalid},
		"a failed fork falls back to exec":            {method: "fork", forker: fakeForker{fork: busy}, startedBy: "exec", reason: "started by exec: the preloader is busy"},
	} {
		t.Run(name, func(t *testing.T) {
			forker := &c.forker
			in(t, func(t *testing.T, r *rig) {
				forker.runner = r.runner
				s := spec("0.3")
				s.StartMethod = c.method
				_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
				if c.code != "" {
					assert.Equal(t, c.code, launcher.CodeOf(err))
					list, _ := r.List()
					assert.Empty(t, list, "nothing is made")
					return
				}
				require.NoError(t, err)
				synctest.Wait()
				view, err := r.AwaitState(t.Context(), "a", launcher.Awake)
				require.NoError(t, err)
				assert.Equal(t, c.startedBy, view.StartedBy)
				assert.Equal(t, c.method, view.StartMethod)
				assert.Equal(t, c.reason, view.Reason)
				assert.Equal(t, c.startedBy == "fork", len(forker.forked) == 1)
			}, func(o *Options) { o.StartMethod, o.Forker = launcherapi.StartAuto, forker })
		})
	}
}

func TestForkIsRefusedWithoutPreloaders(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.3")
		s.StartMethod = "fork"
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
		r.awake("b", "0.3")
		view, err := r.Get("b")
		require.NoError(t, err)
		assert.Equal(t, "exec", view.StartedBy)
		assert.Empty(t, view.Reason)
	})
}

func TestStartedBySurvivesARestart(t *testing.T) {
	forker := &fakeForker{}
	in(t, func(t *testing.T, r *rig) {
		forker.runner = r.runner
		r.awake("a", "0.3")
		again := restart(t, r)
		view, err := again.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "fork", view.StartedBy)
	}, func(o *Options) { o.StartMethod, o.Forker = launcherapi.StartAuto, forker })
}

func TestDryRunStartsNoPreloader(t *testing.T) {
	for _, busy := range []error{nil, errors.New("no preloader is ready")} {
		forker := &fakeForker{check: busy}
		in(t, func(t *testing.T, r *rig) {
			s := spec("0.3")
			s.StartMethod = launcherapi.StartFork
			_, err := r.Draft(launcher.CreateRequest{ID: "a", Spec: s, DryRun: true})
			assert.Equal(t, busy != nil, err != nil)
			assert.Zero(t, forker.checked)
			_, _ = r.Draft(launcher.CreateRequest{ID: "a", Spec: s})
			assert.Equal(t, 1, forker.checked, "else one would never be ready")
		}, func(o *Options) { o.Forker = forker })
	}
}

// waits returns a rig whose instances wait for a preloader until wait is closed.
func waits(t *testing.T, do func(t *testing.T, r *rig, f *fakeForker), change ...func(*Options)) {
	t.Helper()
	f := &fakeForker{}
	in(t, func(t *testing.T, r *rig) {
		f.runner, f.wait = r.runner, make(chan struct{})
		view, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.3")})
		require.NoError(t, err)
		assert.Equal(t, string(launcher.Starting), view.State, "the call is answered at once")
		assert.Equal(t, "waiting for the preloader", view.Reason)
		assert.Empty(t, view.StartedBy)
		do(t, r, f)
	}, append([]func(*Options){func(o *Options) { o.StartMethod, o.Forker = launcherapi.StartAuto, f }}, change...)...)
}

func TestStartWaitsForThePreloaderAndIsForked(t *testing.T) {
	waits(t, func(t *testing.T, r *rig, f *fakeForker) {
		time.Sleep(14 * time.Second)
		close(f.wait)
		view, err := r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartFork, view.StartedBy)
		assert.Empty(t, view.Reason)
		assert.Contains(t, view.Timings, launcherapi.PhaseTime{Name: "preload", DurationMS: 14000})
	})
}

func TestStartWithoutPreloaderIsExecWithAReason(t *testing.T) {
	waits(t, func(t *testing.T, r *rig, f *fakeForker) {
		f.fork = errors.New("it could not load the engine: ZeroDivisionError")
		close(f.wait)
		view, err := r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartExec, view.StartedBy)
		assert.Equal(t, "started by exec: it could not load the engine: ZeroDivisionError", view.Reason)
	})
}

func TestInstanceDeletedWhileWaitingForAPreloaderNeverStarts(t *testing.T) {
	waits(t, func(t *testing.T, r *rig, f *fakeForker) {
		view, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, string(launcher.Stopped), view.State)
		synctest.Wait()
		assert.Empty(t, f.forked)
		close(f.wait)
		r.awake("a", "0.3")
	})
}

func TestPreloaderWaitLeavesHalfOfTheStartTimeout(t *testing.T) {
	waits(t, func(t *testing.T, r *rig, f *fakeForker) {
		f.fork = errors.New("the preloader is loading")
		view, err := r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartExec, view.StartedBy)
		assert.Contains(t, view.Timings, launcherapi.PhaseTime{Name: "preload", DurationMS: 10000})
	}, func(o *Options) { o.Limits.Start = 20 * time.Second })
}

func TestEndingLauncherStartsInstancesThatWait(t *testing.T) {
	waits(t, func(t *testing.T, r *rig, f *fakeForker) {
		again := restart(t, r)
		view, err := again.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartExec, view.StartedBy)
	})
}
