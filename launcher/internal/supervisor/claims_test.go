package supervisor

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// toMake is the intent of a swap that makes an instance on GPU g0.
func (r *rig) toMake(swapID, id string, args ...string) Intent {
	r.t.Helper()
	s := spec("0.3")
	s.Args = append(s.Args, args...)
	d, err := r.Draft(Create{ID: id, Spec: s, SwapID: swapID, HoldGate: true})
	require.NoError(r.t, err)
	return Intent{In: id, New: true, Draft: d, Want: &d.Want}
}

func decided(intent Intent) Decide {
	return func(ledger.World, []launcherapi.Instance) (Intent, error) { return intent, nil }
}

func (r *rig) enlist(swapID string, intent Intent) {
	r.t.Helper()
	_, err := r.Enlist(swapID, r.everyGPU(), decided(intent))
	require.NoError(r.t, err)
}

func TestAnIdThatASwapHasClaimedIsNobodyElses(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.enlist("s", r.toMake("s", "x"))
		_, created := r.Create(Create{ID: "x", Spec: spec("0.1")})
		_, enlisted := r.Enlist("other", r.everyGPU(), decided(r.toMake("other", "x")))
		_, considered := r.Consider("other", r.everyGPU(), decided(r.toMake("other", "x")))
		for _, err := range []error{created, enlisted, considered} {
			assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err), "%v", err)
			assert.ErrorContains(t, err, "swap s")
		}
		_, err := r.Start(r.toMake("s", "x").Draft)
		require.NoError(t, err, "its own swap makes it")
		require.NoError(t, r.Remove(t.Context(), "x", "s"))
		_, err = r.Create(Create{ID: "x", Spec: spec("0.1")})
		assert.Error(t, err, "it is the swap's until that is over")
		r.Dismiss("s")
		r.create("x", "0.1")
	})
}

func TestASwapRemovesOnlyWhatItMadeItself(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("x", "0.3")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(r.Remove(t.Context(), "x", "s")))
		assert.Equal(t, "awake", r.state("x"))
	})
}

func TestAVictimIsLeftAloneByEverybodyButItsSwap(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("v", "0.3")
		r.asleep("v")
		r.enlist("s", Intent{Evict: []string{"v"}})
		_, woken := r.Wake("v", Ask{})
		_, in := r.Enlist("other", r.everyGPU(), decided(Intent{In: "v"}))
		_, victim := r.Enlist("other", r.everyGPU(), decided(Intent{Evict: []string{"v"}}))
		_, evicted := r.Evict(t.Context(), "v", "other")
		for _, err := range []error{woken, in, victim, evicted} {
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "%v", err)
		}
		assert.ErrorContains(t, woken, "swap s has claimed instance v and is going to evict it")
		r.awake("w", "0.3")
		r.asleep("w")
		synctest.Wait()
		assert.Equal(t, "sleeping", r.state("v"), "the budget is held by its swap")
		assert.Equal(t, "sleeping", r.state("w"), "and by nobody else's end")
		gone, err := r.Evict(t.Context(), "v", "s")
		require.NoError(t, err)
		assert.True(t, gone)
		r.Dismiss("s")
	}, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
}

func TestAVictimThatIsNotEvictedIsFreeWhenTheSwapIsOver(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("v", "0.3")
		r.asleep("v")
		r.enlist("s", Intent{Evict: []string{"v"}})
		r.Dismiss("s")
		_, err := r.Evict(t.Context(), "v", "s")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "it is no victim any more")
		_, err = r.Wake("v", Ask{})
		assert.NoError(t, err)
	})
}

func TestAnEvictionEndsOnlyASleeper(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig)
		code   string
		listed bool
	}{
		"one that is awake is left alone":  {before: func(r *rig) { _, _ = r.Wake("v", Ask{SwapID: "s"}) }, code: launcherapi.CodeConflict, listed: true},
		"one that was deleted is gone":     {before: func(r *rig) { _, _ = r.Delete(r.t.Context(), "v") }},
		"one that has failed stays listed": {before: func(r *rig) { r.runner.tree("v").exitCode(1) }, listed: true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("v", "0.3")
				r.asleep("v")
				r.enlist("s", Intent{Evict: []string{"v"}})
				c.before(r)
				synctest.Wait()
				evicted, err := r.Evict(t.Context(), "v", "s")
				assert.False(t, evicted)
				assert.Equal(t, c.code, launcher.CodeOf(err), "%v", err)
				_, err = r.Get("v")
				assert.Equal(t, c.listed, err == nil)
				r.Dismiss("s")
			})
		})
	}
}

func TestThePortsOfANewInstanceAreOpenFromTheAdmissionOn(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		intent := r.toMake("s", "b", "--port", "8123")
		r.enlist("s", intent)
		gate := r.gates.gate("b")
		require.NotNil(t, gate)
		assert.Equal(t, "shut", gate.get())
		_, err := r.Create(Create{ID: "c", Spec: r.toMake("", "c", "--port", "8123").Draft.create.Spec})
		assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "swap s has claimed port 8123 for instance b")
		_, err = r.Enlist("other", r.everyGPU(), decided(r.toMake("other", "d", "--port", "8123")))
		assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		view, err := r.Start(intent.Draft)
		require.NoError(t, err)
		assert.Equal(t, 8123, view.Port)
		assert.Same(t, gate, r.gates.gate("b"), "the new one has the port that was claimed for it")
		r.Dismiss("s")
		assert.False(t, gate.isClosed(), "it is the instance's")
	})
}

