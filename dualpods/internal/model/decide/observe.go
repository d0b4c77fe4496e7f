package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// numbers is an entry with the numbers that the steps of a decision change.
type numbers struct {
	*Entry
	record  Record
	alive   []*Pod // that are not being deleted; those that stay come first
	serving int    // Pods that are ready and have the label
	ready   int    // replicas that are ready and are to serve
	hope    int    // replicas that are waited for
	goal    int    // of the race of its group; 0: its replicas do not race
	row     Row
	why     string
}

func (e *numbers) isStandby() bool { return e.Target == 0 }

// number returns how many replicas the entry is to have.
func (e *numbers) number() int { return e.ready + e.hope }

// racing returns how many of the replicas that are waited for race. Replicas of the minimum do not.
func (e *numbers) racing() int {
	if e.goal == 0 {
		return 0
	}
	return max(min(e.hope, e.number()-e.Min), 0)
}

// carries returns what so many replicas of the entry carry.
func (e *numbers) carries(replicas int) load { return load{float64(replicas * e.Target), replicas} }

// say notes the row that has changed the number. hint notes a row that has changed nothing, if no other
// one has.
func (e *numbers) say(row Row, format string, args ...any) {
	e.row, e.why = row, fmt.Sprintf(format, args...)
}

func (e *numbers) hint(row Row, format string, args ...any) {
	if e.row == "" {
		e.say(row, format, args...)
	}
}

func (e *numbers) backsOff(now time.Time) bool { return now.Before(e.record.BackoffUntil) }

// isInvalid reports whether the entry cannot run before it is edited.
func (e *numbers) isInvalid() bool {
	return e.Invalid != "" || e.record.WaitsForEdit()
}

// drop takes one replica away, first of those that are waited for.
func (e *numbers) drop() {
	if e.hope > 0 {
		e.hope--
	} else {
		e.ready--
	}
}

// unit is one entry, or the members of a group.
type unit struct{ members []*numbers }

// ready returns what the ready replicas of a unit carry.
func (u *unit) ready() (l load) {
	for _, e := range u.members {
		l = l.plus(e.carries(e.ready))
	}
	return l
}

// hope returns what replicas of a unit would carry that are waited for. A race counts once: as the
// member with the most.
func (u *unit) hope() (l load) {
	racing := u.racing()
	for _, e := range u.members {
		l = l.plus(e.carries(e.hope - e.racing()))
	}
	return l.plus(racing)
}

func (u *unit) racing() (l load) {
	for _, e := range u.members {
		of := e.carries(e.racing())
		l = load{max(l.demand, of.demand), max(l.replicas, of.replicas)}
	}
	return l
}

// observe reads a Model, and takes back what has failed.
func observe(m *Model) *pass {
	p := &pass{Model: m, entries: make([]*numbers, 0, len(m.Entries))}
	serves := false
	for n := range m.Entries {
		e := p.observeEntry(&m.Entries[n])
		p.entries = append(p.entries, e)
		serves = serves || e.serving > 0
		if e.isStandby() {
			continue
		}
		if last := len(p.units) - 1; e.Group != "" && last >= 0 && p.units[last].members[0].Group == e.Group {
			p.units[last].members = append(p.units[last].members, e)
		} else {
			p.units = append(p.units, &unit{[]*numbers{e}})
		}
	}
	p.up, p.known = m.Demand.Mean, m.Demand.Known
	if m.Demand.Held > 0 && !serves {
		p.up = max(p.up, float64(m.Demand.Now))
	}
	if p.isAtRest() && !serves {
		p.up = 0
	}
	p.down = max(p.up, float64(m.Demand.Peak))
	if m.Mode == External {
		p.up, p.down, p.known = float64(m.Replicas), float64(m.Replicas), true
	}
	return p
}

// mostReplicas bounds the replicas of an entry. Users may edit the annotation that says how many the controller asked
// for, and replicas are taken away one by one.
const mostReplicas = 100_000

