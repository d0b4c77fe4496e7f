package decide

import (
	"fmt"
	"time"
)

// truth checks what must hold, by what has really happened.
type truth struct {
	s      *simulation
	wrong  []string
	writes map[*simEntry]int
	served int
	races  int // that were over
	losses int // ready Pods that lost

	failed map[*simEntry]*attempts
	losers map[string]int // Pods that were taken back, by how often their entries had been asked for more then
	peaks  []peakAt
}

// attempts are the failures of an entry, one after the other.
type attempts struct {
	asks  int       // how often more replicas were asked for
	lose  []string  // ready Pods that go as soon as the number is written
	until time.Time // when it may be asked again
	seen  time.Time // when the Pod failed that the controller saw last; zero: one has been ready since
}

type peakAt struct {
	demand int
	until  time.Time
}

func (t *truth) violated(rule, format string, args ...any) {
	line := rule + ": " + fmt.Sprintf(format, args...)
	t.s.note("VIOLATED  %s", line)
	t.wrong = append(t.wrong, line)
}

func (t *truth) of(e *simEntry) *attempts {
	if t.failed[e] == nil {
		t.failed[e] = &attempts{}
	}
	return t.failed[e]
}

// demands notes the demand.
func (t *truth) demands(n int) {
	if last := len(t.peaks) - 1; last >= 0 {
		t.peaks[last].until = t.s.now
	}
	t.peaks = append(t.peaks, peakAt{demand: n})
}

// highest returns the highest demand of a time until now.
func (t *truth) highest(over time.Duration) (n int) {
	for _, p := range t.peaks {
		if p.until.IsZero() || t.s.now.Sub(p.until) <= over {
			n = max(n, p.demand)
		}
	}
	return n
}

func (t *truth) ready(p *simPod) {
	if !p.Leaving {
		t.of(p.of).seen = time.Time{}
	}
}

// forgets notes that what the controller has seen may not have been written.
func (t *truth) forgets() {
	for _, a := range t.failed {
		a.seen = time.Time{}
	}
}

// recorded checks the record of an entry.
func (t *truth) recorded(e *simEntry, was, is Record) {
	a := t.of(e)
	switch is.Failures {
	case was.Failures:
		return
	case 0:
		*a = attempts{asks: a.asks, lose: a.lose}
		return
	}
	if is.Failures != was.Failures+1 && is.Failures != 1 { // it may have been ready in between
		t.violated("failures", "entry %s has %d failures after %d", e.spec.Name, is.Failures, was.Failures)
	}
	pause := 30 * time.Second
	for range is.Failures - 1 {
		pause = min(2*pause, 30*time.Minute)
	}
	a.until = t.s.now.Add(pause)
}

// asks checks the number of an entry.
func (t *truth) asks(e *simEntry, asked Asked) {
	a := t.of(e)
	if asked.Replicas > e.asked.Replicas {
		a.asks++
		if t.s.now.Before(a.until) {
			t.violated("back-off", "entry %s is asked for %d, and backs off until %s", e.spec.Name, asked.Replicas, clock(a.until))
		}
		if !a.seen.IsZero() && t.s.now.Sub(a.seen) < 28*time.Second {
			t.violated("back-off", "entry %s is asked for %d, %s after a failure", e.spec.Name, asked.Replicas, t.s.now.Sub(a.seen))
		}
	}
	for _, name := range a.lose {
		t.losers[name] = a.asks
	}
	if e.spec.Target == 0 {
		if asked.Replicas > e.spec.Min {
			t.violated("standby", "%s has %d replicas", e.spec.Name, asked.Replicas)
		}
		return
	}
	if e.spec.Max > 0 && asked.Replicas > e.spec.Max {
		t.violated("maximum", "entry %s is asked for %d of %d", e.spec.Name, asked.Replicas, e.spec.Max)
	}
}

// decided checks a decision.
func (t *truth) decided(m *Model, d *Decision) {
	total, serves, served, standbys := 0, 0, 0, false
	load, kept, highest := 0, 0, t.highest(t.s.delay+meanOver)
	for n := range d.Entries {
		e, to := &m.Entries[n], &d.Entries[n]
		if e.Target > 0 {
			total += to.Asked.Replicas
		} else {
			standbys = true
		}
		if to.Row == RowRaceOver {
			t.races++
		}
		goes := map[string]bool{}
		for _, name := range to.Unserve {
			goes[name] = true
		}
		for _, pod := range e.Pods {
			if f := pod.Failure; f != nil && pod.Cost == 0 && !pod.Ready && !pod.Leaving {
				t.of(t.s.entries[n]).seen = f.Time
			}
			if pod.Ready && pod.Serving && !pod.Leaving {
				serves++
				load += e.Target
				if !goes[pod.Name] {
					served++
					kept += e.Target
				}
			}
		}
	}
	if m.TotalMax > 0 && total > m.TotalMax {
		t.violated("total maximum", "%d of %d", total, m.TotalMax)
	}
	wanted := m.Demand.Known && m.Demand.Peak > 0 && m.Mode == Requests
	if serves > 0 && served == 0 && (standbys || wanted) {
		t.violated("none serves", "the last one goes, with demand %d", m.Demand.Now)
	}
	t.served += serves
	t.checkLosers(m, d, load, highest)
	if m.Mode == Requests {
		t.checkLess(m, d)
		t.checkTrial(m, d, kept-highest)
	}
}

// checkLess checks that replicas go for want of demand only if the others carry all that there was.
func (t *truth) checkLess(m *Model, d *Decision) {
	carried, less := 0, false
	for n := range d.Entries {
		carried += d.Entries[n].Asked.Replicas * m.Entries[n].Target
		less = less || d.Entries[n].Row == RowLess
	}
	if highest := t.highest(t.s.delay - time.Millisecond); less && carried < highest {
		t.violated("less", "the demand was %d, and all entries are to carry %d", highest, carried)
	}
}