func TestThePortsOfANewInstanceAreGivenBack(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.enlist("s", r.toMake("s", "b", "--port", "8123"))
		r.Dismiss("s")
		assert.True(t, r.gates.gate("b").isClosed(), "when the swap did not make it")
		_, err := r.Consider("dry", r.everyGPU(), decided(r.toMake("dry", "d", "--port", "8124")))
		require.NoError(t, err)
		assert.True(t, r.gates.gate("d").isClosed(), "when nothing was to be done")
		r.enlist("s", r.toMake("s", "d", "--port", "8124"))
		r.Dismiss("s")
	})
}

func TestASwapToATakenPortIsRefusedAndLeavesNoClaim(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.awake("v", "0.3")
		r.asleep("v")
		synctest.Wait()
		revision := r.opts.Feed.Revision()
		r.gates.taken[9999] = true
		intent := r.toMake("s", "b", "--port", "9999")
		intent.Out, intent.Evict = []string{"a"}, []string{"v"}
		for _, try := range []func(string, []string, Decide) (Intent, error){r.Enlist, r.Consider} {
			_, err := try("s", r.everyGPU(), decided(intent))
			assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		}
		list, _ := r.List()
		for _, i := range list {
			assert.Empty(t, i.SwapID)
		}
		assert.Equal(t, revision, r.opts.Feed.Revision())
		r.awake("b", "0.3") // neither its id nor its room is claimed
		_, err := r.Wake("v", Ask{})
		require.NoError(t, err)
	})
}

func TestAPlaceIsKeptForANewInstanceFromTheAdmissionOn(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.1")
		intent := r.toMake("s", "b")
		r.enlist("s", intent)
		_, err := r.Create(Create{ID: "c", Spec: spec("0.1")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "max_instances")
		_, err = r.Start(intent.Draft)
		require.NoError(t, err)
		require.NoError(t, r.Remove(t.Context(), "b", "s"))
		r.Dismiss("s")
		r.create("c", "0.1")
	}, func(o *Options) { o.Budget.MaxInstances = 2 })
}

func TestTheIdOfASwapOfAnEarlierLifeIsClaimedAgain(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.Reclaim("s", "x", nil)
		_, err := r.Create(Create{ID: "x", Spec: spec("0.1")})
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err))
		r.Dismiss("s")
		r.create("x", "0.1")
	})
}

func TestWhoMadeAnInstanceIsKnownAfterARestart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		_, err := r.Start(r.toMake("s", "x").Draft)
		require.NoError(t, err)
		r.Dismiss("s")
		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Remove(t.Context(), "x", "s"))
	})
}

func TestWhatBecameOfOneThatLeavesIsAwaitedOnlyWhenItWasDeleted(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		assert.ErrorIs(t, r.AwaitDeleted(t.Context(), "a", errBroken), errBroken)
		tree := r.runner.tree("a")
		tree.stuck = true
		deleted := make(chan error, 1)
		go func() {
			_, err := r.Delete(t.Context(), "a")
			deleted <- err
		}()
		synctest.Wait()
		gone := make(chan error, 1)
		go func() { gone <- r.AwaitDeleted(t.Context(), "a", errBroken) }()
		synctest.Wait()
		assert.Empty(t, gone, "its processes still run")
		close(tree.release)
		assert.NoError(t, <-gone)
		assert.NoError(t, <-deleted)
		assert.NoError(t, r.AwaitDeleted(t.Context(), "a", errBroken), "it is gone already")
	})
}

func (g *fakeGate) isClosed() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.closed }

// slowLogs make a log only when told to, and then fail.
type slowLogs struct {
	fakeLogs
	asked, fail chan struct{}
}

func (l slowLogs) Create(string) (*os.File, string, error) {
	close(l.asked)
	<-l.fail
	return nil, "", errors.New("no space left on device")
}

func TestACreateThatIsRefusedAndADeleteOfItDoNotRace(t *testing.T) {
	logs := slowLogs{asked: make(chan struct{}), fail: make(chan struct{})}
	r := newRig(t, func(o *Options) { logs.fakeLogs = o.Logs.(fakeLogs); o.Logs = logs })
	created := make(chan error, 1)
	go func() {
		_, err := r.Create(Create{ID: "a", Spec: spec("0.3")})
		created <- err
	}()
	<-logs.asked
	var deleted [4]chan error
	for n := range deleted {
		deleted[n] = make(chan error, 1)
		go func() {
			_, err := r.Delete(t.Context(), "a")
			deleted[n] <- err
		}()
	}
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.instances["a"].deleting
	}, time.Minute, time.Millisecond)
	close(logs.fail)
	assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(<-created))
	for _, d := range deleted {
		if err := <-d; err != nil {
			assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		}
	}
	assert.True(t, r.gates.gate("a").isClosed())
}
