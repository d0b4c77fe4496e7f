package decide

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// process is a controller process. It sees the Pods a moment late, and its own writes at once. When it
// is killed, its Window is lost.
type process struct {
	s      *simulation
	began  time.Time
	window Window
	seen   [][]Pod // of each entry
	killAt int     // the write before which it is killed; 0: it is not
	dead   bool
	sees   bool      // it is about to see what has changed
	wakes  time.Time // when it is to decide again though nothing changes
	passes int
}

// start has a new process begin.
func (s *simulation) begin() {
	s.proc = &process{s: s, began: s.now}
	if !s.calm && s.Chance("killed at a write", 50) {
		s.proc.killAt = 1 + s.below("write", 12)
	}
	s.note("=== a controller starts")
	p := s.proc
	s.after(s.Between("first word", 0, time.Second), p.told) // of the front doors
	s.after(s.Between("sync", 0, time.Second), p.see)
}

func (p *process) kill() {
	if p.dead {
		return
	}
	p.dead = true
	p.s.note("=== the controller is killed")
	p.s.truth.forgets()
	p.s.after(p.s.Between("restart", 0, 5*time.Second), p.s.begin)
}

// told notes the demand that the front doors tell.
func (p *process) told() {
	if !p.dead && p == p.s.proc {
		p.window.Add(p.s.now, p.s.demand)
		p.decide()
	}
}

// see brings the cache of Pods up to date.
func (p *process) see() {
	p.sees = false
	if p.dead || p != p.s.proc {
		return
	}
	p.seen = nil
	for _, e := range p.s.entries {
		var pods []Pod
		for _, pod := range e.pods {
			pods = append(pods, pod.Pod)
		}
		slices.SortFunc(pods, func(a, b Pod) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
		p.seen = append(p.seen, pods)
	}
	p.decide()
}

// observe returns the Model as the process sees it.
func (p *process) observe() *Model {
	s := p.s
	m := s.model
	m.Now = s.now
	serving := 0
	for n, e := range s.entries {
		of := e.spec
		of.Replicas, of.Asked, of.Record, of.Refused = e.number, e.asked, e.record, e.told
		of.Pods = slices.Clone(p.seen[n])
		of.AsleepOnFree = max(min(e.stock-len(e.pods), s.below("asleep", 3)), 0)
		for _, pod := range of.Pods {
			if pod.Ready && pod.Serving {
				serving++
			}
		}
		m.Entries = append(m.Entries, of)
	}
	if m.Mode == External {
		m.Replicas = (s.demand + 59) / 60
	}
	d := &m.Demand
	d.Now, d.Mean = s.demand, p.window.Mean(s.now)
	if serving == 0 {
		d.Held = d.Now
	}
	d.Peak, d.Known = p.window.Peak(s.now, s.delay)
	d.Known = d.Known && s.now.Sub(p.began) >= time.Second // then all front doors have told
	return &m
}

// decide makes a pass.
func (p *process) decide() {
	s := p.s
	if p.dead || p.seen == nil || p.window.began.IsZero() {
		return
	}
	p.passes++
	m := p.observe()
	d := Decide(m)
	if s.trace {
		s.note("demand %d, mean %.3g, peak %d %v: %s (%s)", m.Demand.Now, m.Demand.Mean, m.Demand.Peak, m.Demand.Known, text(m, d), d.Limited)
	}
	s.truth.decided(m, d)
	for n := range d.Entries {
		p.carryOut(n, &m.Entries[n], &d.Entries[n])
	}
	again := d.Again
	if next := p.window.Next(s.now, s.delay); next > 0 && (again == 0 || next < again) {
		again = next
	}
	if again > 0 {
		p.wakeAt(s.now.Add(again))
	}
}

// wakeAt has a pass be made at a time, if none is before.
func (p *process) wakeAt(at time.Time) {
	if p.wakes.After(p.s.now) && !at.Before(p.wakes) {
		return
	}
	p.wakes = at
	p.s.after(at.Sub(p.s.now), func() {
		if p.wakes.Equal(at) {
			p.wakes = time.Time{}
			p.decide()
		}
	})
}

// writes reports whether the process lives to make its next write.
func (p *process) writes(e *simEntry) bool {
	if p.dead {
		return false
	}
	if p.killAt > 0 {
		if p.killAt--; p.killAt == 0 {
			p.kill()
			return false
		}
	}
	p.s.truth.writes[e]++
	return true
}

// carryOut writes what was decided about an entry.
func (p *process) carryOut(n int, was *Entry, d *EntryDecision) {
	s, e := p.s, p.s.entries[n]
	if !sameRecord(d.Record, was.Record) && p.writes(e) {
		s.truth.recorded(e, was.Record, d.Record)
		e.record = d.Record
	}
	for _, name := range d.Serve {
		p.patch(n, name, func(pod *Pod) { pod.Serving, pod.Admitted = true, true })
	}
	for _, name := range d.Unserve {
		p.patch(n, name, func(pod *Pod) { pod.Serving = false })
	}
	for _, name := range slices.Sorted(maps.Keys(d.Costs)) {
		p.patch(n, name, func(pod *Pod) { pod.Cost = d.Costs[name] })
	}
	for _, name := range d.Delete {
		if pod := e.pods[name]; pod != nil && p.writes(e) {
			s.remove(pod, "the controller")
		}
	}
	if d.Write && p.writes(e) {
		s.truth.asks(e, d.Asked)
		e.asked, e.number = d.Asked, d.Asked.Replicas
		s.after(s.Between("sets", 0, time.Second), func() { s.reconcile(e) })
		s.changed()
	}
}

// patch changes a Pod, also in the cache.
func (p *process) patch(n int, name string, do func(*Pod)) {
	e := p.s.entries[n]
	pod := e.pods[name]
	if pod == nil || !p.writes(e) {
		return
	}
	do(&pod.Pod)
	for i := range p.seen[n] {
		if p.seen[n][i].Name == name {
			do(&p.seen[n][i])
		}
	}
	p.s.changed()
}

func sameRecord(a, b Record) bool {
	same := a.LastFailure == b.LastFailure || a.LastFailure != nil && b.LastFailure != nil && *a.LastFailure == *b.LastFailure
	return same && a.Hash == b.Hash && a.Failures == b.Failures && a.BackoffUntil.Equal(b.BackoffUntil)
}
