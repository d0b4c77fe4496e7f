package decide

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// simulation is a cluster with one Model, a controller that is killed now and then, and clients. It has
// a clock of its own: nothing runs beside anything else.
type simulation struct {
	schedules.Draws
	now     time.Time
	queue   events
	entries []*simEntry
	model   Model // its Entries, Demand and Now are filled in each pass
	delay   time.Duration
	demand  int
	kept    int       // the demand at rest
	stuck   *simEntry // works not even then; nil: all do
	calm    bool
	proc    *process
	truth   *truth
	names   int
	trace   bool
	story   []string
}

// simEntry is an entry with its hardware, Deployment and Pods.
type simEntry struct {
	spec   Entry
	pods   map[string]*simPod
	stock  int  // how many Pods its hardware has room for
	quota  int  // how many Pods may be created
	broken bool // its engines fail
	starts time.Duration
	told   *Failure // the condition of its Deployment

	// These fields have what the controller has written.
	asked  Asked
	record Record
	number int // of the Deployment, which others write too
}

type simPod struct {
	Pod
	of     *simEntry
	placed bool
}

// event is what happens at a time. Events of one time happen in the order in which they were planned.
type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(a, b int) bool {
	return cmp.Or(e[a].at.Compare(e[b].at), cmp.Compare(e[a].order, e[b].order)) < 0
}
func (e events) Swap(a, b int) { e[a], e[b] = e[b], e[a] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *simulation) after(d time.Duration, do func()) {
	s.names++
	heap.Push(&s.queue, event{s.now.Add(d), s.names, do})
}

func (s *simulation) below(kind string, n int) int { return int(s.Draw(kind, uint64(n))) }

func (s *simulation) note(format string, args ...any) {
	if s.trace {
		s.story = append(s.story, fmt.Sprintf("%9.3fs  ", s.now.Sub(now).Seconds())+fmt.Sprintf(format, args...))
	}
}

