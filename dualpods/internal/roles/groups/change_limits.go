package groups

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file ends changes in place that their launchers or ControllerRevisions would leave unfinished: Pods
// that do not have the models of the group are deleted, and created again.

// The rows that delete such Pods.
const (
	rowRevisionLost = "template lost"
	rowLate         = "launcher late"
)

// lacksChange reports whether a Pod of a group whose change is committed does not have all of the new
// template yet.
func (c *groupChange) lacksChange(m *Member) bool {
	return m.isToldOfChange() || m.revision() != c.was.Revision
}

// hasOldPending reports whether a Pod of a group whose change is being undone does not have all of the old
// template again.
func hasOldPending(m *Member) bool {
	return m.isToldOfChange() || m.Bound != nil && m.Bound.Record.Change != nil
}

// settlesBy returns until when the launchers have to confirm a change that was committed, or is being undone.
// A controller that starts later first has to give them their orders, so it counts the time from its start.
func (c *groupChange) settlesBy() time.Time {
	from := c.was.Since.Time
	if c.w.Began.After(from) {
		from = c.w.Began
	}
	return from.Add(changeLimit)
}

// isUnsettled reports whether the end of a change waits for a Pod.
func (c *groupChange) isUnsettled(m *Member) bool {
	if c.is(v1alpha1.ChangeCommitted) {
		return c.lacksChange(m)
	}
	return hasOldPending(m)
}

// revisionLost returns the name of the ControllerRevision that is gone, or cannot be read, and that the
// group needs to end its change; empty: none is. Its labels and annotations are stored nowhere else.
func (c *groupChange) revisionLost() string {
	if !c.is(v1alpha1.ChangeCommitted, v1alpha1.ChangeUndoing) || c.from.places == nil {
		return ""
	}
	return "ControllerRevision " + revisionName(c.w.Serving, c.from.revision)
}

// lacksRevision reports whether a Pod needs the ControllerRevision of [groupChange.revisionLost]. To undo a
// change, only Pods that were told of the change need it.
func (c *groupChange) lacksRevision(m *Member) bool {
	if c.is(v1alpha1.ChangeCommitted) {
		return c.lacksChange(m)
	}
	return m.isToldOfChange()
}

// recreates has Pods deleted, with an Event for each. It reports whether there are any.
func (s *changeStep) recreates(members []*Member, why string) bool {
	for _, m := range members {
		s.patches = append(s.patches, &Step{
			Row: s.Row, Of: m, Do: Delete, Object: m.Pod.Is, State: v1alpha1.GroupProgressing, Reason: v1alpha1.ReasonChanging,
			Why: "Pod " + m.name() + " is created again: " + why, Event: v1alpha1.ReasonChangeEnded,
		})
	}
	return len(members) > 0 && s.changing("Pods are created again, such as "+members[0].name()+": "+why)
}

// awaited says which Pod the end of a change waits for, and until when; empty: for none.
func (c *groupChange) awaited() string {
	waiting := c.all(c.isUnsettled)
	if len(waiting) == 0 {
		return ""
	}
	m, what := waiting[0], "a launcher"
	switch {
	case m.Bound != nil && m.Bound.Known:
		what = "launcher " + m.Bound.Launcher.Name
	case m.Bound != nil:
		what = "launcher " + m.Bound.Launcher.Name + ", which does not answer"
	}
	return fmt.Sprintf("; Pod %s waits for %s, and is created again at %s", m.name(), what, c.settlesBy().UTC().Format(time.RFC3339))
}
