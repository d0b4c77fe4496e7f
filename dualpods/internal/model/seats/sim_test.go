package seats

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sim is a pool in simulated time. Models have requests, seats take time to get a model, Pods die, and the controller
// is killed before any of its writes.
type sim struct {
	t      *testing.T
	seed   uint64
	rand   *rand.Rand
	now    time.Time
	pool   Pool
	made   int
	asleep map[string]map[string]bool // by seat, the entries whose models sleep behind it
	ready  map[string]time.Time       // by seat, when the model that it was given answers
	ends   map[string]time.Time       // by seat, when its requests end
	asking map[string]time.Time       // by entry, since when its Model has had requests and no seat
	busy   map[string]bool            // by entry, whether its Model has requests
	had    map[string]int             // by entry, its seats in the pass before
	calm   int                        // in how many steps the requests of a Model begin or end once
	bound  time.Duration
	log    []string
}

// The times of the simulation.
const (
	simStep    = 100 * time.Millisecond
	simSwap    = 700 * time.Millisecond // longest time in which a seat gets another model
	simRequest = 3 * time.Second        // longest request
)

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: now, asleep: map[string]map[string]bool{}, ready: map[string]time.Time{}, ends: map[string]time.Time{}, //nolint:gosec // schedules, no secrets
		asking: map[string]time.Time{}, busy: map[string]bool{}, had: map[string]int{},
	}
	s.pool = Pool{MinResidency: 2 * time.Second, Drain: time.Second, Known: true, Replicas: 1 + s.rand.IntN(4)}
	s.calm = []int{20, 2000}[s.rand.IntN(2)]
	for n := range 1 + s.rand.IntN(8) {
		c := Claim{Name: fmt.Sprintf("m%d", n), Hash: "h", Wants: 1 + s.rand.IntN(2), Weight: 100}
		s.busy[c.Name] = s.rand.IntN(4) > 0
		if n == 0 && s.pool.Replicas > 1 && s.rand.IntN(2) == 0 {
			c.Min = 1
		}
		s.pool.Claims = append(s.pool.Claims, c)
	}
	own := 0
	for i := range s.pool.Claims {
		own += s.pool.Claims[i].Min
	}
	k := s.pool.Replicas - own
	turns := (len(s.pool.Claims) + k - 1) / k
	s.bound = time.Duration(turns+1) * (s.pool.MinResidency + s.pool.Drain + simSwap + 10*simStep)
	return s
}

func (s *sim) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%6.1f ", s.now.Sub(now).Seconds())+fmt.Sprintf(format, args...))
}

// fail fails the test, with the end of what happened.
func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	require.Fail(s.t, fmt.Sprintf("seed %d: ", s.seed)+fmt.Sprintf(format, args...), "%v", s.log[max(len(s.log)-40, 0):])
}

// seat returns the seat of a name; nil: it is gone.
func (s *sim) seat(name string) *Seat {
	at := slices.IndexFunc(s.pool.Seats, func(seat Seat) bool { return seat.Name == name })
	if at < 0 {
		return nil
	}
	return &s.pool.Seats[at]
}

// happen lets time pass: models become ready, requests begin and end, Pods die, people edit the pool.
func (s *sim) happen(faults bool) {
	s.now = s.now.Add(simStep)
	s.pool.Now = s.now
	for i := range s.pool.Claims {
		c := &s.pool.Claims[i]
		if s.rand.IntN(s.calm) == 0 {
			s.busy[c.Name] = !s.busy[c.Name]
		}
		if c.Requests = 0; s.busy[c.Name] {
			c.Requests, c.LastUsed = 1+s.rand.IntN(5), s.now
		}
	}
	for i := range s.pool.Seats {
		seat := &s.pool.Seats[i]
		if !seat.Usable && s.rand.IntN(5) == 0 {
			seat.Usable = true
		}
		if at := s.ready[seat.Name]; seat.Claim != "" && !seat.Ready && !at.After(s.now) {
			seat.Ready, seat.Serving, seat.ReadySince = true, seat.Leaves.IsZero(), s.now
		}
		serves := seat.Ready && seat.Leaves.IsZero() && s.busy[seat.Claim]
		if ends := s.ends[seat.Name]; seat.InFlight > 0 && !ends.After(s.now) {
			seat.InFlight = 0
		}
		if serves {
			seat.InFlight = 1
			s.ends[seat.Name] = s.now.Add(time.Duration(s.rand.Int64N(int64(simRequest))))
		}
	}
	if faults && s.rand.IntN(60) == 0 && len(s.pool.Seats) > 0 {
		dead := s.pool.Seats[s.rand.IntN(len(s.pool.Seats))].Name
		s.note("the Pod of %s dies", dead)
		s.remove(dead)
	}
}

