package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

var errNoFiles = errors.New("too many open files")

// refusing makes every attempt to end a tree fail, until heal is called.
func (t *fakeTree) refusing() (attempts *atomic.Int32, heal func()) {
	attempts, healed := &atomic.Int32{}, &atomic.Bool{}
	t.refuse = func() error {
		attempts.Add(1)
		if healed.Load() {
			return nil
		}
		return fmt.Errorf("cannot kill %d: %w", t.pid, errNoFiles)
	}
	return attempts, func() { healed.Store(true) }
}

func TestInstanceIsStoppedOnlyWhenItsTreeIsGone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.gpus.hold("g0", r.runner.tree("a").pid, 70)
		_, heal := r.runner.tree("a").refusing()
		type answer struct {
			view launcherapi.Instance
			err  error
		}
		answers := make(chan answer, 1)
		go func() {
			view, err := r.Delete(t.Context(), "a")
			answers <- answer{view, err}
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, answers, "a delete says nothing before the end")
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "stopping", view.State)
		assert.Contains(t, view.Reason, "too many open files")
		assert.Equal(t, r.gates.gate("a").port, view.Port)
		assert.False(t, r.gates.gate("a").closed, "its port stays")
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err), "its memory stays charged")

		heal()
		r.gpus.hold("g0", r.runner.tree("a").pid, 0)
		ended := <-answers
		require.NoError(t, ended.err)
		assert.Equal(t, "stopped", ended.view.State)
		assert.Empty(t, ended.view.Reason)
		assert.True(t, r.gates.gate("a").closed)
	})
}

func TestWatchersGetTheReasonOfAFailedStop(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		_, heal := r.runner.tree("a").refusing()
		r.under(func() { require.NoError(t, r.stop(r.instances["a"])) })
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []string{"starting", "awake", "stopping", "stopping"}, states(r), "once, as it is always the same")
		heal()
		time.Sleep(longestRetry)
		synctest.Wait()
		assert.Equal(t, []string{"starting", "awake", "stopping", "stopping", "stopping", "stopped", "stopped"}, states(r), "and when nothing stands in the way any more")
	})
}

func TestFailedStopIsRetriedWithBackOff(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		attempts, heal := r.runner.tree("a").refusing()
		r.under(func() { require.NoError(t, r.stop(r.instances["a"])) })
		time.Sleep(time.Second)
		synctest.Wait()
		early := attempts.Load()
		assert.GreaterOrEqual(t, early, int32(3), "soon at first")
		time.Sleep(time.Hour)
		synctest.Wait()
		late := attempts.Load()
		assert.LessOrEqual(t, late-early, int32(time.Hour/longestRetry)+10)
		time.Sleep(longestRetry)
		synctest.Wait()
		assert.Greater(t, attempts.Load(), late, "and for ever")
		heal()
		time.Sleep(longestRetry)
		synctest.Wait()
		_, err := r.Get("a")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	})
}

func TestWaitForAFailingStopTimesOut(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		_, heal := r.runner.tree("a").refusing()
		view, err := r.Delete(t.Context(), "a")
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "instance a is still stopping")
		assert.ErrorContains(t, err, "too many open files")
		assert.Equal(t, "stopping", view.State)
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(r.AwaitRest(t.Context(), "a")))
		heal()
		_, err = r.Delete(t.Context(), "a")
		assert.NoError(t, err, "the launcher has gone on trying")
	})
}

func TestUnkillableProcessIsReported(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.runner.tree("a").stuck = true
		_, err := r.Delete(t.Context(), "a")
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err))
		assert.Equal(t, "stopping", r.state("a"))
		close(r.runner.tree("a").release)
		_, err = r.Delete(t.Context(), "a")
		assert.NoError(t, err)
	})
}

