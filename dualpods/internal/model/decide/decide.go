package decide

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// pass is one decision about a Model.
type pass struct {
	*Model
	entries  []*numbers
	units    []*unit // of the entries that are no standbys, in list order
	up, down float64 // the demand that is to be carried, and the one below which nothing goes
	known    bool    // replicas may go for want of demand

	lastStays bool // the last replica that is ready would go, if a standby were ready
	limited   []string
	again     time.Duration
}

// steps are the sections of the table, in its order. Each sees the numbers that those before it have
// left.
var steps = []func(*pass){
	(*pass).endRaces,
	(*pass).keepMaximums,
	(*pass).keepMinimums,
	(*pass).meetDemand,
	(*pass).followDemandDown,
	(*pass).tryPreferred,
	(*pass).runStandbys,
}

// Decide decides what is to be done about a Model. It is to be called again when anything has changed,
// also by the writes that it leads to, and after Again.
func Decide(m *Model) *Decision {
	p := observe(m)
	if m.Mode != Off {
		for _, step := range steps {
			step(p)
		}
	}
	return p.decision()
}

// load is a demand and a number of replicas.
type load struct {
	demand   float64
	replicas int
}

func (l load) plus(other load) load {
	return load{l.demand + other.demand, l.replicas + other.replicas}
}

func (l load) minus(other load) load {
	return load{l.demand - other.demand, l.replicas - other.replicas}
}

// noise is how far sums of floats may be off.
const noise = 1e-9

func (l load) isNone() bool { return l.demand <= noise && l.replicas <= 0 }

// of returns how many replicas of an entry it takes to carry so much.
func (l load) of(e *numbers) int {
	return max(int(math.Ceil(l.demand/float64(e.Target)-noise)), l.replicas, 0)
}

// carried returns what the ready replicas carry.
func (p *pass) carried() (l load) {
	for _, u := range p.units {
		l = l.plus(u.ready())
	}
	return l
}

// served returns what the ready replicas carry that have their label already, so that front doors know
// them.
func (p *pass) served() (l load) {
	for _, u := range p.units {
		for _, e := range u.members {
			l = l.plus(e.carries(min(e.ready, e.serving)))
		}
	}
	return l
}

// hoped returns what the replicas would carry that are waited for.
func (p *pass) hoped() (l load) {
	for _, u := range p.units {
		l = l.plus(u.hope())
	}
	return l
}

// missing returns what neither ready nor hopeful replicas carry.
func (p *pass) missing() load {
	c := p.carried().plus(p.hoped())
	return load{p.up - c.demand, p.TotalMin - c.replicas}
}

// total returns the number of replicas that count for the totals, also of those that race.
func (p *pass) total() (n int) {
	for _, e := range p.entries {
		if !e.isStandby() {
			n += e.number()
		}
	}
	return n
}

// room returns how many more replicas an entry may have, and the row that bounds them.
func (p *pass) room(e *numbers) (n int, by Row) {
	n, by = mostReplicas-e.number(), RowMaximum
	if e.Max > 0 {
		n = e.Max - e.number()
	}
	if p.TotalMax > 0 {
		if total := p.TotalMax - p.total(); total < n {
			n, by = total, RowTotalMaximum
		}
	}
	return max(n, 0), by
}

// mayAsk reports whether an entry may be asked for more replicas, but for its room.
func (p *pass) mayAsk(e *numbers) bool {
	if e.isInvalid() {
		e.hint(RowInvalid, "it is not tried before an edit: %s", e.record.LastFailure.Message)
		return false
	}
	if e.backsOff(p.Now) {
		e.hint(RowBacksOff, "it has failed (%d in a row), and is tried again at %s", e.record.Failures, clock(e.record.BackoffUntil))
		return false
	}
	return true
}

// ask asks for more replicas of an entry, as far as there is room, and returns how many.
func (p *pass) ask(e *numbers, more int, row Row, format string, args ...any) int {
	room, by := p.room(e)
	if room < more {
		e.hint(by, "%s", p.full(e, by))
	}
	more = min(more, room)
	if more > 0 {
		e.hope += more
		e.say(row, format, args...)
	}
	return more
}

// full says which maximum an entry has reached.
func (p *pass) full(e *numbers, by Row) string {
	if by == RowTotalMaximum {
		return fmt.Sprintf("totalMaxReplicas is %d, and all entries together have as many", p.TotalMax)
	}
	return fmt.Sprintf("maxReplicas is %d", e.Max)
}

// limits notes why the model does not have what it should have.
func (p *pass) limits(format string, args ...any) {
	p.limited = append(p.limited, fmt.Sprintf(format, args...))
}

// remind has the next decision be made at a time at the latest.
func (p *pass) remind(at time.Time) {
	if left := at.Sub(p.Now); left > 0 && (p.again == 0 || left < p.again) {
		p.again = left
	}
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// decision puts the results together.
func (p *pass) decision() *Decision {
	d := &Decision{Entries: make([]EntryDecision, 0, len(p.entries)), AllFailing: p.allFailing(), StandbyServing: p.standbyServing(), Limited: strings.Join(p.limited, "; ")}
	for _, e := range p.entries {
		d.Entries = append(d.Entries, p.entryDecision(e))
		p.remind(e.record.BackoffUntil)
	}
	d.Again = p.again
	return d
}

// allFailing says why no entry but standbys has replicas; empty: some have, or were not tried.
func (p *pass) allFailing() string {
	var why []string
	for _, e := range p.entries {
		if e.isStandby() {
			continue
		}
		if e.number() > 0 || !e.isInvalid() && e.record.Failures == 0 {
			return ""
		}
		why = append(why, fmt.Sprintf("%s: %s: %s", e.Name, e.record.LastFailure.Reason, e.record.LastFailure.Message))
	}
	return strings.Join(why, "; ")
}

func (p *pass) standbyServing() string {
	var names []string
	for _, e := range p.entries {
		switch {
		case e.serving == 0:
		case !e.isStandby():
			return ""
		default:
			names = append(names, e.Name)
		}
	}
	return strings.Join(names, ", ")
}