func (s *sim) remove(name string) {
	s.pool.Seats = slices.DeleteFunc(s.pool.Seats, func(seat Seat) bool { return seat.Name == name })
	delete(s.asleep, name)
	delete(s.ready, name)
}

// decide runs a pass. A controller that is killed makes only the first writes.
func (s *sim) decide(faults bool) {
	for i := range s.pool.Claims {
		c := &s.pool.Claims[i]
		has := 0
		for _, seat := range s.pool.Seats {
			if seat.Claim == c.Name && seat.Leaves.IsZero() {
				has++
			}
		}
		switch {
		case has >= c.Wants || c.Requests == 0:
			c.WaitsFrom = time.Time{}
		case c.WaitsFrom.IsZero() || has != s.had[c.Name]:
			c.WaitsFrom = s.now
		}
		s.had[c.Name] = has
	}
	for i := range s.pool.Seats {
		seat := &s.pool.Seats[i]
		seat.Asleep = slices.Sorted(maps.Keys(s.asleep[seat.Name]))
		seat.Sleepers = len(seat.Asleep)
	}
	before := map[string]int{}
	for i := range s.pool.Seats {
		if seat := &s.pool.Seats[i]; seat.Leaves.IsZero() {
			before[seat.Claim]++
		}
	}
	d := Decide(&s.pool)
	killed := faults && s.rand.IntN(30) == 0
	for _, step := range d.Steps {
		if killed && s.rand.IntN(2) == 0 {
			s.note("the controller is killed before it can %s %s", step.Do, step.Seat)
			for i := range s.pool.Claims {
				c := &s.pool.Claims[i]
				c.WaitsFrom, c.LastUsed, c.LostAt = time.Time{}, time.Time{}, time.Time{}
			}
			return
		}
		s.check(step, before, d.Steps)
		s.write(step)
	}
	for range d.Create {
		s.pool.Seats = append(s.pool.Seats, Seat{Name: fmt.Sprintf("s%d", s.made)})
		s.made++
	}
}

// check finds what a step must not do.
func (s *sim) check(step Step, has map[string]int, all []Step) {
	seat := s.seat(step.Seat)
	loses := seat.Claim != "" && seat.Leaves.IsZero() && step.Claim != seat.Claim && step.Do != Stay
	if loses {
		has[seat.Claim]--
		c := s.claim(seat.Claim)
		if has[seat.Claim] < c.Min && step.Do != Delete {
			s.fail("%s loses a seat that is its own: %+v", seat.Claim, step)
		}
		if s.busy[seat.Claim] && step.Do == Drain && s.now.Sub(seat.ReadySince) < s.pool.MinResidency {
			s.fail("%s loses its seat before its time: %+v", seat.Claim, step)
		}
	}
	if (step.Do == Assign || step.Do == Release || step.Do == Delete) && seat.InFlight > 0 && (seat.Leaves.IsZero() || s.now.Sub(seat.Leaves) < s.pool.Drain) {
		s.fail("%s has requests, and has not drained: %+v", seat.Name, step)
	}
	if (step.Do == Assign || step.Do == Release) && (seat.Serving || !seat.Leaves.IsZero() && s.now.Sub(seat.Leaves) < Settle) {
		s.fail("front doors may still pass requests on to %s: %+v", seat.Name, step)
	}
	if step.Do == Assign && !seat.Usable {
		s.fail("%s cannot be used: %+v", seat.Name, step)
	}
	if step.Do == Assign && slices.ContainsFunc(s.pool.Seats, func(other Seat) bool {
		given := slices.ContainsFunc(all, func(to Step) bool { return to.Seat == other.Name })
		return !given && other.Claim == "" && other.Usable && other.Name != seat.Name && s.asleep[other.Name][step.Claim]
	}) && !s.asleep[seat.Name][step.Claim] {
		s.fail("the model of %s sleeps behind a free seat: %+v", step.Claim, step)
	}
}

