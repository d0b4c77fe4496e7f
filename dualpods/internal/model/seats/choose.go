package seats

import (
	"cmp"
	"slices"

	"hotseat.dev/hotseat/dualpods"
)

// seatAll gives a seat to each entry that waits, one after the other: to entries below their minReplicas first, then to
// entries with the fewest seats, and then to those that have waited the longest.
func (p *pass) seatAll() {
	for again := true; again; {
		again = p.seatOne()
	}
}

// seatOne gives one entry a seat, or has a seat drain for it, and reports whether it did. Each seat that drains already is
// for one of the first entries that wait. Each seat gets at most one step or is kept for one entry, so this ends.
func (p *pass) seatOne() bool {
	draining := p.draining()
	for at, c := range p.waiting() {
		switch s := p.choose(c); {
		case s == nil:
			if at >= draining && p.drainFor(c) {
				return true
			}
		case p.isSoonFree(s) && !s.isStill(c):
			s.keepFor(c)
			return true
		case s.owner != nil && !p.isUnused(s): // a request may be on its way to it
			row, loses := s.rowFor(c), s.Claim
			p.leave(s, row, "%s waits for a seat, and %s has no request", c.Name, loses)
			s.keepFor(c)
			return true
		default:
			s.take(c)
			return true
		}
	}
	return false
}

