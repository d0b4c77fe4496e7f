package groups

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file has what the table of changes asks of servers over several launchers. The ranks of the
// server that is to come are told of its start once the records of all have the change. From then on
// they go on together or not at all: none of them can begin again alone.

// rankServers returns the servers over several launchers that are changed.
func (c *groupChange) rankServers() (all []*Server) {
	for _, m := range c.servers() {
		switch {
		case !c.from.templates[m.order].haveRanks():
		case m.isEntry():
			all = append(all, &Server{Ranks: []*Member{m}, Now: c.w.Now})
		default:
			last := all[len(all)-1]
			last.Ranks = append(last.Ranks, m)
		}
	}
	return all
}

// isToBeTold reports whether a rank was not told of the start of its new server.
func (c *groupChange) isToBeTold(m *Member) bool {
	return m.isIntoChange(c.id()) && m.NextServer.Attempt != m.Bound.Record.Next().SwapKey()
}

// beginning returns the servers whose ranks can be told of their start: the records of all have the
// change, and their launchers answer.
func (c *groupChange) beginning() (all []*Server) {
	noted := func(m *Member) bool { return m.isBound() && m.isIntoChange(c.id()) && m.Bound.Known }
	for _, s := range c.rankServers() {
		if s.every(noted) && s.any(c.isToBeTold) {
			all = append(all, s)
		}
	}
	return all
}

// leftovers returns ranks whose new instances are there, and cannot be woken together. If the change was
// undone before, all are: the swap of one rank may have claimed the sleeper of another to evict it.
func (c *groupChange) leftovers() (all []*Member) {
	for _, s := range c.beginning() {
		if c.was.Try > 1 || !s.sleepTogether(func(m *Member) *launcherapi.Instance { return m.Bound.NextInstance }) {
			all = append(all, s.all(func(m *Member) bool { return m.Bound.NextInstance != nil })...)
		}
	}
	return all
}

// tellRanks has the ranks of servers be told of their start. It returns whether there are any. Records
// that say otherwise whether there is an instance are changed first.
func (s *changeStep) tellRanks(c *groupChange) bool {
	otherwise := func(m *Member) bool { return m.Bound.Record.Change.New != (m.Bound.NextInstance == nil) }
	tells := false
	for _, server := range c.beginning() {
		if server.any(func(m *Member) bool { return c.isToBeTold(m) && otherwise(m) }) {
			continue
		}
		step := &Step{Row: s.Row, Of: server.entry(), State: v1alpha1.GroupProgressing, Changes: true, Change: c.was}
		step.orders(Tell, server.all(c.isToBeTold))
		step.Reason, step.Why = v1alpha1.ReasonChanging, "the ranks of Pod "+server.entry().name()+" are told of their start"
		s.patches, tells = append(s.patches, step), true
	}
	return tells
}

// lostRank says why the ranks of a server cannot go on together; empty: they can.
func (c *groupChange) lostRank(s *Server) (why string, misfit bool) {
	is := c.id()
	if kept := s.first(func(m *Member) bool { return m.isChanged(is) }); kept != nil && s.any(func(m *Member) bool { return m.isIntoChange(is) }) {
		return "the engine of Pod " + kept.name() + " is told the same as before, but not those of the other ranks of its server", kept.isIn(launcher.Awake)
	}
	if undone := s.first(func(m *Member) bool { return c.in(m, launcherapi.PhaseUndo) }); undone != nil {
		return "the new model of Pod " + undone.name() + " failed: its launcher wakes the old one", false
	}
	if late := s.first(func(m *Member) bool { return c.isLate(s, m) }); late != nil {
		return "the rank of Pod " + late.name() + " begins again, and the others cannot", false
	}
	return "", false
}

// isLate reports whether a rank is about to start although the new entry is awake, as [Server.isLate]
// does.
func (c *groupChange) isLate(s *Server, m *Member) bool {
	e := s.entry().Bound.NextInstance
	isAwake := e != nil && launcher.State(e.State) == launcher.Awake
	return m != s.entry() && isAwake && m.Bound.Known && m.Bound.NextInstance == nil && c.in(m, launcherapi.PhaseAdmit, launcherapi.PhaseGo)
}

// awaitsWorkers reports whether a requester is an entry, and new engines of its workers may still be there.
// An entry that wakes has its workers take their memory again.
func (c *groupChange) awaitsWorkers(m *Member) bool {
	return m.isEntry() && c.any(func(o *Member) bool {
		return o != m && o.roleID() == m.roleID() && o.isIntoChange(c.id()) && o.Bound.Known && o.Bound.Record.Change.New && !o.wakesAgain()
	})
}

// wakesAgain reports whether the launcher of a requester has ended the new engine, and wakes the old one. That
// no new engine is reported is not enough: the launcher may not have reported it yet.
func (m *Member) wakesAgain() bool { return m.Bound.NextInstance == nil && m.isIn(launcher.Waking) }
