package scheduler

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestFailuresBackOffAndHoldTheModelBack(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		f.with(func() { f.models[0].failing = 6 })
		for n, pause := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			first, second := enter(t, s, "x"), enter(t, s, "x")
			took, err := awaitIt(t, first)
			assert.Equal(t, pause+10*time.Second, took.Round(100*time.Millisecond), n)
			failed, ok := errors.AsType[*NotBroughtInError](err)
			require.True(t, ok)
			assert.Equal(t, launcherapi.CodeEngineFailed, launcher.CodeOf(err))
			if n < 4 {
				assert.Equal(t, time.Second<<n, failed.Retry)
				assert.EqualError(t, err, "the model x could not be made awake: x cannot start")
			} else {
				assert.EqualError(t, err, "the model x could not be made awake: x cannot start; it is held back, since it has failed 5 times in a row, and is tried again in 5m0s")
			}
			assert.Equal(t, err, second.Err())
		}
		f.did()
		pass(time.Minute)
		_, err := s.Enter("x")
		assert.EqualError(t, err, "the model x could not be made awake: x cannot start; it is held back, since it has failed 5 times in a row, and is tried again in 4m0s")
		shown := s.Show("x")
		assert.True(t, shown.HeldBack)
		assert.Equal(t, "x cannot start", shown.Failure)
		assert.Empty(t, f.did())
		pass(4 * time.Minute)
		assert.False(t, s.Show("x").HeldBack, "it is tried again")
		_, err = awaitIt(t, enter(t, s, "x"))
		assert.ErrorContains(t, err, "it has failed 6 times in a row")
		pass(5 * time.Minute)
		_, err = awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		pass(2 * time.Minute)
		f.with(func() { f.kill(f.models[0]) })
		pass(10 * time.Millisecond)
		assert.Equal(t, 1, s.models["x"].failures, "it was awake for long")
	}, 1, model("x"))
}

func TestHeldBackModelThatAClientWakesAnswers(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		for range heldBackAfter {
			f.with(func() { f.models[0].failing = 1 })
			_, err := awaitIt(t, enter(t, s, "x"))
			require.Error(t, err)
		}
		_, err := s.Enter("x")
		require.ErrorContains(t, err, "5 times in a row")
		f.with(func() { f.set(f.models[0], launcher.Awake) })
		pass(20 * time.Millisecond)
		assert.True(t, isReady(enter(t, s, "x")))
	}, 1, model("x"))
}

func TestFullDiskHoldsNoModelBack(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		f.with(func() { f.refuse = func(Action) error { return launcher.Storagef("no space") } })
		for range 2 * heldBackAfter {
			_, err := awaitIt(t, enter(t, s, "x"))
			require.ErrorContains(t, err, "no space")
		}
		f.with(func() { f.refuse = nil })
		took, err := awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		assert.Less(t, took, 19*time.Second, "a pause of 8 s, and a start")
	}, 1, model("x"))
}

func TestModelThatIsForgivenIsTriedAgainAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		for _, failures := range []int{1, heldBackAfter} {
			for range failures {
				f.with(func() { f.models[0].failing = 1 })
				_, err := awaitIt(t, enter(t, s, "x"))
				require.Error(t, err)
			}
			s.Forgive("x")
			shown := s.Show("x")
			assert.Zero(t, shown.Failures)
			assert.Zero(t, shown.NotBefore)
			took, err := awaitIt(t, enter(t, s, "x"))
			require.NoError(t, err)
			assert.LessOrEqual(t, took, 11*time.Second, "a start, and no pause")
			f.with(func() { f.set(f.models[0], launcher.Stopped) })
			pass(20 * time.Millisecond)
		}
		s.Forgive("nothing")
	}, 1, model("x"))
}

func TestModelWhoseOccupantFailedOnItsWayOutComesInAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		_, err := awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		f.with(func() {
			f.models[0].Preload = true // it comes back once there is room
			f.refuse = func(a Action) error {
				if len(a.Out) == 0 {
					return nil
				}
				f.set(f.models[0], launcher.Failed)
				return &LeaverFailedError{Err: launcher.EngineTimeoutf("x did not fall asleep")}
			}
		})
		f.did()
		_, err = awaitIt(t, enter(t, s, "y"))
		require.NoError(t, err)
		assert.Equal(t, []string{"start y x", "start y"}, f.did())
		assert.Zero(t, s.Show("y").Failures)
	}, 1, model("x"), model("y"))
}