// observeEntry reads an entry. In mode External a replica counts as one, whatever it carries.
func (p *pass) observeEntry(of *Entry) *numbers {
	e := &numbers{Entry: of}
	asked := min(max(e.Asked.Replicas, 0), mostReplicas)
	switch {
	case p.Mode == Off:
		asked = e.Replicas
		e.say(RowOff, "spec.autoscaling.mode is Off, and nothing is scaled")
	case p.Mode == External && !e.isStandby():
		one := *of
		one.Target, e.Entry = 1, &one
	}
	e.record = of.Record.asOf(p.Now, of.Hash)
	if e.Group != "" && p.Mode != Off && !e.isStandby() {
		e.goal = e.Asked.Goal
	}
	candidates := 0 // ready Pods that are not admitted yet
	for n := range e.Pods {
		pod := &e.Pods[n]
		if pod.Leaving {
			continue
		}
		e.alive = append(e.alive, pod)
		switch {
		case !pod.Ready:
			continue
		case e.goal > 0 && !pod.Admitted && !pod.Serving:
			candidates++
		default:
			e.ready++
		}
		if pod.Serving {
			e.serving++
		}
		if f := e.record.LastFailure; f != nil && pod.Since.After(f.Time) {
			e.record.Failures, e.record.BackoffUntil = 0, time.Time{}
		}
	}
	e.ready = min(e.ready, asked)
	e.hope = min(asked-e.ready, candidates+p.hopeful(e, asked))
	slices.SortStableFunc(e.alive, p.staysLonger(e))
	return e
}

// asOf returns a record as it counts now. An edit of the entry ends it, and no pause is longer than a
// controller with another clock could have meant.
func (r Record) asOf(now time.Time, hash string) Record {
	if r.Hash != hash || r.LastFailure == nil {
		return Record{Hash: hash}
	}
	if latest := wholeSecond(now).Add(longestPause); r.BackoffUntil.After(latest) {
		r.BackoffUntil = latest
	}
	return r
}

// hopeful returns how many replicas of an entry are not ready and have not failed, and notes the
// failure of those that have.
func (p *pass) hopeful(e *numbers, asked int) (n int) {
	if e.Invalid != "" {
		if f := e.record.LastFailure; f == nil || f.Reason != ReasonInvalid || f.Message != e.Invalid {
			e.record.LastFailure = &Failure{ReasonInvalid, e.Invalid, wholeSecond(p.Now)}
		}
		e.record.Failures, e.record.BackoffUntil = 0, time.Time{}
		e.hint(RowInvalid, "it is not tried before an edit: %s", e.Invalid)
		return 0
	}
	if f := e.record.LastFailure; f != nil && f.Reason == ReasonInvalid && e.record.Failures == 0 {
		e.record.LastFailure = nil
	}
	for _, pod := range e.alive {
		if pod.Ready {
			continue
		}
		switch row, f := p.failed(e, pod); {
		case f == nil:
			n++
		case pod.Cost != goesFirst: // else it was to go before it failed
			p.note(e, row, f)
		}
	}
	return n + p.uncreated(e, asked)
}

// uncreated returns how many replicas of an entry have no Pod or seat yet and may get one. It notes why others may not.
func (p *pass) uncreated(e *numbers, asked int) int {
	uncreated := max(asked-len(e.alive), 0)
	if uncreated == 0 {
		return 0
	}
	if e.Refused != nil {
		p.note(e, RowRefused, e.Refused)
		return 0
	}
	if f := e.NoSeat; f != nil {
		if p.isOver(f.Time, e.Unschedulable) {
			p.note(e, RowUnschedulable, &Failure{Reason: ReasonUnschedulable, Message: fmt.Sprintf("there has been no seat for %s: %s", e.Unschedulable, f.Message), Time: f.Time.Add(e.Unschedulable)})
			return 0
		}
		p.remind(f.Time.Add(e.Unschedulable))
	}
	if kept := max(e.Min-len(e.alive), 0); e.Seated && p.isAtRest() && uncreated > kept {
		e.hint(RowLess, "another Model has its seat, and no request needs it")
		uncreated = kept
	}
	return uncreated
}

