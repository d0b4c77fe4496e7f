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
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/machine/devmem"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// toMake is the request of a swap that creates an instance on GPU g0.
func (r *rig) toMake(swapID, id string, args ...string) ClaimRequest {
	r.t.Helper()
	s := spec("0.3")
	s.Args = append(s.Args, args...)
	d, err := r.Draft(launcher.CreateRequest{ID: id, Spec: s})
	require.NoError(r.t, err)
	room := d.Want
	room.SwapID = swapID
	return ClaimRequest{Plan: launcher.Plan{SwapID: swapID, In: id, Room: &room, Level: 1}, Draft: d}
}

// toDo is the request of a swap with a plan that the test has decided.
func toDo(plan launcher.Plan) ClaimRequest {
	plan.Level = 1
	return ClaimRequest{Plan: plan}
}

// tryClaim claims what a plan of the test needs.
func (r *rig) tryClaim(ask ClaimRequest) (*Claim, error) {
	ask.Plan.GPUs = r.everyGPU()
	return r.claim(ask, func(ledger.World) (launcher.Plan, error) { return ask.Plan, nil })
}

func (r *rig) claims(ask ClaimRequest) *Claim {
	r.t.Helper()
	c, err := r.tryClaim(ask)
	require.NoError(r.t, err)
	return c
}

func dry(ask ClaimRequest) ClaimRequest { ask.DryRun = true; return ask }

func TestClaimedIDIsTakenForOthers(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.claims(r.toMake("s", "x"))
		_, created := r.Create(launcher.CreateRequest{ID: "x", Spec: spec("0.1")})
		_, claimed := r.tryClaim(r.toMake("other", "x"))
		_, considered := r.tryClaim(dry(r.toMake("other", "x")))
		for _, err := range []error{created, claimed, considered} {
			assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err), "%v", err)
			assert.ErrorContains(t, err, "swap s")
		}
		require.NoError(t, c.Start(t.Context()), "its own swap makes it")
		require.NoError(t, c.SendBack(t.Context()))
		_, err := r.Create(launcher.CreateRequest{ID: "x", Spec: spec("0.1")})
		assert.Error(t, err, "it is the swap's until that is over")
		c.Release()
		r.create("x", "0.1")
	})
}

func TestSwapRemovesOnlyItsOwnInstance(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("x", "0.3")
		c := r.Reclaim(r.toMake("s", "x").Plan)
		require.NoError(t, c.SendBack(t.Context()))
		c.Open(false)
		in, _ := c.Show()
		assert.Nil(t, in)
		c.Release()
		assert.Equal(t, "awake", r.state("x"))
	})
}

func TestClaimIgnoresALaterInstanceOfTheSameID(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.awake("v", "0.3")
		r.asleep("v")
		c := r.claims(toDo(launcher.Plan{SwapID: "s", Out: []string{"a"}, Evict: []string{"v"}, Stop: true}))
		for _, id := range []string{"a", "v"} {
			_, err := r.Delete(t.Context(), id)
			require.NoError(t, err)
			r.awake(id, "0.3")
		}
		_, err := c.Drain(t.Context(), "a")
		require.ErrorIs(t, err, ErrDeleted)
		require.ErrorIs(t, c.Sleep(t.Context(), "a"), ErrDeleted)
		evicted, err := c.Evict(t.Context(), "v")
		require.NoError(t, err)
		assert.False(t, evicted)
		require.NoError(t, c.Stop(t.Context(), "a"))
		require.ErrorIs(t, c.BringBack(t.Context(), "a"), ErrDeleted)
		_, out := c.Show()
		assert.Empty(t, out)
		c.Release()
		assert.Equal(t, []string{"awake", "awake"}, []string{r.state("a"), r.state("v")})
		assert.Empty(t, r.engine.noted()[1:], "neither was told anything")
	})
}

