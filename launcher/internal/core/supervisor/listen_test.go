package supervisor

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
)

// noSocket is what a call says to a socket whose file was removed.
func noSocket(context.Context) error {
	return &net.OpError{Op: "dial", Net: "unix", Err: syscall.ENOENT}
}

// noSocketUntil is noSocket until the engine listens again.
func noSocketUntil(listens *atomic.Bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if listens.Load() {
			return nil
		}
		return noSocket(ctx)
	}
}

// nextLifeUnreachable is a nextLife whose engines refuse connections until they listen.
func nextLifeUnreachable(t *testing.T, old *rig, change ...func(*Options)) (fresh *rig, listens *atomic.Bool) {
	t.Helper()
	fresh, hard := nextLife(t, old, append(change, withHangs)...)
	close(hard.ending)
	listens = new(atomic.Bool)
	fresh.engine.ready, fresh.engine.sleeps = noSocketUntil(listens), noSocketUntil(listens)
	return fresh, listens
}

func TestEngineThatRefusesConnectionsIsEnded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.ready = noSocket
		began := time.Now()
		r.CheckListens("a")
		r.CheckListens("a") // one check at a time
		time.Sleep(listenPoll * 3 / 2)
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Equal(t, "its process runs, and nothing listens at its port 40001; the launcher ends it if nothing listens there for 1m0s", view.Reason)
		<-r.runner.tree("a").Done()
		assert.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		view, err = r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "failed", view.State)
		assert.Equal(t, "not_listening", view.Cause)
		assert.Equal(t, "its process ran, and nothing listened at its port 40001 for 1m0s; the launcher has ended it, and a swap to it starts it again", view.Reason)
		assert.Equal(t, []string{"the last line"}, view.LastLogLines)
	}, withHangs)
}

func TestRefusingEngineFirstEndsItsAnswersInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		inFlight  int
		quiet     time.Duration
		meanwhile func(g *fakeGate) // about 20 s before the drain's time is over
		lasted    time.Duration
	}{
		"the answers go on":              {inFlight: 3, lasted: 90 * time.Second},
		"the answers end":                {inFlight: 3, meanwhile: func(g *fakeGate) { g.setInFlight(0) }, lasted: 71 * time.Second},
		"nothing comes back any more":    {inFlight: 3, meanwhile: func(g *fakeGate) { g.setQuiet(time.Minute) }, lasted: 71 * time.Second},
		"nothing came back for a minute": {inFlight: 3, quiet: time.Minute, lasted: time.Minute},
		"no answer is in flight":         {lasted: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				r.engine.ready = noSocket
				gate := r.gates.gate("a")
				gate.setInFlight(c.inFlight)
				gate.setQuiet(c.quiet)
				began := time.Now()
				r.CheckListens("a")
				time.Sleep(70*time.Second + listenPoll/2)
				if c.lasted > time.Minute {
					view, err := r.Get("a")
					require.NoError(t, err)
					assert.Equal(t, "awake", view.State)
					assert.Equal(t, "its process runs, and nothing listens at its port 40001; the launcher ends it when the answers in flight have ended, after 30s at the latest", view.Reason)
				}
				if c.meanwhile != nil {
					c.meanwhile(gate)
				}
				time.Sleep(time.Minute)
				view, err := r.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "failed", view.State)
				assert.Equal(t, began.Add(c.lasted).UTC(), view.StateSince)
				assert.Contains(t, view.Reason, "nothing listened at its port 40001 for "+c.lasted.String())
			}, withHangs)
		})
	}
}

func TestEngineThatListensAgainDuringItsAnswersIsLeftAlone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		var listens atomic.Bool
		r.engine.ready = noSocketUntil(&listens)
		r.gates.gate("a").setInFlight(3)
		r.CheckListens("a")
		time.Sleep(75 * time.Second)
		listens.Store(true)
		time.Sleep(time.Hour)
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "awake", view.State)
		assert.Empty(t, view.Reason)
	}, withHangs)
}

func TestEngineThatListensAgainIsLeftAlone(t *testing.T) {
	var listens atomic.Bool
	for name, c := range map[string]struct {
		ready     func(context.Context) error
		meanwhile func(r *rig)
	}{
		"it listens":             {},
		"it answers with errors": {ready: broken},
		"it hangs":               {ready: never},
		"it listens again":       {ready: noSocketUntil(&listens), meanwhile: func(*rig) { listens.Store(true) }},
		"it has slept and woken": {ready: noSocket, meanwhile: func(r *rig) { r.asleep("a"); r.wakes("a") }},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				r.engine.ready = c.ready
				r.CheckListens("a")
				time.Sleep(listenPoll * 3 / 2)
				if c.meanwhile != nil {
					c.meanwhile(r)
				}
				time.Sleep(time.Hour)
				view, err := r.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "awake", view.State)
				assert.Empty(t, view.Reason)
				r.under(func() { assert.False(t, r.instances["a"].listenChecked) })
			}, withHangs)
		})
	}
}

func TestEngineThatDiesWhileItRefusesHasItsOwnReason(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.ready = noSocket
		r.CheckListens("a")
		time.Sleep(listenPoll * 3 / 2)
		r.runner.tree("a").exitCode(1)
		time.Sleep(time.Hour)
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "the_cause", view.Cause)
		assert.NotContains(t, view.Reason, "listens")
	}, withHangs)
}

