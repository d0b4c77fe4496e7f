package decide

import "slices"

// runStandbys gives the standbys their numbers. The first one in list order that works serves while
// no other entry does.
func (p *pass) runStandbys() {
	needed := p.lastStays || !p.othersServe()
	comes, serves := false, false // a standby before comes, or serves
	for _, e := range p.entries {
		if !e.isStandby() {
			continue
		}
		switch {
		case e.Min == 0:
			e.setTo(0, RowStandbyNone, "its minReplicas is 0, so that it never runs: raise it")
		case !needed:
			e.setTo(0, RowStandbyRests, "other entries serve")
		case serves:
			e.setTo(0, RowStandbyLater, "a standby before it serves")
		case e.serving >= e.Min && e.ready >= e.Min:
			e.setTo(e.Min, p.standbyRow(), "minReplicas is %d", e.Min)
			serves = true
		case e.isInvalid() || e.backsOff(p.Now):
			p.mayAsk(e)
			e.setTo(min(e.number(), e.Min), RowBacksOff, "its replicas that have not failed stay")
		case comes:
			e.setTo(min(e.number(), e.Min), RowStandbyLater, "a standby before it is not ready yet")
		default:
			e.setTo(e.Min, p.standbyRow(), "minReplicas is %d", e.Min)
			comes = true
		}
		comes = comes || e.hope > 0
	}
	if p.lastStays && !serves && !comes {
		p.limits("the last replica stays though no request needs it, as no standby runs")
	}
}

func (p *pass) standbyRow() Row {
	if p.lastStays {
		return RowStandbyFirst
	}
	return RowStandbyAlone
}

// othersServe reports whether an entry that is no standby serves, and goes on to do so.
func (p *pass) othersServe() bool {
	return slices.ContainsFunc(p.entries, func(e *numbers) bool { return !e.isStandby() && min(e.serving, e.ready) > 0 })
}

// setTo gives a standby its number of replicas.
func (e *numbers) setTo(n int, row Row, format string, args ...any) {
	if n == e.number() {
		e.hint(row, format, args...)
		return
	}
	for e.number() > n {
		e.drop()
	}
	e.hope += n - e.number()
	e.say(row, format, args...)
}