// isAtRest reports whether a Model with seats has no request. Other Models may take its seats then. It gets a seat again
// at the next request.
func (p *pass) isAtRest() bool {
	seated := slices.ContainsFunc(p.Entries, func(e Entry) bool { return e.Seated })
	return seated && p.Mode == Requests && p.Demand.Now == 0
}

// failed returns why a Pod that is not ready has failed; nil: it may become ready.
func (p *pass) failed(e *numbers, pod *Pod) (Row, *Failure) {
	if pod.Failure != nil {
		return RowFailed, pod.Failure
	}
	if u := pod.Unschedulable; u != nil {
		if p.isOver(u.Time, e.Unschedulable) {
			return RowUnschedulable, &Failure{Reason: ReasonUnschedulable, Message: fmt.Sprintf("Pod %s has been unschedulable for %s: %s", pod.Name, e.Unschedulable, u.Message), Time: u.Time.Add(e.Unschedulable)}
		}
		p.remind(u.Time.Add(e.Unschedulable))
	}
	if p.isOver(pod.Since, e.ScaleUpTimeout) {
		return RowNotReady, &Failure{Reason: ReasonNotReady, Message: fmt.Sprintf("Pod %s has not been ready for %s", pod.Name, e.ScaleUpTimeout), Time: pod.Since.Add(e.ScaleUpTimeout)}
	}
	p.remind(pod.Since.Add(e.ScaleUpTimeout))
	return "", nil
}

func (p *pass) hasFailed(e *numbers, pod *Pod) bool {
	if pod.Ready {
		return false
	}
	_, f := p.failed(e, pod)
	return f != nil
}

func (p *pass) isOver(since time.Time, limit time.Duration) bool { return p.Now.Sub(since) >= limit }

// The back-off of an entry.
const (
	firstPause   = 30 * time.Second
	longestPause = 30 * time.Minute
)

// note notes a failure. Others that come while the entry backs off are of the same attempt: they do not
// count, but the pause begins anew. Wrong input has no pause, as only an edit helps.
func (p *pass) note(e *numbers, row Row, f *Failure) {
	r := &e.record
	switch {
	case e.isInvalid():
		return
	case f.Reason == ReasonInvalid:
		e.hint(RowInvalid, "it is not tried before an edit: %s", f.Message)
		r.Failures, r.BackoffUntil = r.Failures+1, time.Time{}
		r.LastFailure = &Failure{f.Reason, f.Message, wholeSecond(p.Now)}
		return
	}
	e.hint(row, "%s: %s", f.Reason, f.Message)
	if !e.backsOff(p.Now) {
		r.Failures++
		r.LastFailure = &Failure{f.Reason, f.Message, wholeSecond(p.Now)}
		r.BackoffUntil = r.LastFailure.Time.Add(pauseAfter(r.Failures))
	} else if until := wholeSecond(f.Time).Add(pauseAfter(r.Failures)); until.After(r.BackoffUntil) {
		r.BackoffUntil = until
	}
}

// pauseAfter returns the pause after so many failures.
func pauseAfter(failures int) time.Duration {
	if doubled := failures - 1; doubled < 6 {
		return min(firstPause<<doubled, longestPause)
	}
	return longestPause
}

// wholeSecond rounds a time up to what a status can keep, so that no pause becomes shorter.
func wholeSecond(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// staysLonger orders the Pods of an entry: those that go last come first. A Pod that was chosen to go
// has lost its label, or has a lower cost, so that it is chosen again.
func (p *pass) staysLonger(e *numbers) func(a, b *Pod) int {
	return func(a, b *Pod) int {
		return cmp.Or(
			first(a.Ready, b.Ready),
			-first(p.hasFailed(e, a), p.hasFailed(e, b)),
			first(a.Serving, b.Serving),
			first(a.Admitted, b.Admitted),
			cmp.Compare(b.Cost, a.Cost),
			first(a.Hot, b.Hot),
			cmp.Compare(b.InFlight, a.InFlight),
			-first(a.Unschedulable != nil, b.Unschedulable != nil),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Name, b.Name),
		)
	}
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
