package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// keepMaximums takes away what is above a maximum.
func (p *pass) keepMaximums() {
	for _, e := range p.entries {
		for !e.isStandby() && e.Max > 0 && e.number() > e.Max {
			e.drop()
			e.say(RowMaximum, "%s", p.full(e, RowMaximum))
		}
	}
	if p.TotalMax == 0 {
		return
	}
	for _, hopeful := range []bool{true, false} {
		for _, e := range slices.Backward(p.entries) {
			for !e.isStandby() && (e.hope > 0 || !hopeful) && e.number() > 0 && p.total() > p.TotalMax {
				e.drop()
				e.say(RowTotalMaximum, "%s", p.full(e, RowTotalMaximum))
			}
		}
	}
}

// keepMinimums asks each entry for its minimum.
func (p *pass) keepMinimums() {
	for _, e := range p.entries {
		if !e.isStandby() && e.number() < e.Min && p.mayAsk(e) {
			p.ask(e, e.Min-e.number(), RowMinimum, "minReplicas is %d", e.Min)
		}
		if short := e.Min - e.number(); !e.isStandby() && short > 0 && p.TotalMax > 0 && !e.isInvalid() && !e.backsOff(p.Now) {
			p.limits("entry %s has %d of its minReplicas %d: raise totalMaxReplicas, which is %d", e.Name, e.number(), e.Min, p.TotalMax)
		}
	}
}

// meetDemand asks for what neither ready nor hopeful replicas carry. A controller that was killed while it began a race
// has left members that were not asked: they join.
func (p *pass) meetDemand() {
	for _, u := range p.inOrder() {
		missing, e := p.missing(), u.members[0]
		switch {
		case len(u.members) > 1 && (!missing.isNone() || u.racing().replicas > 0):
			p.askGroup(u, missing)
		case missing.isNone() || len(u.members) > 1:
		case p.mayAsk(e):
			p.ask(e, missing.of(e), RowDemand, "%s", p.wanted())
		}
	}
	if !p.missing().isNone() && p.isFull() {
		p.limits("%s, and the entries that can run have reached maxReplicas or totalMaxReplicas", p.wanted())
	}
}

// wanted says what the replicas are to carry.
func (p *pass) wanted() string {
	c := p.carried()
	switch {
	case p.Mode == External:
		return fmt.Sprintf("%d replicas are wanted, and %d are ready", p.Replicas, c.replicas)
	case p.up > c.demand:
		return fmt.Sprintf("the demand is %.4g, and what is ready carries %.4g", p.up, c.demand)
	default:
		return fmt.Sprintf("totalMinReplicas is %d, and %d are ready", p.TotalMin, c.replicas)
	}
}

// isFull reports whether an entry would be asked for more, if it had room.
func (p *pass) isFull() bool {
	return slices.ContainsFunc(p.entries, func(e *numbers) bool {
		room, _ := p.room(e)
		return !e.isStandby() && room == 0 && !e.isInvalid() && !e.backsOff(p.Now)
	})
}

// inOrder returns the units in the order in which they are asked: that of the list. While nothing
// carries the demand, the one comes first that has not failed, or did so the longest ago.
func (p *pass) inOrder() []*unit {
	if p.carried().replicas > 0 {
		return p.units
	}
	return slices.SortedStableFunc(slices.Values(p.units), func(a, b *unit) int { return a.lastFailed().Compare(b.lastFailed()) })
}

// lastFailed returns when a unit failed last; zero: one of its members has not failed.
func (u *unit) lastFailed() (last time.Time) {
	for _, e := range u.members {
		if e.isInvalid() {
			continue
		}
		if e.record.Failures == 0 {
			return time.Time{}
		}
		if f := e.record.LastFailure.Time; f.After(last) {
			last = f
		}
	}
	return last
}