func TestEngineThatEndsAgainAndAgainIsHeldBack(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		var last error
		for range heldBackAfter {
			ticket := enter(t, s, "x")
			_, last = awaitIt(t, ticket)
			require.NoError(t, last)
			pass(time.Second)
			f.with(func() { f.kill(f.models[0]) })
			ticket.Leave()
			pass(20 * time.Millisecond)
		}
		_, last = s.Enter("x")
		assert.EqualError(t, last, "the model x could not be made awake: the engine ended while it was awake; it is held back, since it has failed 5 times in a row, and is tried again in 5m0s")
	}, 1, model("x"))
}

func TestRequestsThatWaitForAPlaceAreRefusedWhenTheModelIsHeldBack(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		answered, waits := enter(t, s, "x"), enter(t, s, "x")
		s.mu.Lock()
		s.models["x"].failures = heldBackAfter - 1
		s.mu.Unlock()
		f.with(func() { f.kill(f.models[0]) })
		took, err := awaitIt(t, waits)
		assert.ErrorContains(t, err, "5 times in a row")
		assert.Less(t, took, time.Second)
		answered.Leave()
	}, 1, model("x", awake("a"), since(0), func(m *Model) { m.Concurrency = 1 }))
}

func TestConflictsAreRetriedAndThenFail(t *testing.T) {
	ended := launcherapi.Fit{Holders: []launcherapi.GPUHolder{{InstanceID: "y", State: string(launcher.Failed), Bytes: 1}}}
	for name, refusal := range map[string]*launcher.Error{
		"another client was faster":        launcher.Conflictf("not now"),
		"an ended engine holds the memory": launcher.DoesNotFit(ended, "not now"),
	} {
		t.Run(name, func(t *testing.T) { testRetries(t, refusal) })
	}
}

func testRetries(t *testing.T, refusal *launcher.Error) {
	t.Helper()
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		refusals := 3
		f.with(func() {
			f.refuse = func(Action) error {
				if refusals--; refusals < 0 {
					return nil
				}
				return refusal
			}
		})
		ticket := enter(t, s, "x")
		took, err := awaitIt(t, ticket)
		require.NoError(t, err)
		assert.Equal(t, 3*afterConflict+2*time.Second, took.Round(100*time.Millisecond))
		ticket.Leave()
		f.with(func() { refusals = 1000; f.set(f.models[0], launcher.Sleeping) })
		pass(20 * time.Millisecond)
		took, err = awaitIt(t, enter(t, s, "x"))
		assert.ErrorContains(t, err, "not now")
		assert.Equal(t, mostConflicts*afterConflict, took.Round(100*time.Millisecond))
	}, 1, model("x", asleep("a")))
}

func TestHopelessRequestsAreRefusedWithTheNumbers(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		ticket := enter(t, s, "x")
		waits := enter(t, s, "y")
		f.with(func() { f.gpus[0].ForeignBytes = 21 * gib })
		_, err := awaitIt(t, waits)
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "it needs 60.0 GiB of GPU a, of which other processes than the launcher's use 21.0 GiB of 80.0 GiB")
		assert.True(t, isReady(ticket))
		looks := f.looked()
		pass(time.Hour)
		assert.Less(t, f.looked()-looks, 3)
		assert.Empty(t, f.did())
		f.with(func() { f.gpus[0].ForeignBytes = 0 })
		ticket.Leave()
		_, err = awaitIt(t, enter(t, s, "y"))
		require.NoError(t, err)
	}, 1, model("x", awake("a"), since(0)), model("y", takes(60*gib)))
}

// A request that was let through just before its model fell asleep waits again, before those that
// came later. If nothing helps, it is refused with the rest.
func TestRequestWhoseModelFellAsleepWaitsAgain(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		pass(20 * time.Millisecond)
		early := enter(t, s, "x")
		require.True(t, isReady(early))
		f.with(func() { f.set(f.models[0], launcher.Sleeping); f.gpus[0].ForeignBytes = 80 * gib })
		early.Again()
		assert.Equal(t, Demand{Waiting: 1}, Demand{Waiting: s.Show("x").Waiting, InFlight: s.Show("x").InFlight})
		_, err := awaitIt(t, early)
		assert.Equal(t, launcherapi.CodeDoesNotFit, launcher.CodeOf(err))
		early.Leave()

		f.with(func() { f.set(f.models[0], launcher.Awake); f.gpus[0].ForeignBytes = 0 })
		pass(20 * time.Millisecond)
		early = enter(t, s, "x")
		require.True(t, isReady(early))
		f.with(func() { f.set(f.models[0], launcher.Sleeping); f.models[0].Concurrency = 1 })
		pass(20 * time.Millisecond)
		late := enter(t, s, "x")
		early.Again()
		_, err = awaitIt(t, early)
		require.NoError(t, err)
		assert.False(t, isReady(late), "one at a time, and the other one came first")
		early.Leave()
		assert.True(t, isReady(late))
		late.Leave()
	}, 1, model("x", awake("a"), since(0)))
}
