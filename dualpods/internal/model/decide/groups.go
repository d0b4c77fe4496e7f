package decide

import (
	"fmt"
	"slices"
)

// goal returns what the serving replicas are to carry when the race of a unit ends; 0: it has none.
// A demand that falls meanwhile lowers the goal only when the highest demand falls too.
func (p *pass) goal(u *unit) float64 {
	goal := 0
	for _, e := range u.members {
		if e.racing() > 0 {
			goal = max(goal, e.goal)
		}
	}
	wanted := float64(goal)
	if p.known {
		wanted = min(wanted, max(p.down, 1))
	}
	if goal > 0 {
		wanted = max(wanted, p.up)
	}
	return wanted
}

// candidate is a ready Pod of a member that races.
type candidate struct {
	of  *numbers
	pod *Pod
}

// candidates returns the ready Pods of a unit that are not admitted, in list order.
func (u *unit) candidates() (all []candidate) {
	for _, e := range u.members {
		left := e.hope
		for _, pod := range e.alive {
			if e.goal > 0 && pod.Ready && !pod.Admitted && !pod.Serving && left > 0 {
				all = append(all, candidate{e, pod})
				left--
			}
		}
	}
	return all
}

// endRaces admits the first Pods of groups that are ready, and takes the rest back.
func (p *pass) endRaces() {
	for _, u := range p.units {
		goal := p.goal(u)
		reached := func(c load) bool { return c.demand >= goal && c.replicas >= p.TotalMin }
		for _, c := range u.candidates() {
			if c.of.ready < c.of.Min || !reached(p.carried()) {
				c.of.ready++
				c.of.hope--
			}
		}
		if goal > 0 && reached(p.carried().plus(p.hoped()).minus(u.racing())) { // others on their way count too
			u.endRace(RowRaceOver, "replicas of its group were ready before")
		}
	}
}

// endRace takes back what races.
func (u *unit) endRace(row Row, why string) {
	for _, e := range u.members {
		if n := e.racing(); n > 0 {
			e.hope -= n
			e.say(row, "%s", why)
		}
		e.goal = 0
	}
}

// endUnneededRace takes back a race whose replicas the demand does not need any more, and reports
// whether it has.
func (p *pass) endUnneededRace(u *unit) bool {
	racing := u.racing()
	if racing.replicas == 0 || !p.known || !p.suffices(p.carried().plus(p.hoped()), racing) {
		return false
	}
	u.endRace(RowLess, fmt.Sprintf("the highest demand was %.4g", p.down))
	return true
}

// askGroup asks the members of a group for what is missing. If nothing is, only members join that were not asked.
func (p *pass) askGroup(u *unit, missing load) {
	members := p.askable(u)
	if p.wakes(u, members, missing) {
		return
	}
	goal := max(goalOf(p.up), int(p.goal(u)))
	all := missing.plus(u.racing())
	all.demand, all.replicas = max(all.demand, 0), max(all.replicas, 0)
	for _, e := range members {
		more := all.of(e) - e.racing()
		if more <= 0 || missing.isNone() && e.number() > e.Min {
			continue
		}
		if p.ask(e, more, RowRaces, "%s: the replicas of its group that are ready first are kept", p.wanted()) > 0 {
			e.goal = goal
		}
	}
}

// askable returns the members of a group that may be asked. While others are hopeful, those that
// failed are not. When all have failed, they back off as one.
func (p *pass) askable(u *unit) []*numbers {
	able := slices.DeleteFunc(slices.Clone(u.members), func(e *numbers) bool { room, _ := p.room(e); return e.isInvalid() || room == 0 })
	hasFailed := func(e *numbers) bool { return e.record.Failures > 0 }
	if !slices.ContainsFunc(able, func(e *numbers) bool { return !hasFailed(e) }) && len(able) > 0 {
		last := slices.MaxFunc(able, func(a, b *numbers) int { return a.record.BackoffUntil.Compare(b.record.BackoffUntil) })
		if last.backsOff(p.Now) {
			for _, e := range able {
				e.hint(RowGroupBackOff, "all members of its group have failed, and are tried again at %s", clock(last.record.BackoffUntil))
			}
			return nil
		}
	}
	hopeful := u.hope().replicas > 0
	return slices.DeleteFunc(able, func(e *numbers) bool { return !p.mayAsk(e) || hopeful && hasFailed(e) })
}

// wakes asks the members whose models sleep on free GPUs, if those carry all that is missing. A member
// that has failed races with the others, or they would never be tried.
func (p *pass) wakes(u *unit, members []*numbers, missing load) bool {
	if u.racing().replicas > 0 {
		return false
	}
	type part struct {
		of *numbers
		n  int
	}
	var parts []part
	for _, e := range members {
		room, _ := p.room(e)
		if n := min(e.AsleepOnFree, room, missing.of(e)); n > 0 && e.record.Failures == 0 {
			parts = append(parts, part{e, n})
			missing = missing.plus(e.carries(-n))
		}
	}
	if len(members) == 0 || !missing.isNone() {
		return false
	}
	for _, part := range parts {
		p.ask(part.of, part.n, RowWakes, "%s: its model sleeps on GPUs that are free", p.wanted())
	}
	return true
}