func TestVictimIsMovedOnlyByItsSwap(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("v", "0.3")
		r.asleep("v")
		c := r.claims(toDo(launcher.Plan{SwapID: "s", Evict: []string{"v"}, Out: []string{}, Room: &launcher.Room{}}))
		_, woken := r.Wake("v", launcher.VerbRequest{})
		_, in := r.tryClaim(toDo(launcher.Plan{SwapID: "other", In: "v", Room: &launcher.Room{ID: "v"}}))
		_, victim := r.tryClaim(toDo(launcher.Plan{SwapID: "other", Evict: []string{"v"}}))
		_, evicted := r.Reclaim(launcher.Plan{SwapID: "other", Evict: []string{"v"}}).Evict(t.Context(), "v")
		for _, err := range []error{woken, in, victim} {
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "%v", err)
		}
		require.NoError(t, evicted, "it is none of another swap's")
		assert.ErrorContains(t, woken, "swap s is about to evict instance v")
		r.awake("w", "0.3")
		r.asleep("w")
		synctest.Wait()
		assert.Equal(t, "sleeping", r.state("v"), "the budget is held by its swap")
		assert.Equal(t, "sleeping", r.state("w"), "and by nobody else's end")
		gone, err := c.Evict(t.Context(), "v")
		require.NoError(t, err)
		assert.True(t, gone)
		c.Release()
	}, func(o *Options) { o.Budget.MaxSleepersPerGPU = 1 })
}

// evicting claims the victim v for a swap that does nothing else.
func (r *rig) evicting() *Claim {
	r.t.Helper()
	r.awake("v", "0.3")
	r.asleep("v")
	return r.claims(toDo(launcher.Plan{SwapID: "s", Evict: []string{"v"}, Room: &launcher.Room{}}))
}

func TestSparedVictimIsFreeAfterTheSwap(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.evicting()
		c.Release()
		_, err := c.Evict(t.Context(), "v")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "it is no victim any more")
		_, err = r.Wake("v", launcher.VerbRequest{})
		assert.NoError(t, err)
	})
}

func TestSlowlyStoppingVictimCountsAsEvicted(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.evicting()
		tree := r.runner.tree("v")
		tree.stuck = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		evicted, err := c.Evict(ctx, "v")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, evicted)
		close(tree.release)
		_, err = c.Evict(t.Context(), "v")
		require.NoError(t, err)
		_, err = r.Get("v")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "the stop goes on when nobody waits for it")
		c.Release()
	})
}

func TestEvictStopsOnlyASleeper(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig)
		code   string
		listed bool
	}{
		"an awake instance is left alone": {before: func(r *rig) {
			r.mu.Lock()
			defer r.mu.Unlock()
			require.NoError(r.t, r.wake(r.instances["v"], "s", launcher.VerbRequest{}, devmem.Reading{}))
		}, code: launcherapi.CodeConflict, listed: true},
		"a deleted instance is gone":     {before: func(r *rig) { _, _ = r.Delete(r.t.Context(), "v") }},
		"a failed instance stays listed": {before: func(r *rig) { r.runner.tree("v").exitCode(1) }, listed: true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				claim := r.evicting()
				c.before(r)
				synctest.Wait()
				evicted, err := claim.Evict(t.Context(), "v")
				assert.False(t, evicted)
				assert.Equal(t, c.code, launcher.CodeOf(err), "%v", err)
				_, err = r.Get("v")
				assert.Equal(t, c.listed, err == nil)
				claim.Release()
			})
		})
	}
}

func TestPortsOfANewInstanceOpenAtAdmission(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.claims(r.toMake("s", "b", "--port", "8123"))
		gate := r.gates.gate("b")
		require.NotNil(t, gate)
		assert.Equal(t, "shut", gate.get())
		_, err := r.Create(launcher.CreateRequest{ID: "c", Spec: r.toMake("", "c", "--port", "8123").Draft.create.Spec})
		assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "swap s has claimed port 8123 for instance b")
		_, err = r.tryClaim(r.toMake("other", "d", "--port", "8123"))
		assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		require.NoError(t, c.Start(t.Context()))
		view, err := r.Get("b")
		require.NoError(t, err)
		assert.Equal(t, 8123, view.Port)
		assert.Same(t, gate, r.gates.gate("b"), "the new one has the port that was claimed for it")
		c.Release()
		assert.False(t, gate.isClosed(), "it is the instance's")
	})
}

func TestPortsOfAnUncreatedInstanceAreClosed(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.claims(r.toMake("s", "b", "--port", "8123")).Release()
		assert.True(t, r.gates.gate("b").isClosed(), "when the swap did not make it")
		r.claims(dry(r.toMake("dry", "d", "--port", "8124")))
		assert.True(t, r.gates.gate("d").isClosed(), "when nothing was to be done")
		r.claims(r.toMake("s", "d", "--port", "8124")).Release()
	})
}

