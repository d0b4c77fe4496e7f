package groups

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/roles/rollout"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file decides about changes in place: the models of a group are changed in all of its Pods or
// in none. Package binding has each launcher prepare a swap once its requester was told of the change.
// The launchers change nothing before all have prepared. Once all new models are healthy, the status
// of the group says Committed before the first swap is committed. Before that, anything that fails has
// all old models woken; after it, nothing does.

// groupChange is a group whose models are being changed in place, or may be.
type groupChange struct {
	w       *World
	ordinal int
	was     *v1alpha1.ServingGroupChange // what the status has; nil: nothing
	target  string                       // revision that the group is to have by the rollout
	from    *plan                        // that the group has its Pods by until the change is committed
	to      *plan                        // that it is changed to; nil: its revision cannot be read
	runs    bool
}

// changeOf returns what the status has of the change of a group; nil: nothing.
func (w *World) changeOf(group int) *v1alpha1.ServingGroupChange {
	if g := w.statusOf(group); g != nil {
		return g.Change
	}
	return nil
}

// planInPlace returns the plan of a group that is to have a revision by the rollout. A group that is
// changed in place keeps the plan of its own revision until the change is committed.
func (w *World) planInPlace(target string, ordinal int, g *rollout.Group, members map[string]*Member) *plan {
	c := &groupChange{w: w, ordinal: ordinal, was: w.changeOf(ordinal), target: target, runs: g.Runs}
	own := target
	if len(g.Revisions) > 0 {
		own = g.Revisions[0]
	}
	switch {
	case c.is(v1alpha1.ChangeCommitted):
		c.to = w.planFor(c.was.Revision, ordinal, members)
		c.from = c.to
	case c.is(v1alpha1.ChangeBegun, v1alpha1.ChangeUndoing):
		c.from, c.to = w.planFor(own, ordinal, members), w.plans[c.was.Revision]
	case c.mayBegin(own):
		c.from, c.to = w.plans[own], w.plans[target]
	default:
		c.from = w.planFor(target, ordinal, members)
	}
	if c.to != nil || c.was != nil {
		w.changes[ordinal] = c
	}
	return c.from
}

// is reports whether the status has a change in one of these states.
func (c *groupChange) is(states ...v1alpha1.ChangeState) bool {
	return c.was != nil && slices.Contains(states, c.was.State)
}

// isUndone reports whether a change to the revision of the rollout was undone.
func (c *groupChange) isUndone() bool {
	return c.is(v1alpha1.ChangeUndone) && c.was.Revision == c.target
}

// recovers reports whether a change was undone so short a time ago that the Pods may not be ready again yet.
func (c *groupChange) recovers() bool {
	return c.is(v1alpha1.ChangeUndone) && c.until(time.Duration(c.w.Serving.Spec.Template.GraceSeconds())*time.Second) > 0
}

// mayBegin reports whether a group of its own revision is to be changed in place to that of the
// rollout, and otherwise notes why not.
func (c *groupChange) mayBegin(own string) bool {
	from, to := c.w.plans[own], c.w.plans[c.target]
	if c.w.Serving.Spec.UpdateMode != v1alpha1.UpdateInPlace || own == c.target || from == nil || to == nil {
		return false
	}
	why := inPlace(from, to)
	if c.isUndone() && c.was.Misfit && c.w.Serving.Spec.OnMisfit == v1alpha1.UpdateRecreate {
		why = "a launcher refused it: " + c.was.Message
	}
	if why != "" {
		c.w.notInPlace[c.ordinal] = why
		return false
	}
	differs := func(p place) bool { return from.differsAt(to, p) }
	return (c.runs || c.isUndone() || c.recovers()) && slices.ContainsFunc(c.w.givenPlaces(from, c.ordinal), differs)
}

// changeRule is a row of the table of changes.
type changeRule struct {
	row  string
	fits func(*groupChange, *changeStep) bool
}

// changeStep is what a row says about a group.
type changeStep struct {
	Step
	patches []*Step // of Pods
}

// changeSteps returns the steps of the groups that are changed in place.
func (w *World) changeSteps() (steps []*Step) {
	for _, ordinal := range slices.Sorted(maps.Keys(w.changes)) {
		c := w.changes[ordinal]
		for _, r := range changes {
			s := &changeStep{Step: Step{Row: r.row, Of: c.about(), State: v1alpha1.GroupRunning, Changes: true, Change: c.was}}
			if r.fits(c, s) {
				steps = append(append(steps, &s.Step), s.patches...)
				break
			}
		}
	}
	return steps
}