// waiting returns the entries that wait and for which no seat is kept, in the order in which they get seats.
func (p *pass) waiting() (all []*claim) {
	for _, c := range p.claims {
		if c.waits() && !c.kept {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *claim) int {
		return cmp.Or(dualpods.TrueFirst(a.isUrgent(), b.isUrgent()), cmp.Compare(len(a.has), len(b.has)), a.WaitsFrom.Compare(b.WaitsFrom), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// draining returns how many seats will be free once their requests have ended, and are kept for no entry.
func (p *pass) draining() (n int) {
	for _, s := range p.seats {
		if s.isOnItsWay() {
			n++
		}
	}
	return n
}

// isOnItsWay reports whether the seat will be free once its requests have ended, and is kept for no entry.
func (s *seat) isOnItsWay() bool {
	return s.owner == nil && s.Claim != "" && !s.free && !s.goes && !s.kept
}

// isSoonFree reports whether a seat will be free after Settle, because it has no requests.
func (p *pass) isSoonFree(s *seat) bool { return s.isOnItsWay() && p.isQuiet(s) }

// keepFor keeps a seat that will be free for an entry.
func (s *seat) keepFor(c *claim) { s.kept, c.kept = true, true }

// choose returns a seat for an entry that is free, or will be after Settle, or whose Model is idle; nil: there is none.
func (p *pass) choose(c *claim) *seat {
	var best *seat
	for _, s := range p.seats {
		if (s.free || p.isSoonFree(s) || p.isIdleOther(s, c)) && (best == nil || p.isBetter(c, s, best)) {
			best = s
		}
	}
	return best
}

// isIdleOther reports whether a seat can be taken from another entry, whose Model has no request.
func (p *pass) isIdleOther(s *seat, by *claim) bool {
	o := s.owner
	return o != nil && o != by && s.step == nil && o.Requests == 0 && !o.Firm && p.isQuiet(s) && o.canSpare(s)
}

// canSpare reports whether an entry has minReplicas ready seats without this one.
func (c *claim) canSpare(s *seat) bool {
	ready := 0
	for _, has := range c.has {
		if has != s && has.Ready {
			ready++
		}
	}
	return ready >= c.Min
}

// isBetter reports whether seat a is better than seat b for an entry. The best is a seat behind which its model sleeps,
// then a free seat, then one that is about to be free, then a seat of the Model that was used the longest ago. Of free seats, the best is the one behind
// which the fewest models sleep.
func (p *pass) isBetter(c *claim, a, b *seat) bool {
	order := cmp.Or(
		dualpods.TrueFirst(a.hasAsleep(c), b.hasAsleep(c)), dualpods.TrueFirst(a.free, b.free), dualpods.TrueFirst(p.isSoonFree(a), p.isSoonFree(b)), a.lastUsed().Compare(b.lastUsed()), cmp.Compare(a.Sleepers, b.Sleepers), cmp.Compare(a.Name, b.Name),
	)
	return order < 0
}

// hasAsleep reports whether the model of an entry sleeps behind a seat, or is still awake there.
func (s *seat) hasAsleep(c *claim) bool { return s.isStill(c) || slices.Contains(s.Asleep, c.Name) }

// isStill reports whether a seat that was to lose the model of an entry still has it.
func (s *seat) isStill(c *claim) bool { return s.Claim == c.Name && s.Hash == c.Hash }

// rowFor returns the row by which an entry gets a seat that has another model or none.
func (s *seat) rowFor(c *claim) Row {
	switch {
	case s.hasAsleep(c):
		return RowAsleep
	case s.free:
		return RowFree
	default:
		return RowIdle
	}
}

// take gives a seat to an entry.
func (s *seat) take(c *claim) {
	switch row := s.rowFor(c); {
	case s.isStill(c):
		s.do(Stay, RowKept, "no other entry waits for it any more")
	case row == RowAsleep:
		s.do(Assign, row, "the model of %s sleeps behind it", c.Name)
	case row == RowFree:
		s.do(Assign, row, "%s waits for a seat, and this one is free", c.Name)
	default:
		s.do(Assign, row, "%s waits for a seat, and %s has no request", c.Name, s.owner.Name)
	}
	if s.step.Do == Assign {
		s.step.Claim = c.Name
	}
	if o := s.owner; o != nil {
		o.has = slices.DeleteFunc(o.has, func(has *seat) bool { return has == s })
	}
	s.owner, s.free = c, false
	c.has = append(c.has, s)
}

// drainFor has a seat of another entry drain for one that waits, and reports whether there is one.
func (p *pass) drainFor(c *claim) bool {
	var best *seat
	for _, s := range p.seats {
		if p.mayBeTaken(s, c) && (best == nil || isLongerThere(s, best)) {
			best = s
		}
	}
	if best == nil {
		return false
	}
	p.leave(best, RowBusy, "%s waits for a seat, and %s has had this one the longest", c.Name, best.Claim)
	return true
}

// mayBeTaken reports whether a seat may be taken from another entry, whose Model has requests. A Model that is starting on
// the seat keeps it. An entry with seats takes one only from an entry that has at least two more. An entry that has just
// lost a seat waits before it takes one.
func (p *pass) mayBeTaken(s *seat, by *claim) bool {
	o := s.owner
	if !p.Known || o == nil || o == by || s.step != nil || !s.Ready || !o.canSpare(s) {
		return false
	}
	if !by.isUrgent() && len(by.has) > 0 && len(o.has) < len(by.has)+2 {
		return false
	}
	if turn := by.LostAt.Add(p.MinResidency); turn.After(p.Now) && !by.isUrgent() {
		p.remind(turn)
		return false
	}
	until := s.ReadySince.Add(p.MinResidency)
	p.remind(until)
	return !until.After(p.Now)
}

// isLongerThere reports whether the model of seat a has had its seat longer than that of seat b. If the times are equal,
// the entry with the least demand for its weight loses its seat.
func isLongerThere(a, b *seat) bool {
	return cmp.Or(a.ReadySince.Compare(b.ReadySince), cmp.Compare(a.owner.load(), b.owner.load()), cmp.Compare(a.Name, b.Name)) < 0
}

// load is the demand for an entry, divided by its weight.
func (c *claim) load() float64 { return float64(c.Requests) / float64(max(c.Weight, 1)) }

// keepUnneeded has draining seats take requests again if no entry waits for them, and releases drained seats that no entry
// took. It keeps one draining seat for each entry that waits: its own, if there is one.
func (p *pass) keepUnneeded() {
	var left []*seat
	for _, s := range p.seats {
		if s.isLeaving() && s.owner == nil && !s.goes && !s.kept && s.step == nil && s.Claim != "" {
			left = append(left, s)
		}
	}
	waiting := p.waiting()
	for at, c := range waiting {
		own := slices.IndexFunc(left, func(s *seat) bool { return s.isStill(c) })
		switch {
		case own >= 0:
			left[own].take(c)
			left = slices.Delete(left, own, own+1)
		case len(left) > 0: // rather one that no later entry has
			later := func(s *seat) bool { return slices.ContainsFunc(waiting[at:], s.isStill) }
			of := max(slices.IndexFunc(left, func(s *seat) bool { return !later(s) }), 0)
			left = slices.Delete(left, of, of+1)
		}
	}
	for _, s := range left {
		if c := p.by[s.Claim]; c != nil && len(c.has) < c.Wants && s.isStill(c) {
			s.take(c)
		} else {
			p.release(s, "no entry waits for it")
		}
	}
}
