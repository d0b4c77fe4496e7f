package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeForker forks by the fake runner, or says why it does not.
type fakeForker struct {
	runner      *fakeRunner
	never       string
	check, fork error
	forked      []string
	checked     int // calls of Check, which may begin a preloader
}

func (f *fakeForker) Never() string        { return f.never }
func (f *fakeForker) Check([]string) error { f.checked++; return f.check }
func (f *fakeForker) Look([]string) error  { return f.check }

func (f *fakeForker) Fork(c process.Command) (Tree, error) {
	if f.fork != nil {
		return nil, f.fork
	}
	f.forked = append(f.forked, c.Name)
	return f.runner.Start(c)
}

func TestTheStartMethodDecidesHowAnEngineIsStarted(t *testing.T) {
	busy := errors.New("the preloader is busy")
	for name, c := range map[string]struct {
		method    string
		forker    fakeForker
		startedBy string
		reason    string
		code      string
	}{
		"auto forks":                          {method: "auto", startedBy: "fork"},
		"the launcher's own counts":           {startedBy: "fork"},
		"exec never forks":                    {method: "exec", startedBy: "exec"},
		"auto falls back with the reason":     {method: "auto", forker: fakeForker{fork: busy}, startedBy: "exec", reason: "started by exec: the preloader is busy"},
		"fork forks":                          {method: "fork", startedBy: "fork"},
		"fork is refused while none is ready": {method: "fork", forker: fakeForker{check: busy}, code: launcherapi.CodeUnavailable},
		"fork is wrong where none will be":    {method: "fork", forker: fakeForker{never: "no Python"}, code: launcherapi.CodeInvalid},
		"a fork that fails ends in an exec":   {method: "fork", forker: fakeForker{fork: busy}, startedBy: "exec", reason: "started by exec: the preloader is busy"},
	} {
		t.Run(name, func(t *testing.T) {
			forker := &c.forker
			in(t, func(t *testing.T, r *rig) {
				forker.runner = r.runner
				s := spec("0.3")
				s.StartMethod = c.method
				_, err := r.Create(Create{ID: "a", Spec: s})
				if c.code != "" {
					assert.Equal(t, c.code, launcher.CodeOf(err))
					list, _ := r.List()
					assert.Empty(t, list, "nothing is made")
					return
				}
				require.NoError(t, err)
				synctest.Wait()
				view, err := r.AwaitVerb(t.Context(), "a", launcher.Awake)
				require.NoError(t, err)
				assert.Equal(t, c.startedBy, view.StartedBy)
				assert.Equal(t, c.method, view.StartMethod)
				assert.Equal(t, c.reason, view.Reason)
				assert.Equal(t, c.startedBy == "fork", len(forker.forked) == 1)
			}, func(o *Options) { o.StartMethod, o.Forker = launcherapi.StartAuto, forker })
		})
	}
}

func TestALauncherWithoutPreloadersRefusesToFork(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.3")
		s.StartMethod = "fork"
		_, err := r.Create(Create{ID: "a", Spec: s})
		assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
		r.awake("b", "0.3")
		view, err := r.Get("b")
		require.NoError(t, err)
		assert.Equal(t, "exec", view.StartedBy)
		assert.Empty(t, view.Reason)
	})
}

func TestHowAnEngineWasStartedIsKnownAfterARestart(t *testing.T) {
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

func TestADraftThatTouchesNothingBeginsNoPreloader(t *testing.T) {
	for _, busy := range []error{nil, errors.New("no preloader is ready")} {
		forker := &fakeForker{check: busy}
		in(t, func(t *testing.T, r *rig) {
			s := spec("0.3")
			s.StartMethod = launcherapi.StartFork
			_, err := r.Draft(Create{ID: "a", Spec: s, DryRun: true})
			assert.Equal(t, busy != nil, err != nil)
			assert.Zero(t, forker.checked)
			_, _ = r.Draft(Create{ID: "a", Spec: s})
			assert.Equal(t, 1, forker.checked, "else one would never be ready")
		}, func(o *Options) { o.Forker = forker })
	}
}