// about stands for the group where a step names a Pod.
func (c *groupChange) about() *Member {
	return &Member{place: place{serving: c.w.Serving.Name, group: c.ordinal}, Wanted: true}
}

// changes lists the rows for groups that are changed in place.
var changes = []changeRule{
	{"not undone after all", func(c *groupChange, s *changeStep) bool { // the cache did not show the Pods that were told of it
		return c.is(v1alpha1.ChangeUndone) && c.any((*Member).isToldOfChange) && s.becomes(c.at(v1alpha1.ChangeUndoing, c.was.Message, c.was.Misfit))
	}},
	{"change over", func(c *groupChange, s *changeStep) bool {
		isOther := c.lacksChange
		committed, undone := c.is(v1alpha1.ChangeCommitted), c.is(v1alpha1.ChangeUndone) && c.to == nil
		return (committed && !c.any(isOther) || undone && (c.was.Revision != c.w.Revision && !c.recovers() || !c.any(isOther))) && s.becomes(nil)
	}},
	{"not in place", func(c *groupChange, _ *changeStep) bool { return c.is(v1alpha1.ChangeUndone) && c.to == nil }},
	{rowRevisionLost, func(c *groupChange, s *changeStep) bool {
		lost := c.revisionLost()
		return lost != "" && s.recreates(c.all(c.lacksRevision), "its template cannot be read any more: "+lost)
	}},
	{rowLate, func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeCommitted, v1alpha1.ChangeUndoing) && !c.w.Now.Before(c.settlesBy()) &&
			s.recreates(c.all(c.isUnsettled), "its launcher has not confirmed the change of models within "+changeLimit.String())
	}},
	{"lost after the commit", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeCommitted) && s.patch(c.all(c.failedForGood), func(m *Member) *Step {
			forward := m.SwapTo
			forward.Forward = true
			return m.patchTo(c.to, forward)
		}) && s.changing("a new model failed after the commit, and is started again")
	}},
	{"commit", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeCommitted) && s.orders(Commit, c.all(c.isToCommit)) && s.changing("the new models are committed")
	}},
	{"committed", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeCommitted) && s.after(c.settlesBy().Sub(c.w.Now)) && s.changing("the new models are healthy, and serve soon"+c.awaited())
	}},
	{"undo", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndoing) && s.patch(c.all((*Member).isToldOfChange), func(m *Member) *Step {
			return m.patchTo(c.from, podmeta.SwapTo{})
		}) && s.changing("the old models are woken"+c.awaited()+": "+c.was.Message)
	}},
	{"has the new model", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndoing) && s.patch(c.all(func(m *Member) bool { return m.isChanged(c.id()) }), func(m *Member) *Step {
			return &Step{Do: Delete, Object: m.Pod.Is}
		}) && s.changing("Pods that have the new model are created again: "+c.was.Message)
	}},
	{"undo swap", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndoing) && s.orders(Undo, c.all(c.isToUndo)) && s.after(stopPause) && s.changing("the old models are woken"+c.awaited()+": "+c.was.Message)
	}},
	{"undoing", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndoing) && c.any(func(m *Member) bool { return m.Bound != nil && m.Bound.Record.Change != nil }) &&
			s.after(c.settlesBy().Sub(c.w.Now)) && s.changing("the old models are woken"+c.awaited()+": "+c.was.Message)
	}},
	{"undone", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndoing) && s.becomes(c.at(v1alpha1.ChangeUndone, c.was.Message, c.was.Misfit))
	}},
	{"template changed again", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && (c.was.Revision != c.target || c.to == nil) && s.becomes(c.at(v1alpha1.ChangeUndoing, "the template was changed again", false))
	}},
	{"server lost", func(c *groupChange, s *changeStep) bool {
		if !c.is(v1alpha1.ChangeBegun) {
			return false
		}
		why, misfit := c.lost()
		return why != "" && s.becomes(c.at(v1alpha1.ChangeUndoing, why, misfit))
	}},
	{"too late", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && c.until(changeLimit) <= 0 && s.becomes(c.at(v1alpha1.ChangeUndoing, "not all new models were healthy within "+changeLimit.String(), false))
	}},
	{"server not told", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && s.patch(c.those(func(m *Member) bool { return m.SwapTo != c.id() }), func(m *Member) *Step {
			return m.patchTo(c.to, c.id())
		}) && s.changing("the launchers are to prepare the new models")
	}},
	{"instances of earlier servers", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && s.orders(Remove, c.leftovers()) && s.changing("instances that are left of earlier servers are deleted, such as that of Pod "+s.Ranks[0].name())
	}},
	{"rank not told of the start", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && s.tellRanks(c) && s.changing("the ranks of the new servers are told of each other")
	}},
	{"all prepared to change", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && c.every(c.hasPrepared) && s.orders(Go, c.those(func(m *Member) bool { return c.in(m, launcherapi.PhaseGo) })) &&
			s.changing("all launchers have prepared the new models: the old ones sleep")
	}},
	{"all changed", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && c.every(c.isHealthy) && s.becomes(c.at(v1alpha1.ChangeCommitted, "", false))
	}},
	{"changes", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeBegun) && s.after(c.until(changeLimit)) && s.changing(c.progress())
	}},
	{"change backs off", func(c *groupChange, s *changeStep) bool {
		return c.is(v1alpha1.ChangeUndone) && (!c.runs || c.isUndone() && c.until(c.pause()) > 0) && s.after(max(c.until(c.pause()), takenPause)) &&
			s.waits(v1alpha1.GroupRunning, v1alpha1.ReasonChangeFailed, c.was.Message)
	}},
	{"change begins", func(c *groupChange, s *changeStep) bool {
		try := int64(1)
		if c.isUndone() {
			try = c.was.Try + 1
		}
		return s.becomes(&v1alpha1.ServingGroupChange{Revision: c.target, State: v1alpha1.ChangeBegun, Since: c.now(), Try: try})
	}},
}