func (s *sim) claim(name string) *Claim {
	at := slices.IndexFunc(s.pool.Claims, func(c Claim) bool { return c.Name == name })
	return &s.pool.Claims[at]
}

// write does what a step says.
func (s *sim) write(step Step) {
	s.note("%s %s %s: %s", step.Do, step.Seat, step.Claim, step.Row)
	seat := s.seat(step.Seat)
	sleep := func() {
		if seat.Claim != "" && seat.Ready {
			if s.asleep[seat.Name] == nil {
				s.asleep[seat.Name] = map[string]bool{}
			}
			s.asleep[seat.Name][seat.Claim] = true
		}
		*seat = Seat{Name: seat.Name, Usable: true}
	}
	switch step.Do {
	case Assign:
		sleep()
		delete(s.asleep[seat.Name], step.Claim)
		seat.Claim, seat.Hash = step.Claim, "h"
		s.ready[seat.Name] = s.now.Add(time.Duration(s.rand.Int64N(int64(simSwap))))
	case Release:
		sleep()
	case Drain:
		if c := s.claim(seat.Claim); step.Row == RowBusy {
			c.LostAt = s.now
		}
		if seat.Serving && s.rand.IntN(4) == 0 { // a front door has passed it on just before
			seat.InFlight = 1
			s.ends[seat.Name] = s.now.Add(time.Duration(s.rand.Int64N(int64(simRequest))))
		}
		seat.Leaves, seat.Serving = s.now, false
	case Stay:
		seat.Leaves, seat.Serving = time.Time{}, seat.Ready
	case Delete:
		s.remove(step.Seat)
	}
}

// checkWaits finds Models that wait longer than the bound.
func (s *sim) checkWaits() {
	for i := range s.pool.Claims {
		c := &s.pool.Claims[i]
		served := slices.ContainsFunc(s.pool.Seats, func(seat Seat) bool { return seat.Claim == c.Name })
		switch {
		case served || c.Requests == 0:
			delete(s.asking, c.Name)
		case s.asking[c.Name].IsZero():
			s.asking[c.Name] = s.now
		}
		if since, waits := s.asking[c.Name]; waits && s.now.Sub(since) > s.bound {
			s.fail("%s has waited for %s, and the bound is %s", c.Name, s.now.Sub(since), s.bound)
		}
	}
}

func TestNoScheduleStarvesAModel(t *testing.T) {
	for seed := range uint64(schedules) {
		s := newSim(t, seed)
		faults := seed%2 == 1
		for range 600 {
			s.happen(faults)
			s.decide(faults)
			if faults { // a killed controller forgets who has waited, and dead Pods take time to come back
				continue
			}
			s.checkWaits()
		}
	}
}

func TestPoolComesToRestWithoutWrites(t *testing.T) {
	for seed := range uint64(schedules / 10) {
		s := newSim(t, seed)
		for range 100 {
			s.happen(true)
			s.decide(true)
		}
		for range 300 { // no requests any more
			s.busy = map[string]bool{}
			s.happen(false)
			for name := range s.busy {
				s.busy[name] = false
			}
			for i := range s.pool.Claims {
				s.pool.Claims[i].Requests = 0
			}
			s.decide(false)
		}
		if d := Decide(&s.pool); len(d.Steps) > 0 || d.Create > 0 {
			s.fail("at rest the pool still has %+v", d)
		}
		require.Len(t, s.pool.Seats, s.pool.Replicas)
		for i := range s.pool.Claims {
			if c := &s.pool.Claims[i]; c.Min > 0 {
				require.True(t, slices.ContainsFunc(s.pool.Seats, func(seat Seat) bool { return seat.Claim == c.Name && seat.Serving }), "seed %d: %s has its seat", seed, c.Name)
			}
		}
	}
}