// play lets time pass.
func (s *simulation) play(d time.Duration) {
	end := s.now.Add(d)
	for len(s.queue) > 0 && !s.queue[0].at.After(end) && len(s.truth.wrong) == 0 {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
	s.now = end
}

// changed has the controller see what has happened, a moment later.
func (s *simulation) changed() {
	if p := s.proc; !p.sees {
		p.sees = true
		s.after(s.Between("lag", 0, 300*time.Millisecond), p.see)
	}
}

// build draws a Model.
func (s *simulation) build() {
	s.model = Model{Mode: Requests}
	if s.Chance("external", 15) {
		s.model.Mode = External
	}
	s.delay = s.Between("delay", 0, 5*time.Minute).Truncate(time.Second)
	others := 1 + s.below("entries", 4)
	group, grouped := 0, s.Chance("grouped", 60)
	for n := range others + s.below("standbys", 3) {
		e := entry(string(rune('a' + n)))
		e.Unschedulable = s.Between("unschedulable", time.Second, 40*time.Second)
		e.ScaleUpTimeout = s.Between("timeout", time.Minute, 10*time.Minute)
		if n >= others {
			e.Target, e.Min, e.Max = 0, 1+s.below("standby", 2), 0
		} else {
			e.Target = []int{50, 100, 100, 250}[s.below("target", 4)]
			e.Max = []int{0, 0, 1, 2, 4}[s.below("max", 5)]
			e.Min = []int{0, 0, 0, 0, 1}[s.below("min", 5)]
			if s.Chance("apart", 35) {
				group++
			}
			if grouped {
				e.Group = fmt.Sprint("g", group)
			}
		}
		s.entries = append(s.entries, &simEntry{spec: e, pods: map[string]*simPod{}, stock: 1000, quota: 1000, starts: s.Between("starts", time.Second, 3*time.Minute)})
	}
	s.model.TotalMin = []int{0, 0, 0, 1, 2}[s.below("total min", 5)]
	if s.Chance("total max", 30) {
		s.model.TotalMax = s.model.TotalMin + 1 + s.below("total", 5)
	}
	s.kept = s.below("rest", 4) * 60
	if s.Chance("stuck", 40) {
		s.stuck = s.entries[s.below("which is stuck", len(s.entries))]
	}
}

// setDemand has clients ask for so much.
func (s *simulation) setDemand(n int) {
	if s.demand != n {
		s.note("--- the demand is %d", n)
		s.demand = n
		s.truth.demands(n)
		s.proc.told()
	}
}

// reconcile does what the Deployment's ReplicaSet does.
func (s *simulation) reconcile(e *simEntry) {
	active := e.active()
	for n := len(active); n < e.number; n++ {
		if n >= e.quota {
			if e.told == nil {
				e.told = &Failure{"QuotaExceeded", "exceeded quota", s.now}
				s.changed()
			}
			s.after(5*time.Second, func() { s.reconcile(e) })
			return
		}
		s.create(e)
	}
	if e.told != nil {
		e.told = nil
		s.changed()
	}
	for n := range len(active) - e.number {
		if p := active[n]; p.Ready && p.Serving && e.number == e.asked.Replicas {
			s.truth.violated("victim", "the ReplicaSet deletes Pod %s, which serves", p.Name)
		}
		s.remove(active[n], "its ReplicaSet")
	}
}

// active returns the Pods that count for a ReplicaSet, in the order in which it deletes them.
func (e *simEntry) active() []*simPod {
	all := slices.DeleteFunc(slices.Collect(maps.Values(e.pods)), func(p *simPod) bool { return p.Leaving })
	slices.SortFunc(all, func(a, b *simPod) int {
		return cmp.Or(first(!a.placed, !b.placed), first(!a.Ready, !b.Ready), cmp.Compare(a.Cost, b.Cost), b.Since.Compare(a.Since), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (s *simulation) create(e *simEntry) {
	s.names++
	p := &simPod{Pod: Pod{Name: fmt.Sprint(e.spec.Name, s.names), Since: s.now, Hot: s.Chance("hot", 50)}, of: e}
	e.pods[p.Name] = p
	s.note("Pod %s is created", p.Name)
	s.place(p)
	s.changed()
}

// place gives a Pod a node as soon as there is one.
func (s *simulation) place(p *simPod) {
	e := p.of
	taken := 0
	for _, other := range e.pods {
		if other.placed {
			taken++
		}
	}
	switch {
	case p.Leaving || p.placed:
	case taken < e.stock:
		p.placed, p.Unschedulable = true, nil
		s.start(p)
	default:
		if p.Unschedulable == nil {
			p.Unschedulable = &Failure{Time: s.now, Message: "0/2 nodes are available"}
			s.changed()
		}
		s.after(3*time.Second, func() { s.place(p) })
	}
}

// start has the engine of a Pod start, and fail or hang if it is broken.
func (s *simulation) start(p *simPod) {
	takes := p.of.starts/2 + s.Between("start", 0, p.of.starts)
	if s.Chance("at once", 50) { // several Pods are ready at one time
		takes = takes.Round(10 * time.Second)
	}
	takes = max(takes, 2*time.Second) // longer than a cache is behind and a ReplicaSet takes
	if s.calm && p.of != s.stuck {
		takes = min(takes, p.of.spec.ScaleUpTimeout/2)
	}
	s.after(takes, func() {
		hangs := !s.calm && s.Chance("hangs", 4)
		switch {
		case p.Leaving && !s.Chance("ready late", 50) || p.of.pods[p.Name] == nil:
		case p.of.broken || !s.calm && s.Chance("fails", 8):
			p.Failure = &Failure{"EngineFailed", "exit 1", s.now}
			s.note("the engine of Pod %s fails", p.Name)
			s.changed()
		case !hangs:
			p.Ready, p.Since = true, s.now
			s.truth.ready(p)
			s.note("Pod %s is ready", p.Name)
			s.changed()
		}
	})
}

// remove has a Pod be deleted; it goes when it has drained.
func (s *simulation) remove(p *simPod, by string) {
	if p.Leaving {
		return
	}
	s.note("Pod %s is deleted by %s", p.Name, by)
	p.Leaving = true
	s.after(s.Between("drain", 0, 5*time.Second), func() {
		delete(p.of.pods, p.Name)
		s.changed()
	})
	s.after(s.Between("replace", 0, 200*time.Millisecond), func() { s.reconcile(p.of) })
	s.changed()
}

// lapse has a Pod that was ready not be so for a while, or for good.
func (s *simulation) lapse(p *simPod) {
	s.note("the engine of Pod %s dies", p.Name)
	p.Ready, p.Since = false, s.now
	s.changed()
	if s.Chance("dies", 50) {
		s.after(s.Between("dying", 0, time.Second), func() { p.Failure = &Failure{"EngineFailed", "killed", s.now}; s.changed() })
		return
	}
	s.after(s.Between("lapse", 0, 20*time.Second), func() {
		if !p.Leaving && p.Failure == nil && !p.Ready {
			p.Ready, p.Since = true, s.now
			s.truth.ready(p)
			s.changed()
		}
	})
}