func TestLeftoversOfACrashStayChargedUntilGone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		_, heal := r.runner.tree("a").refusing()
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		time.Sleep(time.Second)
		synctest.Wait()
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "failed", view.State)
		assert.Contains(t, view.Reason, "the cause in words", "why it failed is still said")
		assert.Contains(t, view.Reason, "too many open files")
		assert.NotZero(t, view.Port)
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		heal()
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		view, err = r.Get("a")
		require.NoError(t, err)
		assert.NotContains(t, view.Reason, "too many open files")
		assert.Zero(t, view.Port, "it has given its port back")
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		assert.NoError(t, err)
	})
}

func TestFailingStopDoesNotDelayTheLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.awake("a", "0.9")
		_, _ = r.runner.tree("a").refusing()
		began := time.Now()
		assert.ErrorContains(t, r.Close(context.Background(), true), "too many open files")
		assert.Less(t, time.Since(began), time.Minute)
	})
}

func TestDeleteAnswersWhyTheInstanceFailed(t *testing.T) {
	for name, wait := range map[string]bool{"while what it left is cleared": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				r.runner.tree("a").stuck = true
				r.runner.tree("a").signalled(syscall.SIGSEGV)
				synctest.Wait()
				require.Equal(t, "failed", r.state("a"))
				if wait {
					close(r.runner.tree("a").release)
					synctest.Wait()
				} else {
					time.AfterFunc(time.Second, func() { close(r.runner.tree("a").release) })
				}
				view, err := r.Delete(t.Context(), "a")
				require.NoError(t, err)
				events, err := r.opts.Feed.Next(t.Context(), 0)
				require.NoError(t, err)
				last := events[len(events)-1]
				require.Equal(t, launcherapi.EventDeleted, last.Type)
				for _, told := range []launcherapi.Instance{view, last.Object} {
					assert.Equal(t, "failed", told.State)
					assert.Equal(t, "the_cause", told.Cause)
					assert.Contains(t, told.Reason, "the cause in words")
					assert.Equal(t, -11, *told.ExitCode)
					assert.Equal(t, []string{"the last line"}, told.LastLogLines)
				}
			})
		})
	}
}

func TestReleasedFailedInstanceShowsNoPort(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		synctest.Wait()
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Zero(t, view.Port)
		events, err := r.opts.Feed.Next(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, []launcherapi.EventType{"CREATED", "UPDATED", "STOPPED", "UPDATED"}, types(r))
		assert.Zero(t, events[3].Object.Port)
		assert.NotZero(t, events[2].Object.Port)
		again, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, events[3].Object.Revision, again.Revision)
	})
}

func TestWatchersAndListReportMissingMemoryTogether(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.gpus.hold("g0", r.runner.tree("a").pid, 2)
		r.runner.tree("a").signalled(syscall.SIGSEGV)
		synctest.Wait()
		require.NoError(t, r.AwaitRest(t.Context(), "a"))
		events, err := r.opts.Feed.Next(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []launcherapi.EventType{"CREATED", "UPDATED", "STOPPED", "UPDATED", "UPDATED"}, types(r))
		assert.NotContains(t, events[2].Object.Reason, "had not come back")
		assert.Contains(t, events[3].Object.Reason, "had not come back")
		assert.NotZero(t, events[3].Object.Port, "its port is given back after that")
		assert.Equal(t, events[3].Object.Reason, events[4].Object.Reason)
	})
}

func TestEndingSleeperCountsWithItsResidueAfterRestart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.gpus.hold("g0", r.runner.tree("a").pid, 2)
		r.asleep("a")
		r.runner.tree("a").stuck = true
		r.under(func() { require.NoError(t, r.stop(r.instances["a"])) })
		synctest.Wait()
		require.Equal(t, "stopping", r.state("a"))

		fresh := restart(t, r)
		defer fresh.Close(context.Background(), false)
		defer close(r.runner.tree("a").release)
		require.Equal(t, "stopping", fresh.state("a"))
		_, err := fresh.Create(launcher.CreateRequest{ID: "b", Spec: spec("0.5")})
		assert.NoError(t, err)
	})
}