// followDemandDown takes away what the demand does not need, from the end of the list on.
func (p *pass) followDemandDown() {
	stopped := false
	for _, u := range slices.Backward(p.units) {
		if p.endUnneededRace(u) {
			continue
		}
		for _, e := range slices.Backward(u.members) {
			for e.number() > e.Min && e.racing() == 0 {
				if !p.canLose(e, stopped) {
					stopped = true
					break
				}
				if !p.known {
					e.hint(RowUnknown, "fewer replicas carry the demand, as far as it is known")
					return
				}
				e.drop()
				e.say(RowLess, "the highest demand was %.4g", p.down)
			}
			stopped = stopped || e.racing() > 0
		}
	}
}

// canLose reports whether one replica of an entry is not needed. Once an entry was found that cannot
// lose one, the entries before it keep what they have, but for hopeful replicas that are too many
// whatever becomes of that entry.
func (p *pass) canLose(e *numbers, stopped bool) bool {
	one := e.carries(1)
	switch {
	case e.hope == 0:
		return !stopped && p.suffices(p.served(), one) && p.lastMayGo(e)
	case stopped:
		return p.suffices(p.upTo(e), one)
	default:
		return p.suffices(p.carried().plus(p.hoped()), one)
	}
}

// suffices reports whether enough is left of a load without another one.
func (p *pass) suffices(whole, without load) bool {
	return whole.demand-without.demand >= p.down && whole.replicas-without.replicas >= p.TotalMin
}

// upTo returns what the entries up to one carry, with the replicas that they hope for.
func (p *pass) upTo(last *numbers) (l load) {
	for _, u := range p.units {
		for _, e := range u.members {
			l = l.plus(e.carries(e.number()))
			if e == last {
				return l
			}
		}
	}
	return l
}

// lastMayGo reports whether a ready replica may go. The last one stays until a standby serves.
func (p *pass) lastMayGo(e *numbers) bool {
	if p.served().replicas > 1 || !p.known {
		return true
	}
	standbys := 0
	for _, s := range p.entries {
		if !s.isStandby() || s.Min == 0 {
			continue
		}
		standbys++
		if s.serving >= s.Min {
			return true
		}
	}
	if standbys == 0 {
		return true
	}
	p.lastStays = true
	e.say(RowLast, "no request needs it, and no standby is ready at its minReplicas")
	return false
}

// tryPreferred asks an entry for one replica while a later one serves, which it could replace.
func (p *pass) tryPreferred() {
	at := p.lastServing()
	if at < 0 || p.suffices(p.served(), p.entries[at].carries(1)) { // else it goes as it is
		return
	}
	last := p.entries[at]
	could, tried := p.carried().demand-float64(last.Target), (*numbers)(nil)
	for _, e := range p.entries[:at] {
		if e.isStandby() || e.Group != "" && e.Group == last.Group {
			continue
		}
		if e.hope > 0 || e.serving < e.ready {
			return // one at a time
		}
		room := p.roomToTry(e, last)
		if room > 0 && tried == nil {
			tried = e
		}
		could += float64(room) * float64(e.Target)
	}
	if tried != nil && could >= p.down {
		p.ask(tried, 1, RowTried, "entry %s serves, which comes after it", last.Name)
	}
}

// lastServing returns the last entry that has more ready replicas than its minimum; -1: there is none.
func (p *pass) lastServing() int {
	at := len(p.entries) - 1
	for at >= 0 && (p.entries[at].isStandby() || p.entries[at].ready <= p.entries[at].Min) {
		at--
	}
	return at
}

// roomToTry returns how many more replicas of an entry could take the place of the last one.
func (p *pass) roomToTry(e, last *numbers) int {
	if !p.mayAsk(e) {
		return 0
	}
	room, by := p.room(e)
	if room == 0 && by == RowTotalMaximum {
		p.limits("entry %s comes first, and cannot be tried while %s serves: totalMaxReplicas is %d", e.Name, last.Name, p.TotalMax)
	}
	return room
}

// goalOf returns a demand as the goal of a race.
func goalOf(demand float64) int { return cmp.Or(int(math.Ceil(demand)), 1) }
