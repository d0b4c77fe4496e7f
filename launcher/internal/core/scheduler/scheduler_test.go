package scheduler

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inTime runs a test in simulated time, with a scheduler of a simulated launcher. The times of its
// models are shifted to the beginning of simulated time.
func inTime(t *testing.T, f func(t *testing.T, s *Scheduler, fleet *fleet), gpus int, models ...Model) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fl := newFleet(gpus, models...)
		for _, i := range fl.models {
			i.Since, i.LastUsed = time.Now().Add(i.Since.Sub(now)), time.Now().Add(i.LastUsed.Sub(now))
		}
		s := New(Options{Fleet: fl, MaxWaiting: 200, Turn: turn, Logger: slog.New(slog.DiscardHandler)})
		s.Run()
		fl.mu.Lock()
		fl.kick = s.Kick
		fl.mu.Unlock()
		defer fl.work.Wait() // what was begun goes on
		defer s.Close()
		synctest.Wait()
		f(t, s, fl)
	})
}

func enter(t *testing.T, s *Scheduler, model string) *Ticket {
	t.Helper()
	ticket, err := s.Enter(model)
	require.NoError(t, err)
	return ticket
}

// isReady reports whether a request was let through or refused by now.
func isReady(ticket *Ticket) bool {
	synctest.Wait()
	select {
	case <-ticket.Ready():
		return true
	default:
		return false
	}
}

// awaitIt waits until a request is let through or refused, and returns how long that took.
func awaitIt(t *testing.T, ticket *Ticket) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	select {
	case <-ticket.Ready():
	case <-time.After(time.Hour):
		t.Fatal("the request waits for ever: ", ticket.Why())
	}
	return time.Since(began), ticket.Err()
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (f *fleet) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fleet) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

func (f *fleet) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.change()
}

func TestHundredRequestsForASleeperWakeItOnce(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		var all []*Ticket
		for range 100 {
			all = append(all, enter(t, s, "x"))
		}
		for _, ticket := range all {
			_, err := awaitIt(t, ticket)
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"wake x"}, f.did())
		assert.Equal(t, 2*time.Second, s.Show("x").Took)
		for _, ticket := range all {
			ticket.Leave()
		}
		assert.Zero(t, s.models["x"].answered)
	}, 1, model("x", asleep("a")))
}

func TestRequestForASleeperWaitsForTheWakeAlone(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		looks := func() { f.with(func() {}) } // and pauses after that
		looks()
		synctest.Wait()
		time.AfterFunc(f.models[0].wake-betweenSteps/2, looks)
		took, err := awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		assert.Equal(t, f.models[0].wake, took, "no pause of the scheduler is added at the beginning or at the end")
	}, 1, model("x", asleep("a")))
}

func TestFurtherRequestsForAModelAreNoReasonToLook(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		first := enter(t, s, "x")
		pass(time.Second)
		looks := f.looked()
		for range 100 {
			enter(t, s, "x")
			pass(time.Millisecond)
		}
		assert.Equal(t, looks, f.looked())
		_, err := awaitIt(t, first)
		require.NoError(t, err)
	}, 1, model("x", asleep("a")))
}

func TestAwakeModelLetsRequestsThroughWithoutALook(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		looks := f.looked()
		for range 1000 {
			ticket := enter(t, s, "x")
			assert.True(t, isReady(ticket))
			ticket.Leave()
		}
		pass(time.Second)
		assert.Equal(t, looks, f.looked())
	}, 1, model("x", awake("a"), since(0), sleepsAfter(time.Hour)), model("y", asleep("a")))
}

func TestLooksAreBoundedWhileEverythingChanges(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		waits := enter(t, s, "y")
		looks := f.looked()
		for range 10_000 {
			ticket := enter(t, s, "x")
			assert.True(t, isReady(ticket))
			ticket.Leave()
			pass(100 * time.Microsecond)
		}
		assert.Less(t, f.looked()-looks, 1005, "in a second")
		assert.False(t, isReady(waits), "the other one is in use, and has its turn")
	}, 1, model("x", awake("a"), since(0)), model("y", asleep("a")))
}