// checkTrial checks that no entry is tried while the last one could go as it is.
func (t *truth) checkTrial(m *Model, d *Decision, unused int) {
	last, tried := 0, false
	for n := range d.Entries {
		e := &m.Entries[n]
		tried = tried || d.Entries[n].Row == RowTried
		if e.Target > 0 && d.Entries[n].Ready > e.Min {
			last = e.Target
		}
	}
	if tried && m.TotalMin == 0 && unused >= last {
		t.violated("trial", "an entry is tried, and replicas for %d are unused, of which one carries %d", unused, last)
	}
}

// checkLosers checks that no loser serves.
func (t *truth) checkLosers(m *Model, d *Decision, load, highest int) {
	for n := range d.Entries {
		e, to := &m.Entries[n], &d.Entries[n]
		serve, lose := map[string]bool{}, []string(nil)
		for _, name := range to.Serve {
			serve[name] = true
			if asks, lost := t.losers[name]; lost && asks == t.of(t.s.entries[n]).asks {
				t.violated("loser", "Pod %s was to go, and serves", name)
			}
			if e.Asked.Goal > 0 && m.Demand.Known && m.Mode == Requests && load >= max(highest, 1) && serving(e) >= e.Min && total(m) >= m.TotalMin+e.Asked.Replicas {
				t.violated("loser", "Pod %s serves, and others carried %d of %d before", name, load, highest)
			}
			load += e.Target
		}
		for _, pod := range e.Pods {
			if e.Asked.Goal > 0 && to.Asked.Replicas < e.Asked.Replicas && pod.Ready && !pod.Leaving && !pod.Admitted && !serve[pod.Name] {
				lose = append(lose, pod.Name)
				t.losses++
			}
		}
		t.of(t.s.entries[n]).lose = lose
	}
}

// total returns the number of replicas that serve, without standbys.
func total(m *Model) (n int) {
	for i := range m.Entries {
		if e := &m.Entries[i]; e.Target > 0 {
			n += serving(e)
		}
	}
	return n
}

func serving(e *Entry) (n int) {
	for _, pod := range e.Pods {
		if pod.Ready && pod.Serving {
			n++
		}
	}
	return n
}

// checkRest checks what there is when nothing has happened for long.
func (t *truth) checkRest() {
	s := t.s
	if n := s.proc.passes; n > 10 && s.stuck == nil || n > 100 {
		t.violated("rest", "%d passes in %s, and nothing has happened", n, restTime)
	}
	for _, e := range s.entries {
		if n := t.writes[e]; n > 0 && e != s.stuck || n > 100 {
			t.violated("rest", "%d writes for entry %s in %s, and nothing has happened", n, e.spec.Name, restTime)
		}
	}
	if s.stuck == nil {
		t.checkWorking()
	}
}

// checkWorking checks what there is when all entries work.
func (t *truth) checkWorking() {
	s := t.s
	up := s.demand
	if s.model.Mode == External {
		up = (s.demand + 59) / 60
	}
	load, count, standby, idle, full := 0, 0, 0, false, s.model.TotalMax > 0
	for _, e := range s.entries {
		serving := 0
		for _, p := range e.pods {
			if p.Ready != p.Serving || p.Leaving {
				t.violated("rest", "Pod %s: %+v", p.Name, p.Pod)
			}
			if p.Serving {
				serving++
			}
		}
		if serving != e.number || serving != e.asked.Replicas {
			t.violated("rest", "entry %s has %d of %d replicas", e.spec.Name, serving, e.number)
		}
		if e.spec.Target == 0 {
			standby += serving
			continue
		}
		count += serving
		carries := e.spec.Target
		if s.model.Mode == External {
			carries = 1
		}
		load += serving * carries
		idle = idle || e.spec.Max == 0 || serving < e.spec.Max
	}
	full = full && count >= s.model.TotalMax
	if load < up && idle && !full {
		t.violated("rest", "the entries carry %d of %d", load, up)
	}
	if count < s.model.TotalMin && idle {
		t.violated("rest", "there are %d replicas of %d", count, s.model.TotalMin)
	}
	last := s.entries[len(s.entries)-1].spec
	if last.Target == 0 && (count > 0) == (standby > 0) {
		t.violated("rest", "%d replicas serve, and %d of standbys", count, standby)
	}
	t.checkOrder(up)
}

// checkOrder checks that no entry serves whose replicas those before it could carry.
func (t *truth) checkOrder(up int) {
	s := t.s
	for at, e := range s.entries {
		if e.spec.Target == 0 || e.number <= e.spec.Min || s.model.TotalMax > 0 {
			continue
		}
		could, count := 0, 0
		for n, before := range s.entries {
			of := before.spec
			if of.Target == 0 {
				continue
			}
			most := before.number
			if n < at && (of.Group == "" || of.Group != e.spec.Group) {
				most = max(most, of.Max)
				if of.Max == 0 {
					most = 1000
				}
			}
			if n == at {
				most--
			}
			if s.model.Mode == External {
				of.Target = 1
			}
			could += most * of.Target
			count += most
		}
		if at == t.last() && could >= up && count >= s.model.TotalMin {
			t.violated("order", "entry %s has %d replicas, and the others could carry %d of %d", e.spec.Name, e.number, could, up)
		}
	}
}

// last returns the last entry that has more than its minimum.
func (t *truth) last() (at int) {
	for n, e := range t.s.entries {
		if e.spec.Target > 0 && e.number > e.spec.Min {
			at = n
		}
	}
	return at
}