func TestSwapToATakenPortLeavesNoClaim(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.awake("v", "0.3")
		r.asleep("v")
		synctest.Wait()
		revision := r.opts.Feed.Revision()
		r.gates.taken[9999] = true
		ask := r.toMake("s", "b", "--port", "9999")
		ask.Plan.Out, ask.Plan.Evict = []string{"a"}, []string{"v"}
		for _, try := range []ClaimRequest{ask, dry(ask)} {
			_, err := r.tryClaim(try)
			assert.Equal(t, launcherapi.CodePortTaken, launcher.CodeOf(err))
		}
		list, _ := r.List()
		for _, i := range list {
			assert.Empty(t, i.SwapID)
		}
		assert.Equal(t, revision, r.opts.Feed.Revision())
		r.awake("b", "0.3") // the swap has claimed neither its id nor its room
		_, err := r.Wake("v", launcher.VerbRequest{})
		require.NoError(t, err)
	})
}

func TestNewInstanceHasItsPlaceFromAdmission(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.1")
		claim := r.claims(r.toMake("s", "b"))
		_, err := r.Create(launcher.CreateRequest{ID: "c", Spec: spec("0.1")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "max_instances")
		require.NoError(t, claim.Start(t.Context()))
		require.NoError(t, claim.SendBack(t.Context()))
		claim.Release()
		r.create("c", "0.1")
	}, func(o *Options) { o.Budget.MaxInstances = 2 })
}

// refusals counts refusals, by code.
type refusals struct {
	supervisortest.Nobody
	of map[string]int
}

func (r refusals) Refused(code, _ string) { r.of[code]++ }

func TestWaitingSwapIsNotCountedAsRefused(t *testing.T) {
	seen := refusals{of: map[string]int{}}
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.1")
		swap := r.toMake("s", "b")
		swap.GPUs, swap.Plan.GPUs = []string{"g0"}, []string{"g0"}
		_, err := r.Claim(swap)
		_, soon := errors.AsType[*ledger.MinResidencyError](err)
		require.True(t, soon, "%v", err)
		assert.Empty(t, seen.of)
		_, err = r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.1")})
		require.Error(t, err)
		assert.Equal(t, map[string]int{launcherapi.CodeExists: 1}, seen.of)
	}, func(o *Options) {
		o.Observer = seen
		o.Budget.MinResidency = launcherapi.Duration(time.Hour)
	})
}

func TestSwapWithNothingToDoOwnsNothing(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.1")
		c, err := r.Claim(ClaimRequest{Plan: launcher.Plan{SwapID: "s", In: "a", GPUs: []string{"g0"}}, GPUs: []string{"g0"}})
		require.NoError(t, err)
		assert.True(t, c.Plan().NothingToDo())
		assert.Empty(t, r.Supervisor.claims)
		in, out := c.Show()
		assert.Equal(t, "a", in.InstanceID)
		assert.Empty(t, out)
		_, err = r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err, "it is nobody's")
		c.Release()
	})
}

func TestRecoveredSwapClaimsItsNewIDAgain(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.Reclaim(r.toMake("s", "x").Plan)
		_, err := r.Create(launcher.CreateRequest{ID: "x", Spec: spec("0.1")})
		assert.Equal(t, launcherapi.CodeExists, launcher.CodeOf(err))
		c.Release()
		r.create("x", "0.1")
	})
}

func TestRecoveredSwapClaimsMarkedAndUnrecordedInstances(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"its", "lost", "free", "others"} {
			r.awake(id, "0.1")
		}
		r.mu.Lock()
		r.instances["its"].swapID, r.instances["lost"].foundUnrecorded, r.instances["others"].swapID = "s", true, "other"
		r.mu.Unlock()
		c := r.Reclaim(launcher.Plan{SwapID: "s", Out: []string{"its", "lost", "free", "others"}})
		_, out := c.Show()
		require.Len(t, out, 2)
		assert.Equal(t, []string{"its", "lost"}, []string{out[0].InstanceID, out[1].InstanceID})
		_, err := r.Sleep("lost", launcher.VerbRequest{})
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "it is the swap's")
		c.Release()
		_, err = r.Sleep("lost", launcher.VerbRequest{})
		require.NoError(t, err)
		others, err := r.Get("others")
		require.NoError(t, err)
		assert.Empty(t, others.SwapID, "no claim was announced")
		r.mu.Lock()
		assert.Equal(t, "other", r.instances["others"].swapID)
		r.mu.Unlock()
	})
}

