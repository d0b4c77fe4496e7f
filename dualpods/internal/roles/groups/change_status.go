package groups

import (
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file has what the status and Events say of changes in place.

// keepChanges has the groups say what the steps say of their changes.
func keepChanges(groups []v1alpha1.ServingGroupStatus, steps []*Step) {
	byName := byNames(groups)
	for _, s := range steps {
		if !s.Changes {
			continue
		}
		if g := byName[s.Of.groupName()]; g != nil {
			g.Change = s.Change
			if s.Reason == v1alpha1.ReasonChangeFailed && g.State == v1alpha1.GroupRunning {
				g.Reason, g.Message = s.Reason, s.Why
			}
		}
	}
}

// failedChange returns the first group whose change to the present template was undone; nil: there is
// none.
func failedChange(w *World, groups []v1alpha1.ServingGroupStatus) *v1alpha1.ServingGroupStatus {
	for i := range groups {
		if c := groups[i].Change; c != nil && c.State == v1alpha1.ChangeUndone && c.Revision == w.Revision {
			return &groups[i]
		}
	}
	return nil
}

// announceChange emits an Event about a group that cannot be changed in place, or whose change failed.
// A change that is undone for another template has not failed. before is what was written of it; nil: nothing.
func (c *Controller) announceChange(before *v1alpha1.ServingGroupStatus, now *v1alpha1.ModelServing, g *v1alpha1.ServingGroupStatus) {
	was := v1alpha1.ServingGroupStatus{}
	if before != nil {
		was = *before
	}
	undone := func(c *v1alpha1.ServingGroupChange) bool { return c != nil && c.State == v1alpha1.ChangeUndoing }
	switch {
	case undone(g.Change) && !undone(was.Change) && g.Change.Revision == now.Status.Revision:
		c.warn(now, v1alpha1.ReasonChangeFailed, g.Name+": "+g.Change.Message)
	case g.Reason == v1alpha1.ReasonNotInPlace && was.Reason != g.Reason:
		c.warn(now, g.Reason, g.Name+": "+g.Message)
	}
}

// setProgressing sets the condition Progressing. moves is why the first group moves that does, and
// failed the first whose change was undone.
func setProgressing(set func(kind string, is bool, reason, message string), moves string, failed *v1alpha1.ServingGroupStatus) {
	switch {
	case moves != "":
		set(v1alpha1.ConditionProgressing, true, moves, "")
	case failed != nil:
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonChangeFailed, failed.Name+": "+failed.Change.Message)
	default:
		set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonIdle, "")
	}
}
