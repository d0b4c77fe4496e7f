package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// failed makes an instance that has failed.
func (r *rig) failed(id string) {
	r.t.Helper()
	r.awake(id, "0.3")
	r.runner.tree(id).exitCode(1)
	synctest.Wait()
	view, err := r.Get(id)
	require.NoError(r.t, err)
	require.Equal(r.t, "failed", view.State)
}

func TestNewInstanceReplacesOneThatHasFailed(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.failed("a")
		revision := r.opts.Feed.Revision()
		r.awake("a", "0.5")
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Empty(t, view.Reason)
		assert.Nil(t, view.ExitCode)
		events, err := r.opts.Feed.Next(t.Context(), revision)
		require.NoError(t, err)
		var kinds []launcherapi.EventType
		for _, e := range events {
			kinds = append(kinds, e.Type)
		}
		assert.Equal(t, []launcherapi.EventType{launcherapi.EventDeleted, launcherapi.EventCreated}, kinds[:2])
		assert.Len(t, remembered(t, r).Instances, 1)
		r.awaitGone("a")
	})
}

// awaitGone deletes an instance, of which nothing is left then.
func (r *rig) awaitGone(id string) {
	r.t.Helper()
	_, err := r.Delete(r.t.Context(), id)
	require.NoError(r.t, err)
	assert.Empty(r.t, remembered(r.t, r).Instances)
}

func TestRefusedNewInstanceLeavesTheFailedOne(t *testing.T) {
	for name, refuse := range map[string]func(r *rig) error{
		"no log can be made": func(r *rig) error {
			r.opts.Logs = fakeLogs{fail: errors.New("disk full")}
			_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.3")})
			return err
		},
		"it does not fit": func(r *rig) error {
			r.gpus.hold("g0", 1, 70)
			_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.9")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.failed("a")
				require.Error(t, refuse(r))
				view, err := r.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "failed", view.State)
				assert.Len(t, remembered(t, r).Instances, 1)
			})
		})
	}
}

func TestInstanceThatLivesOrIsClaimedIsNotReplaced(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.3")})
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err))
		c := r.claims(toDo(launcher.Plan{SwapID: "s", Out: []string{"a"}}))
		defer c.Release()
		r.runner.tree("a").exitCode(1)
		synctest.Wait()
		_, err = r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.3")})
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err), "the swap tells what became of it")
	})
}

func TestEndedInstanceIsDraftedAgainUnlessItsSecretsAreMissing(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.failed("a")
		d, err := r.DraftAgain("a", false)
		require.NoError(t, err)
		assert.Equal(t, "a", d.ID)
		s := spec("0.3")
		s.EnvVars = map[string]launcherapi.EnvValue{"HF_TOKEN": {Value: "hf_secret"}}
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: s})
		require.NoError(t, err)
		synctest.Wait()
		r.runner.tree("b").exitCode(1)
		synctest.Wait()
		_, err = r.DraftAgain("b", false)
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "in.id")
	})
}

func TestUndoneRestartLeavesTheInstanceListed(t *testing.T) {
	for name, failed := range map[string]bool{"it starts": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.failed("a")
				c := r.claims(r.toMake("s", "a"))
				require.NoError(t, c.Start(t.Context()))
				if failed {
					r.runner.tree("a").exitCode(3)
					synctest.Wait()
				}
				require.NoError(t, c.SendBack(t.Context()))
				c.Release()
				view, err := r.Get("a")
				require.NoError(t, err)
				assert.True(t, launcher.State(view.State).Ended(), view.State)
				assert.NotEmpty(t, view.Reason)
				r.awake("a", "0.3") // it can be started again
			})
		})
	}
}

func TestDeleteDuringARefusedReplacementForgetsBoth(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.failed("a")
		r.under(func() {
			before := r.instances["a"]
			i := &instance{facts: before.facts, replaces: before, deleting: true, changed: make(chan struct{})}
			r.instances["a"] = i
			r.mu.Unlock()
			r.undoCreate(i)
			r.mu.Lock()
		})
		_, err := r.Get("a")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Empty(t, remembered(t, r).Instances)
	})
}

func TestReclaimLeavesAnEndedInstanceThatWasOnceFound(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.failed("a")
		r.under(func() { r.instances["a"].foundUnrecorded = true })
		c := r.Reclaim(r.toMake("s", "a").Plan)
		require.NoError(t, c.SendBack(t.Context()))
		c.Release()
		_, err := r.Get("a")
		require.NoError(t, err)
	})
}

func TestUndoneWakeOfARestartedInstancePutsItToSleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.failed("a")
		c := r.claims(r.toMake("s", "a"))
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.Healthy(t.Context()))
		c.Open(false)
		c.Release()
		r.asleep("a")
		c = r.claims(toDo(launcher.Plan{SwapID: "s2", In: "a", Room: &launcher.Room{ID: "a", SwapID: "s2"}}))
		require.NoError(t, c.Wake(t.Context()))
		require.NoError(t, c.SendBack(t.Context()))
		c.Release()
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "sleeping", view.State)
	})
}