func TestEventsShowClaimAndReleaseOfASwap(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("out", "0.4")
		ask := r.toMake("s", "in")
		ask.Plan.Out = []string{"out"}
		told := func() map[string]string {
			t.Helper()
			synctest.Wait()
			events, err := r.opts.Feed.Next(t.Context(), 0)
			require.NoError(t, err)
			last, listed := map[string]string{}, map[string]string{}
			for _, e := range events {
				last[e.Object.InstanceID] = e.Object.State + " " + e.Object.SwapID
			}
			all, _ := r.List()
			for _, i := range all {
				listed[i.InstanceID] = i.State + " " + i.SwapID
			}
			assert.Equal(t, listed, last)
			return last
		}
		c := r.claims(ask)
		assert.Equal(t, map[string]string{"out": "awake "}, told(), "it may be refused yet")
		c.Publish()
		assert.Equal(t, map[string]string{"out": "awake s"}, told())
		_, err := c.Drain(t.Context(), "out")
		require.NoError(t, err)
		require.NoError(t, c.Sleep(t.Context(), "out"))
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.Healthy(t.Context()))
		c.Open(false)
		assert.Equal(t, map[string]string{"out": "sleeping s", "in": "awake s"}, told())
		c.Release()
		assert.Equal(t, map[string]string{"out": "sleeping ", "in": "awake "}, told())
	})
}

func TestCreatorOfAnInstanceIsKnownAfterRestart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.claims(r.toMake("s", "x"))
		require.NoError(t, c.Start(t.Context()))
		c.BreakOff()
		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Reclaim(c.Plan()).SendBack(t.Context()))
		_, err := fresh.Get("x")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	})
}

func TestUnrecordedInstanceStaysItsSwapsAfterEachRestart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		c := r.claims(r.toMake("s", "x"))
		require.NoError(t, c.Start(t.Context()))
		c.BreakOff()
		r.mu.Lock()
		i := r.instances["x"]
		i.facts.MadeBy, i.foundUnrecorded = "", true // as after a restart without the record, which ended before the swap was taken up
		r.write(i)
		r.mu.Unlock()
		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Reclaim(c.Plan()).SendBack(t.Context()))
		_, err := fresh.Get("x")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	})
}

func TestOrDeletedWaitsOnlyForADeletedInstance(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		c := r.claims(toDo(launcher.Plan{SwapID: "s", Out: []string{"a"}}))
		r.engine.sleep = broken
		_, err := c.Drain(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, launcherapi.CodeEngineFailed, launcher.CodeOf(c.Sleep(t.Context(), "a")))
		tree := r.runner.tree("a")
		tree.stuck = true
		deleted := make(chan error, 1)
		go func() {
			_, err := r.Delete(t.Context(), "a")
			deleted <- err
		}()
		synctest.Wait()
		gone := make(chan error, 1)
		go func() { gone <- c.Sleep(t.Context(), "a") }()
		synctest.Wait()
		assert.Empty(t, gone, "its processes still run")
		close(tree.release)
		assert.ErrorIs(t, <-gone, ErrDeleted)
		assert.NoError(t, <-deleted)
		assert.ErrorIs(t, c.Sleep(t.Context(), "a"), ErrDeleted, "it is gone already")
		c.Release()
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

func TestRefusedCreateAndItsDeleteDoNotRace(t *testing.T) {
	logs := slowLogs{asked: make(chan struct{}), fail: make(chan struct{})}
	r := newRig(t, func(o *Options) { logs.fakeLogs = o.Logs.(fakeLogs); o.Logs = logs })
	created := make(chan error, 1)
	go func() {
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.3")})
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
	}, patience.Wait(), time.Millisecond)
	close(logs.fail)
	assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(<-created))
	for _, d := range deleted {
		if err := <-d; err != nil {
			assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		}
	}
	assert.True(t, r.gates.gate("a").isClosed())
}