// changeLimit is how long the new models of a group may take until all are healthy. Launchers then have the
// same time again to commit or undo their swaps. firstChangePause is the time before a change that was undone
// is tried again; it doubles with each try, up to longestChangePause.
const (
	changeLimit        = 15 * time.Minute
	firstChangePause   = time.Minute
	longestChangePause = time.Hour
)

func (c *groupChange) pause() time.Duration {
	if c.was.Try > 6 {
		return longestChangePause
	}
	return min(firstChangePause<<(c.was.Try-1), longestChangePause)
}

// until returns how much is left of a time since the change came to its state.
func (c *groupChange) until(limit time.Duration) time.Duration {
	return c.was.Since.Add(limit).Sub(c.w.Now)
}

// now returns the time as the API server stores it, in whole seconds.
func (c *groupChange) now() metav1.Time { return metav1.NewTime(c.w.Now.Truncate(time.Second)) }

// at returns the change in another state.
func (c *groupChange) at(state v1alpha1.ChangeState, why string, misfit bool) *v1alpha1.ServingGroupChange {
	return &v1alpha1.ServingGroupChange{Revision: c.was.Revision, State: state, Since: c.now(), Try: c.was.Try, Message: why, Misfit: misfit}
}

// becomes says what the status has of the change then. The row does nothing else: the next pass acts on
// what the status has.
func (s *changeStep) becomes(next *v1alpha1.ServingGroupChange) bool {
	s.Change = next
	return next == nil || next.State == v1alpha1.ChangeUndone || s.changing("the models of the group are changed in place")
}

func (s *changeStep) changing(what string) bool {
	return s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonChanging, what)
}

// patch has Pods changed. It returns whether there are any.
func (s *changeStep) patch(members []*Member, how func(*Member) *Step) bool {
	for _, m := range members {
		step := how(m)
		step.Row, step.Of, step.State = s.Row, m, v1alpha1.GroupProgressing
		step.Reason = v1alpha1.ReasonChanging
		step.Why = "Pod " + m.name() + " is told of the change"
		s.patches = append(s.patches, step)
	}
	return len(members) > 0
}

// patchTo returns the step that tells a requester of a change, and what its engine is told by a plan.
func (m *Member) patchTo(by *plan, to podmeta.SwapTo) *Step {
	return &Step{Do: Patch, Object: m.told(by, to), Was: m.Pod.Is}
}