func TestRecoveredEngineThatRefusesConnectionsIsNotAwake(t *testing.T) {
	for name, c := range map[string]struct {
		back  bool
		state string
		cause string
	}{
		"for good":         {state: "failed", cause: "not_listening"},
		"for some seconds": {back: true, state: "awake"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				memory := remembered(t, r)
				fresh, listens := nextLifeUnreachable(t, r)
				defer fresh.Close(t.Context(), false)
				require.NoError(t, fresh.Recover(t.Context(), memory))
				view, err := fresh.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "starting", view.State)
				assert.Contains(t, view.Reason, "its process runs, and nothing listens at its port 40001")
				assert.Equal(t, "shut", fresh.gates.gate("a").get())
				time.Sleep(10 * time.Second)
				listens.Store(c.back)
				time.Sleep(time.Minute)
				view, err = fresh.Get("a")
				require.NoError(t, err)
				assert.Equal(t, c.state, view.State)
				assert.Equal(t, c.cause, view.Cause)
				if c.back {
					assert.Empty(t, view.Reason)
				} else {
					assert.Contains(t, view.Reason, "nothing listened at its port 40001 for 1m0s")
				}
			})
		})
	}
}

// phases records the longest time of each phase.
type phases struct {
	supervisortest.Nobody
	of map[string]time.Duration
}

func (p phases) Phase(name string, took time.Duration) { p.of[name] = max(p.of[name], took) }

func TestTimeAwakeIsNoTimeOfStarting(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		time.Sleep(100 * time.Hour)
		memory := remembered(t, r)
		seen := phases{of: map[string]time.Duration{}}
		fresh, listens := nextLifeUnreachable(t, r, func(o *Options) { o.Observer = seen })
		defer fresh.Close(t.Context(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, time.Now().UTC(), view.StateSince)
		time.Sleep(10 * time.Second)
		listens.Store(true)
		time.Sleep(time.Minute)
		assert.Equal(t, "awake", fresh.state("a"))
		fresh.under(func() {
			assert.LessOrEqual(t, seen.of["starting"], time.Minute)
			assert.Positive(t, seen.of["starting"])
		})
	})
}

// The launcher is restarted while it waits for an engine out of reach.
func TestRecoveredEngineThatRefusesIsEndedByTheNextLauncher(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		time.Sleep(time.Hour)
		memory := remembered(t, r)
		second, _ := nextLife(t, r, withHangs)
		second.engine.ready, second.engine.sleeps = noSocket, noSocket
		require.NoError(t, second.Recover(t.Context(), memory))
		time.Sleep(10 * time.Second)
		memory = remembered(t, second)
		require.Equal(t, launcher.Starting, memory.Instances[0].State)
		third, hard := nextLife(t, second, withHangs)
		defer third.Close(t.Context(), false)
		close(hard.ending)
		third.engine.ready, third.engine.sleeps = noSocket, noSocket
		require.NoError(t, third.Recover(t.Context(), memory))
		time.Sleep(time.Minute + time.Second)
		view, err := third.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "failed", view.State)
		assert.Equal(t, "not_listening", view.Cause)
	})
}

// A real engine loads for minutes before it listens.
func TestRecoveredEngineThatLoadsHasTheTimeOfAStart(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.ready = noSocket
		view, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.9")})
		require.NoError(t, err)
		require.Equal(t, "starting", view.State)
		time.Sleep(time.Second)
		memory := remembered(t, r)
		fresh, listens := nextLifeUnreachable(t, r)
		defer fresh.Close(t.Context(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		time.Sleep(fresh.opts.Limits.Start - time.Minute)
		view, err = fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "starting", view.State)
		assert.Empty(t, view.Reason)
		listens.Store(true)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "awake", fresh.state("a"))
	}, withHangs)
}

func TestRecoveredEngineAtAnUnknownAddressIsLeftAlone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		memory.Instances[0].Facts.EnginePort = 0
		fresh, hard := nextLife(t, r, withHangs)
		defer fresh.Close(t.Context(), false)
		close(hard.ending)
		fresh.engine.ready, fresh.engine.sleeps = noSocket, noSocket
		require.NoError(t, fresh.Recover(t.Context(), memory))
		time.Sleep(time.Hour)
		assert.Equal(t, string(launcher.Awake), fresh.state("a"))
	})
}

func TestNoEngineIsEndedForRefusalsWhileTheDiskStalls(t *testing.T) {
	disk := &stallingRecords{}
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		synctest.Wait()
		end := disk.stall()
		r.engine.ready = noSocket
		r.CheckListens("a")
		time.Sleep(time.Hour)
		assert.Equal(t, "awake", r.state("a"))
		end()
		time.Sleep(time.Minute - 2*listenPoll)
		assert.Equal(t, "awake", r.state("a"), "it has its whole time")
		time.Sleep(4 * listenPoll)
		assert.Equal(t, "failed", r.state("a"))
	}, withHangs, func(o *Options) { disk.Records, o.Records = o.Records, disk })
}