func TestFullQueueRefuses(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, _ *fleet) {
		s.opts.MaxWaiting = 2
		first := enter(t, s, "x")
		enter(t, s, "x")
		_, err := s.Enter("x")
		assert.Equal(t, &FullError{Model: "x", Waiting: 2}, err)
		assert.EqualError(t, err, "too many requests wait for the model x: 2; ask again later, or raise --max-held-requests")
		enter(t, s, "y")
		first.Leave()
		enter(t, s, "x")
	}, 1, model("x"), model("y"))
}

func TestModelWhoseClientsLeftIsNotBroughtIn(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		answered := enter(t, s, "o")
		gone, stays := enter(t, s, "x"), enter(t, s, "x")
		pass(time.Second)
		gone.Leave()
		stays.Leave()
		assert.Zero(t, s.waiting)
		answered.Leave()
		pass(time.Hour)
		assert.Empty(t, f.did())
		assert.False(t, isReady(gone))
	}, 1, model("o", awake("a"), since(0)), model("x"))
}

func TestIdleModelLeavesBeforeItsTurnIsOver(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		answered, waits := enter(t, s, "o"), enter(t, s, "x")
		pass(5 * time.Second)
		assert.Equal(t, "o has its turn there", waits.Why())
		answered.Leave()
		took, err := awaitIt(t, waits)
		require.NoError(t, err)
		assert.Equal(t, time.Second+10*time.Second, took.Round(100*time.Millisecond), "it sleeps, and the other one starts")
		assert.Equal(t, []string{"start x o"}, f.did())
	}, 1, model("o", awake("a"), since(0)), model("x"))
}

func TestClientThatAsksAgainAtOnceKeepsItsModelForAWhile(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		for range 2 {
			enter(t, s, "o").Leave()
			pass(100 * time.Millisecond)
		}
		took, err := awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		assert.Equal(t, lingers-100*time.Millisecond+time.Second+10*time.Second, took.Round(100*time.Millisecond), "it lingers, sleeps, and the other one starts")
	}, 1, model("o", awake("a"), since(0)), model("x"))
}

func TestRequestsGoInOrder(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, _ *fleet) {
		var all []*Ticket
		for range 5 {
			all = append(all, enter(t, s, "x"))
			pass(time.Millisecond)
		}
		pass(time.Minute)
		for n := range all {
			require.True(t, isReady(all[n]), n)
			for later, ticket := range all {
				if later != n && ticket != nil {
					require.False(t, isReady(ticket))
				}
			}
			all[n].Leave()
			all[n] = nil
		}
	}, 1, model("x", func(m *Model) { m.Concurrency = 1 }))
}

func TestModelOfAHighPriorityComesInFirst(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		busy := enter(t, s, "o")
		enter(t, s, "x")
		pass(time.Second)
		urgent := enter(t, s, "y")
		_, err := awaitIt(t, urgent)
		require.NoError(t, err)
		assert.Equal(t, []string{"start y o"}, f.did())
		busy.Leave()
		pass(time.Hour)
		assert.Empty(t, f.did(), "the model that is in use has a higher priority")
		urgent.Leave()
		pass(time.Minute)
		assert.Equal(t, []string{"start x y"}, f.did())
	}, 1, model("o", awake("a"), since(0)), model("x"), model("y", priority(3)))
}

func TestPreloadedModelComesBackWhereThereIsRoom(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		pass(time.Minute)
		assert.Equal(t, []string{"start x"}, f.did())
		ticket := enter(t, s, "y")
		_, err := awaitIt(t, ticket)
		require.NoError(t, err)
		ticket.Leave()
		pass(10*time.Minute + time.Minute)
		assert.Equal(t, []string{"start y x", "sleep y", "wake x"}, f.did())
	}, 1, model("x", preload), model("y", sleepsAfter(10*time.Minute)))
}

func TestSleepAndStopCountFromTheLastAnswer(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		ticket := enter(t, s, "x")
		pass(time.Hour)
		assert.Empty(t, f.did(), "it is in use")
		ticket.Leave()
		pass(time.Minute - time.Second)
		assert.Empty(t, f.did())
		pass(2 * time.Second)
		assert.Equal(t, []string{"sleep x"}, f.did())
		pass(time.Hour - time.Minute - 10*time.Second)
		assert.Empty(t, f.did())
		pass(20 * time.Second)
		assert.Equal(t, []string{"stop x"}, f.did())
		pass(24 * time.Hour)
		assert.Empty(t, f.did())
	}, 1, model("x", awake("a"), since(0), sleepsAfter(time.Minute), stopsAfter(time.Hour)))
}

