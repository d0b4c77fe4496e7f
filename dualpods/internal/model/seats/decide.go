package seats

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/dualpods"
)

// pass is one decision about a pool.
type pass struct {
	*Pool
	d      *Decision
	seats  []*seat
	claims []*claim
	by     map[string]*claim
}

// seat is a seat with the decision about it.
type seat struct {
	*Seat
	owner *claim // that has it and keeps it; nil: none
	free  bool   // it can be given a model at once
	goes  bool   // its Pod goes
	kept  bool   // it is kept for an entry, until it is free
	step  *Step
}

// claim is a claim with the seats that it keeps.
type claim struct {
	Claim
	has  []*seat
	kept bool // a seat is kept for it
}

// Decide decides what is to be done about a pool. Call it again after each change, also by its own steps, and after
// Again.
func Decide(of *Pool) *Decision {
	p := &pass{Pool: of, d: &Decision{}, by: map[string]*claim{}}
	for i := range of.Claims {
		c := &claim{Claim: of.Claims[i]}
		p.claims = append(p.claims, c)
		p.by[c.Name] = c
	}
	for i := range of.Seats {
		p.seats = append(p.seats, &seat{Seat: &of.Seats[i]})
	}
	slices.SortFunc(p.seats, func(a, b *seat) int { return cmp.Compare(a.Name, b.Name) })
	p.giveBack()
	p.removeSurplus()
	p.follow()
	p.seatAll()
	p.keepUnneeded()
	p.replace()
	for _, c := range p.claims {
		c.kept = false // it has no seat yet
	}
	for _, c := range p.waiting() {
		p.d.Waiting = append(p.d.Waiting, c.Name)
	}
	for _, s := range p.seats {
		if s.step != nil {
			p.d.Steps = append(p.d.Steps, *s.step)
		}
	}
	return p.d
}

func (s *seat) do(do Action, row Row, format string, args ...any) {
	s.step = &Step{Do: do, Seat: s.Name, Row: row, Why: fmt.Sprintf(format, args...)}
}

// isLeaving reports whether the seat takes no new requests for its model.
func (s *seat) isLeaving() bool { return !s.Leaves.IsZero() }

// isDrained reports whether the seat's model may fall asleep: it has no requests, or the time of the drain is over. That
// time begins when the seat leaves.
func (p *pass) isDrained(s *seat) bool {
	if !s.isLeaving() {
		return p.isUnused(s)
	}
	if settled := s.Leaves.Add(Settle); settled.After(p.Now) {
		p.remind(settled)
		return false
	}
	if p.isQuiet(s) {
		return true
	}
	p.remind(s.Leaves.Add(p.Drain))
	return p.Now.Sub(s.Leaves) >= p.Drain
}

// Settle is for how long a seat takes no new requests at least before its model sleeps. After this time, front doors have
// seen that the label is gone, and have told the requests that they passed on before.
const Settle = 100 * time.Millisecond

// isUnused reports whether front doors pass no requests on to a seat, and it has none.
func (p *pass) isUnused(s *seat) bool { return !s.Serving && p.isQuiet(s) }

// isQuiet reports whether a seat answers no request, as far as that is known.
func (p *pass) isQuiet(s *seat) bool { return p.Known && s.InFlight == 0 }

func (p *pass) remind(at time.Time) {
	if left := at.Sub(p.Now); left > 0 && (p.d.Again == 0 || left < p.d.Again) {
		p.d.Again = left
	}
}

// giveBack finds which entry has which seat. It releases the seats of entries that are gone or ask for fewer, and frees
// the seats that have drained for another Model.
func (p *pass) giveBack() {
	for _, s := range p.seats {
		c := p.by[s.Claim]
		switch {
		case s.Claim == "":
			s.free = s.Usable
		case s.Edited:
			p.release(s, "somebody else has edited the annotations that say which model it has")
		case c == nil:
			p.release(s, "its entry does not ask for seats any more")
		case s.isLeaving():
			s.free = p.isDrained(s)
		default:
			s.owner = c
			c.has = append(c.has, s)
		}
	}
	for _, c := range p.claims {
		slices.SortStableFunc(c.has, staysLonger)
		for len(c.has) > max(c.Wants, 0) {
			last := c.has[len(c.has)-1]
			c.has, last.owner = c.has[:len(c.has)-1], nil
			p.release(last, "its entry asks for %d seats, and has more", c.Wants)
		}
	}
}

