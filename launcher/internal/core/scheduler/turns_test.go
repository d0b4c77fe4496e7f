package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hammer has clients ask for each model again and again for a while. It returns how many requests
// of each were answered, and the longest wait.
func hammer(s *Scheduler, f *fleet, clients int, forTime time.Duration) (answered map[string]int, longest time.Duration) {
	var mu sync.Mutex
	var tasks sync.WaitGroup
	answered = map[string]int{}
	end := time.Now().Add(forTime)
	for _, i := range f.models {
		for range clients {
			tasks.Go(func() {
				for time.Now().Before(end) {
					ticket, err := s.Enter(i.Name)
					if err != nil {
						return
					}
					began := time.Now()
					<-ticket.Ready()
					waited := time.Since(began)
					ok := ticket.Err() == nil && f.answer(i, 500*time.Millisecond, nil)
					ticket.Leave()
					mu.Lock()
					longest = max(longest, waited)
					if ok {
						answered[i.Name]++
					}
					mu.Unlock()
				}
			})
		}
	}
	tasks.Wait()
	return answered, longest
}

func TestTwoHammeredModelsGetEqualTurns(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		answered, longest := hammer(s, f, 1, 20*time.Minute)
		assert.InDelta(t, answered["x"], answered["y"], 0.1*float64(answered["x"]))
		assert.Greater(t, answered["x"]+answered["y"], 20*60*2*8/10, "most of the time is no transition")
		assert.LessOrEqual(t, longest, 2*(turn+time.Second+time.Second+2*time.Second))
		for _, call := range f.did()[1:] {
			assert.Contains(t, []string{"wake x y", "wake y x"}, call)
		}
	}, 1, model("x", asleep("a")), model("y", asleep("a")))
}

func TestTwentyHammeredModelsOnTwoGPUsAllGetTheirTurns(t *testing.T) {
	var models []Model
	for n := range 20 {
		m := model(fmt.Sprintf("m%d", n))
		if n%5 == 0 {
			m.Count = 2
		}
		models = append(models, m)
	}
	inTime(t, func(t *testing.T, s *Scheduler, f *fleet) {
		s.opts.Turn = 5 * time.Second
		answered, longest := hammer(s, f, 2, 5*time.Minute)
		for _, m := range models {
			assert.Positive(t, answered[m.Name], m.Name)
		}
		assert.LessOrEqual(t, longest, 20*(s.opts.Turn+time.Second+time.Second+10*time.Second))
	}, 2, models...)
}

func TestReasonSaysWhatHappensAndEndsWithTheWait(t *testing.T) {
	inTime(t, func(t *testing.T, s *Scheduler, _ *fleet) {
		answered, gone := enter(t, s, "o"), enter(t, s, "x")
		pass(time.Second)
		assert.Equal(t, "o has its turn there", s.Show("x").Why)
		gone.Leave()
		pass(time.Second)
		assert.Empty(t, s.Show("x").Why, "nothing waits any more")
		waits := enter(t, s, "x")
		answered.Leave()
		pass(2 * time.Second)
		assert.Equal(t, "it starts once o sleeps", waits.Why())
		assert.Equal(t, "it falls asleep, since it is the turn of x", s.Show("o").Why)
		_, err := awaitIt(t, waits)
		require.NoError(t, err)
		pass(time.Millisecond)
		assert.Empty(t, s.Show("x").Why, "it is awake")
		assert.Empty(t, s.Show("o").Why, "it sleeps")
		waits.Leave()
		pass(time.Minute)
		assert.Equal(t, "it falls asleep", s.Show("x").Why)
		pass(time.Minute)
		assert.Empty(t, s.Show("x").Why, "it sleeps")
	}, 1, model("o", awake("a"), since(0)), model("x", sleepsAfter(time.Minute)))
}
