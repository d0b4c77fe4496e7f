package decide

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

const (
	roughTime = 25 * time.Minute
	calmTime  = 3 * time.Hour // longer than any back-off, with all entries tried after it
	restTime  = time.Hour
)

// TestNoScheduleBreaksAModel plays Models whose hardware is out of stock at times, with quotas, engines
// that fail or hang, Pods that die, a demand that changes and a controller that is killed between any
// two of its writes; SEEDS says how many.
func TestNoScheduleBreaksAModel(t *testing.T) {
	var served, races, losses, passes atomic.Int64
	t.Cleanup(func() {
		t.Logf("passes %d, serving Pods seen %d, races that were over %d, ready Pods that lost %d", passes.Load(), served.Load(), races.Load(), losses.Load())
	})
	play := func(_ *testing.T, seed uint64) []string {
		s := playSeed(seed, false)
		served.Add(int64(s.truth.served))
		races.Add(int64(s.truth.races))
		losses.Add(int64(s.truth.losses))
		passes.Add(int64(s.proc.passes))
		return s.truth.wrong
	}
	schedules.Play(t, schedules.FromEnvironment(t, standardSeeds), play, func(_ *testing.T, seed uint64, wrong []string) string {
		s := playSeed(seed, true)
		lines := 60
		if os.Getenv("LOG") != "" {
			lines = len(s.story)
		}
		return fmt.Sprintf("seed %d: %s\n%s", seed, strings.Join(wrong, "; "), strings.Join(s.story[max(0, len(s.story)-lines):], "\n"))
	})
}

func playSeed(seed uint64, trace bool) *simulation {
	s := &simulation{Draws: schedules.Draws{Seed: seed}, now: now, trace: trace}
	s.truth = &truth{s: s, writes: map[*simEntry]int{}, failed: map[*simEntry]*attempts{}, losers: map[string]int{}}
	s.build()
	for _, e := range s.entries {
		s.note("entry %+v", e.spec)
	}
	s.note("mode %s, totals %d to %d, delay %s", s.model.Mode, s.model.TotalMin, s.model.TotalMax, s.delay)
	s.begin()
	s.disturb()
	s.play(roughTime)
	s.calmDown()
	s.play(calmTime)
	s.truth.writes, s.proc.passes = map[*simEntry]int{}, 0
	s.play(restTime)
	if len(s.truth.wrong) == 0 {
		s.truth.checkRest()
	}
	return s
}

// calmDown has everything work from now on.
func (s *simulation) calmDown() {
	s.calm, s.proc.killAt = true, 0
	s.note("--- all is well from now on")
	for _, e := range s.entries {
		e.broken, e.stock, e.quota = false, 1000, 1000
		if e == s.stuck {
			e.broken = s.Chance("stays broken", 50)
			if !e.broken {
				e.stock = 0
			}
		}
	}
	s.setDemand(s.kept)
}

// disturb has things happen until it is calm.
func (s *simulation) disturb() {
	if s.calm {
		return
	}
	s.happen()
	s.after(s.Between("gap", 0, 20*time.Second)<<s.below("gaps", 4), s.disturb)
}

func (s *simulation) happen() {
	e := s.entries[s.below("which", len(s.entries))]
	long := s.Between("long", 0, 5*time.Minute)
	switch what := s.below("what", 100); {
	case what < 30:
		s.setDemand([]int{0, 0, 1, 20, 90, 150, 300, 700}[s.below("demand", 8)])
	case what < 45:
		s.note("--- the hardware of %s is out of stock", e.spec.Name)
		e.stock = s.below("stock", 2)
		s.after(long, func() {
			if !s.calm {
				e.stock = 1000
			}
		})
	case what < 52:
		s.note("--- %s gets a quota", e.spec.Name)
		e.quota = s.below("quota", 2)
		s.after(long, func() { e.quota = 1000 })
	case what < 62:
		s.note("--- the engines of %s fail", e.spec.Name)
		e.broken = true
		s.after(long, func() {
			if !s.calm {
				e.broken = false
			}
		})
	case what < 78:
		s.disturbPod(e)
	case what < 83:
		s.note("--- somebody scales %s", e.spec.Name)
		e.number = s.below("by hand", 4)
		s.reconcile(e)
		s.changed()
	case what < 90:
		for n := range 1 + s.below("pauses", 10) { // clients that pause
			s.after(time.Duration(n)*10*time.Second, func() {
				if !s.calm {
					s.setDemand(n % 2 * 150)
				}
			})
		}
	default:
		s.proc.kill()
	}
}

// disturbPod has a Pod die, or be deleted.
func (s *simulation) disturbPod(e *simEntry) {
	names := slices.Sorted(maps.Keys(e.pods))
	if len(names) == 0 {
		return
	}
	p := e.pods[names[s.below("pod", len(names))]]
	if s.Chance("deleted", 40) {
		s.remove(p, "somebody")
	} else if p.Ready && !p.Leaving {
		s.lapse(p)
	}
}

// TestPausesDoNotFlap lets a model serve a load that is there for half of the time.
func TestPausesDoNotFlap(t *testing.T) {
	for _, group := range []string{"", "g0"} {
		s := &simulation{now: now}
		s.truth = &truth{s: s, writes: map[*simEntry]int{}, failed: map[*simEntry]*attempts{}, losers: map[string]int{}}
		s.calm, s.delay, s.model = true, 5*time.Minute, Model{Mode: Requests}
		for _, name := range []string{"a", "b"} {
			e := entry(name)
			e.Group = group
			s.entries = append(s.entries, &simEntry{spec: e, pods: map[string]*simPod{}, stock: 1000, quota: 1000, starts: 20 * time.Second})
		}
		s.begin()
		half := func() {
			s.setDemand(150)
			s.play(time.Minute)
			s.setDemand(0)
			s.play(time.Minute)
		}
		s.play(10 * time.Second)
		for range 3 {
			half()
		}
		a, b := s.entries[0].number, s.entries[1].number
		require.Equal(t, 2, a+b, "group %q", group)
		s.truth.writes = map[*simEntry]int{}
		for range 15 { // half an hour
			half()
		}
		assert.Empty(t, s.truth.writes, "group %q", group)
		s.play(6 * time.Minute)
		assert.Zero(t, s.entries[0].number+s.entries[1].number, "group %q", group)
	}
}