// release frees a seat, once its requests have ended.
func (p *pass) release(s *seat, format string, args ...any) {
	switch {
	case p.isDrained(s):
		s.free = true
		s.do(Release, RowNotWanted, format, args...)
	case !s.isLeaving():
		s.do(Drain, RowNotWanted, format, args...)
	}
}

// staysLonger orders the seats of an entry: the one that is given back last comes first.
func staysLonger(a, b *seat) int {
	return cmp.Or(
		dualpods.TrueFirst(!a.Goes, !b.Goes), dualpods.TrueFirst(a.Ready, b.Ready), dualpods.TrueFirst(a.Serving, b.Serving), cmp.Compare(b.InFlight, a.InFlight), a.ReadySince.Compare(b.ReadySince), cmp.Compare(a.Name, b.Name),
	)
}

// follow gives a seat the edited model of its entry: one seat of an entry at a time, once its requests have ended.
func (p *pass) follow() {
	for _, c := range p.claims {
		var old *seat
		starting := false
		for _, s := range c.has {
			switch {
			case s.Hash == c.Hash:
				starting = starting || !s.Ready
			case old == nil || !s.Ready || p.isQuiet(s) && !p.isQuiet(old):
				old = s
			}
		}
		switch {
		case old == nil || old.goes || starting && old.Ready:
		case p.isUnused(old):
			old.do(Assign, RowEdited, "its entry was edited")
			old.step.Claim = c.Name
		default:
			p.leave(old, RowEdited, "its entry was edited")
		}
	}
}

// leave has a seat take no new requests, so that it is free once its requests have ended.
func (p *pass) leave(s *seat, row Row, format string, args ...any) {
	s.do(Drain, row, format, args...)
	c := s.owner
	c.has, s.owner = slices.DeleteFunc(c.has, func(has *seat) bool { return has == s }), nil
	c.WaitsFrom, c.LostAt = p.Now, p.Now
	p.remind(p.Now.Add(p.Drain))
}

// waits reports whether an entry is to get one more seat. It gets none for requests that have ended meanwhile.
func (c *claim) waits() bool {
	return len(c.has) < c.Wants && (c.Requests > 0 || c.Firm || c.isUrgent())
}

// isUrgent reports whether an entry has fewer seats than its minReplicas.
func (c *claim) isUrgent() bool { return len(c.has) < min(c.Min, c.Wants) }

// removeSurplus deletes surplus seats: seats without a model first, and then seats whose Model has no request.
func (p *pass) removeSurplus() {
	surplus := len(p.seats) - p.Replicas
	if surplus <= 0 {
		return
	}
	all := slices.SortedStableFunc(slices.Values(p.seats), func(a, b *seat) int {
		return cmp.Or(dualpods.TrueFirst(!a.Usable && a.Claim == "", !b.Usable && b.Claim == ""), dualpods.TrueFirst(a.Claim == "", b.Claim == ""), dualpods.TrueFirst(a.Outdated, b.Outdated), a.lastUsed().Compare(b.lastUsed()), cmp.Compare(b.Name, a.Name))
	})
	for _, s := range all {
		if surplus > 0 && p.mayGo(s) {
			s.remove(RowSurplus, "the pool has %d seats, and spec.replicas is %d", len(p.seats), p.Replicas)
			surplus--
		}
	}
}

func (s *seat) lastUsed() (last time.Time) {
	if s.owner != nil {
		last = s.owner.LastUsed
	}
	return last
}

// mayGo reports whether a seat's Pod may be deleted now.
func (p *pass) mayGo(s *seat) bool {
	switch {
	case s.goes:
		return false
	case s.Claim == "":
		return true
	default:
		return p.isQuiet(s) && (s.owner == nil || s.owner.Requests == 0)
	}
}

// remove has the Pod of a seat deleted.
func (s *seat) remove(row Row, format string, args ...any) {
	s.do(Delete, row, format, args...)
	if c := s.owner; c != nil {
		c.has = slices.DeleteFunc(c.has, func(has *seat) bool { return has == s })
	}
	s.goes, s.free, s.owner = true, false, nil
}

// replace creates missing seats, and deletes the seats of an earlier template one at a time.
func (p *pass) replace() {
	p.d.Create = max(p.Replicas-len(p.seats), 0)
	if p.d.Create > 0 || slices.ContainsFunc(p.seats, func(s *seat) bool { return s.goes || s.Claim == "" && !s.Usable && !s.Outdated }) {
		return
	}
	for _, s := range p.seats {
		if s.Outdated && (s.step == nil || s.step.Do == Release) && p.mayGo(s) {
			s.remove(RowTemplate, "the template of the pool was edited")
			return
		}
	}
}