func TestSleepThatIsRefusedIsTriedAgainAfterAPause(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		f.with(func() { f.refuse = func(Action) error { return launcher.EngineFailedf("it does not sleep") } })
		pass(time.Minute + 25*time.Second)
		assert.Equal(t, []string{"sleep x", "sleep x", "sleep x"}, f.did())
		assert.True(t, isReady(enter(t, s, "x")), "it is awake all the same")
	}, 1, model("x", awake("a"), since(0), sleepsAfter(time.Minute)))
}

func TestSleeperBesideAPinnedModelMoves(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		_, err := awaitIt(t, enter(t, s, "x"))
		require.NoError(t, err)
		assert.Equal(t, []string{"stop x", "start x"}, f.did())
		assert.Equal(t, []string{"b"}, f.models[1].On)
	}, 2, model("o", awake("a"), pinned), model("x", asleep("a")))
}

func TestRequestsHeldAtTheGateBringTheirModelBack(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		ticket := enter(t, s, "x")
		assert.True(t, isReady(ticket))
		f.with(func() { f.set(f.models[0], launcher.Sleeping) })
		assert.True(t, f.answer(f.models[0], time.Second, nil))
		ticket.Leave()
		assert.Equal(t, []string{"wake x"}, f.did())
	}, 1, model("x", awake("a")))
}

func TestRequestsHeldAtTheGateGetTheirTurnAfterAHigherPriority(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		high, held := enter(t, s, "o"), enter(t, s, "x")
		assert.True(t, isReady(held))
		f.with(func() { f.set(f.models[1], launcher.Sleeping) })
		answered := make(chan bool)
		go func() { answered <- f.answer(f.models[1], time.Second, nil) }()
		pass(time.Minute)
		f.with(func() {}) // the launcher shows the request that is held
		pass(time.Minute)
		assert.Empty(t, f.did())
		high.Leave()
		assert.True(t, <-answered)
		held.Leave()
		assert.Equal(t, []string{"wake x o"}, f.did())
	}, 1, model("o", awake("a"), since(0), priority(1), takes(30*gib)), model("x", awake("a"), since(0), takes(60*gib)))
}

func TestModelThatVanishesFailsItsRequests(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		answered, waits := enter(t, s, "x"), enter(t, s, "y")
		f.with(func() { f.models[0].removed, f.models[1].removed = true, true })
		_, err := awaitIt(t, waits)
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		waits.Leave()
		_, err = awaitIt(t, enter(t, s, "x"))
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "it is not awake any more")
		answered.Leave()
		s.Kick()
		pass(time.Second)
		assert.Empty(t, s.models)
	}, 1, model("x", awake("a"), since(0)), model("y"))
}

func TestCloseFailsThoseThatWait(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, _ *fleet) {
		answered, waits := enter(t, s, "x"), enter(t, s, "y")
		pass(time.Second)
		starts := enter(t, s, "z")
		pass(time.Second)
		s.Close()
		for _, ticket := range []*Ticket{waits, starts} {
			assert.True(t, isReady(ticket))
			assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(ticket.Err()))
			ticket.Leave()
		}
		require.NoError(t, answered.Err())
		answered.Leave()
		_, err := s.Enter("x")
		assert.EqualError(t, err, "the model x could not be made awake: the launcher is closing")
		pass(time.Minute)
	}, 2, model("x", awake("a"), since(0)), model("y", bound("a")), model("z", bound("b")))
}

func TestTwoActionsNeverShareAGPUThatIsNotShownYet(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		shown := make(chan struct{})
		f.with(func() {
			f.refuse = func(a Action) error { // the launcher does not show the new instance for a while
				f.mu.Unlock()
				<-shown
				f.mu.Lock()
				return nil
			}
		})
		enter(t, s, "x")
		pass(time.Second)
		enter(t, s, "y")
		pass(time.Second)
		assert.Equal(t, []string{"start x"}, f.did())
		close(shown)
		pass(time.Hour)
	}, 1, model("x"), model("y"))
}
