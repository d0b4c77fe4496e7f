package groups

import (
	"fmt"
	"slices"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// This file has what the table of changes asks of the servers of a group.

// id names the try that is under way.
func (c *groupChange) id() podmeta.SwapTo {
	return podmeta.SwapTo{Revision: c.was.Revision, Try: c.was.Try}
}

// all returns the Pods of the group that are there, and of which so holds.
func (c *groupChange) all(so func(*Member) bool) (found []*Member) {
	for _, m := range c.w.Members {
		if m.Wanted && m.group == c.ordinal && m.Pod.Is != nil && !m.podLeaves() && so(m) {
			found = append(found, m)
		}
	}
	return found
}

func (c *groupChange) any(so func(*Member) bool) bool { return len(c.all(so)) > 0 }

// servers returns the places of the group whose engines are told something else, there or not.
func (c *groupChange) servers() (found []*Member) {
	for _, m := range c.w.Members {
		if m.Wanted && m.group == c.ordinal && c.to != nil && c.from.places == nil && c.from.differsAt(c.to, m.place) {
			found = append(found, m)
		}
	}
	return found
}

// those returns the servers of which so holds, of Pods that are there.
func (c *groupChange) those(so func(*Member) bool) (found []*Member) {
	for _, m := range c.servers() {
		if m.isBound() && so(m) {
			found = append(found, m)
		}
	}
	return found
}

func (c *groupChange) every(so func(*Member) bool) bool { return len(c.those(so)) == len(c.servers()) }

// lost says why the new models cannot become healthy all; empty: they may.
func (c *groupChange) lost() (why string, misfit bool) {
	if c.from.places != nil {
		return "ControllerRevision " + revisionName(c.w.Serving, c.from.revision) + ", which had the old template, is gone or cannot be read", false
	}
	for _, m := range c.servers() {
		if !m.isBound() {
			return "Pod " + m.name() + " has lost its server", false
		}
		if failed := m.Bound.Record.Change; failed != nil && failed.To == c.id().ID() && failed.Failure != "" {
			return fmt.Sprintf("the new model of Pod %s failed: %s", m.name(), failed.Failure), failed.Misfit
		}
	}
	for _, s := range c.rankServers() {
		if why, misfit := c.lostRank(s); why != "" {
			return why, misfit
		}
	}
	return "", false
}

// failedForGood reports whether the swap of a requester has failed after the commit.
func (c *groupChange) failedForGood(m *Member) bool {
	if m.Bound == nil || m.SwapTo.Revision != c.was.Revision || m.SwapTo.Forward {
		return false
	}
	change := m.Bound.Record.Change
	return change != nil && change.To == m.SwapTo.ID() && change.Failure != ""
}

// isToCommit reports whether the swap of a requester waits for its commit. A process that has not
// heard of the swap yet knows it by the old model, which it has claimed.
func (c *groupChange) isToCommit(m *Member) bool {
	return m.isIntoChange(c.id()) && m.nextSwap() != "" && (m.Bound.Next.ID == "" || c.in(m, launcherapi.PhaseCommit))
}

// isToUndo reports whether the swap of a requester has begun, and is to be undone now.
func (c *groupChange) isToUndo(m *Member) bool {
	return m.isIntoChange(c.id()) && m.nextSwap() != "" && !c.in(m, launcherapi.PhaseUndo) && !c.awaitsWorkers(m)
}

// isToldOfChange reports whether a requester is told of a change.
func (m *Member) isToldOfChange() bool { return m.SwapTo.ID() != "" }

// isIntoChange reports whether the record of a requester has the change.
func (m *Member) isIntoChange(to podmeta.SwapTo) bool {
	return m.Bound != nil && m.Bound.Record.Change != nil && m.Bound.Record.Change.To == to.ID() && m.Bound.Record.Change.Failure == ""
}

// nextSwap returns the id of the swap of the change; empty: none is known.
func (m *Member) nextSwap() string {
	switch {
	case m.Bound.Next.ID != "":
		return m.Bound.Next.ID
	case m.Bound.Record.Change != nil && m.Bound.Instance != nil:
		return m.Bound.Instance.SwapID
	}
	return ""
}

// in reports whether the swap of the change of a requester is in one of these phases.
func (c *groupChange) in(m *Member, phases ...string) bool {
	return m.isIntoChange(c.id()) && m.Bound.Next.ID != "" && slices.Contains(phases, m.Bound.Next.Phase)
}

// isChanged reports whether a requester has its new model's record.
func (m *Member) isChanged(to podmeta.SwapTo) bool {
	return m.Bound != nil && m.Bound.Record.Change == nil && m.Bound.Record.ChangedBy == to.ID()
}

// hasPrepared reports whether the launcher of a requester has prepared its swap, and nobody is led to
// the requester any more; or its swap has gone on.
func (c *groupChange) hasPrepared(m *Member) bool {
	switch {
	case m.isChanged(c.id()):
		return true
	case c.in(m, launcherapi.PhaseGo):
		return podmeta.ReadStatus(m.Pod.Is).State != decide.StateServing && !podmeta.GateOpen(m.Pod.Is)
	default:
		return m.isIntoChange(c.id()) && m.Bound.Next.ID != "" && !c.in(m, launcherapi.PhaseAdmit, launcherapi.PhaseUndo)
	}
}

// isHealthy reports whether the new model of a requester waits for its commit.
func (c *groupChange) isHealthy(m *Member) bool {
	return m.isChanged(c.id()) || c.in(m, launcherapi.PhaseCommit)
}

// progress says how far the change is.
func (c *groupChange) progress() string {
	all, prepared, healthy := len(c.servers()), len(c.those(c.hasPrepared)), len(c.those(c.isHealthy))
	return fmt.Sprintf("the models of the group are changed in place: of %d servers %d have prepared, and %d of the new models are healthy", all, prepared, healthy)
}
