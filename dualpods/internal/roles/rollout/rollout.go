// Package rollout decides which revision each group of a ModelServing is to have while a new
// template is rolled out. All its functions are pure. The table is in spec/roles.md.
package rollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Strategy is how a template is rolled out.
type Strategy struct {
	Partition      int // groups with a lower ordinal keep their revision
	MaxUnavailable int // how many groups may be updated at once; at least 1
}

// Resolve returns the Strategy for so many groups. A percentage of groups that are kept is rounded
// up, and one of groups that may not run is rounded down. nil stands for the default: none is
// kept, and one may not run.
func Resolve(partition, maxUnavailable *intstr.IntOrString, groups int) Strategy {
	s := Strategy{MaxUnavailable: 1}
	if partition != nil {
		s.Partition, _ = intstr.GetScaledValueFromIntOrPercent(partition, groups, true) // the API server checks the form
	}
	if maxUnavailable != nil {
		n, _ := intstr.GetScaledValueFromIntOrPercent(maxUnavailable, groups, false)
		s.MaxUnavailable = max(n, 1)
	}
	return s
}

// Group is a group that the ModelServing should have.
type Group struct {
	// Revisions are those of its Pods that are not being deleted, each once.
	Revisions []string
	Runs      bool // all its Pods are ready, and there are as many as its revision says
	Changing  bool // its Pods are being changed to the present revision in place
	Updating  bool // what the status says: Target.Updating of an earlier pass
}

// World is the input of a decision.
type World struct {
	Strategy
	Present string // the revision of the present template
	Current string // the one before it, which groups without Pods below the partition get; empty: there is none
	Held    bool   // the present template is not valid: groups with Pods keep their revision
	Groups  []Group
}

// Target is the revision that a group is to have. Its Pods of other revisions are to be deleted.
type Target struct {
	Row, Revision string
	Updating      bool // its turn has come, and it does not run with its revision yet, or others wait for their turn
}

// row is a row of the table. It returns the revision; ok is false if the row does not fit.
type row struct {
	name string
	fits func(*World, int) (revision string, ok bool)
}

const itsTurn = "its turn"

var rows = []row{
	{"has begun", func(w *World, ordinal int) (string, bool) {
		g := &w.Groups[ordinal]
		return w.Present, g.Changing || slices.Contains(g.Revisions, w.Present)
	}},
	{"kept, without Pods", func(w *World, ordinal int) (string, bool) {
		return w.Current, w.isKept(ordinal) && w.old(ordinal) == "" && w.Current != ""
	}},
	{"kept", func(w *World, ordinal int) (string, bool) {
		return w.old(ordinal), w.isKept(ordinal) && w.old(ordinal) != ""
	}},
	{"new", func(w *World, ordinal int) (string, bool) { return w.Present, w.old(ordinal) == "" }},
	{"held", func(w *World, ordinal int) (string, bool) { return w.old(ordinal), w.Held }},
	{"is being updated", func(w *World, ordinal int) (string, bool) { return w.Present, w.Groups[ordinal].Updating }},
	{"does not run", func(w *World, ordinal int) (string, bool) { return w.Present, !w.Groups[ordinal].Runs }},
	{itsTurn, func(w *World, ordinal int) (string, bool) {
		return w.Present, w.before(ordinal) < w.MaxUnavailable-w.updating()
	}},
	{"waits", func(w *World, ordinal int) (string, bool) { return w.old(ordinal), true }},
}

// Decide returns the target of each group, by ordinal.
func Decide(w *World) []Target {
	targets := make([]Target, len(w.Groups))
	for ordinal := range w.Groups {
		for _, r := range rows {
			if revision, ok := r.fits(w, ordinal); ok {
				targets[ordinal] = Target{r.name, revision, r.name == itsTurn || w.isUpdating(ordinal) || w.isAwaited(ordinal)}
				break
			}
		}
	}
	return targets
}

func (w *World) isKept(ordinal int) bool { return ordinal < w.Partition }

// old returns the revision that a group has; empty: none of its Pods stays.
func (w *World) old(ordinal int) string {
	if of := w.Groups[ordinal].Revisions; len(of) > 0 {
		return of[0]
	}
	return ""
}

// updating counts the groups that are being updated. A group that did not run before its update is not among them.
func (w *World) updating() (n int) {
	for ordinal := range w.Groups {
		if w.isUpdating(ordinal) {
			n++
		}
	}
	return n
}

// isUpdating reports whether a group was taken to be updated, and does not run with its revision yet.
func (w *World) isUpdating(ordinal int) bool {
	g := &w.Groups[ordinal]
	return g.Updating && (!g.Runs || w.waits(ordinal))
}

// isAwaited reports whether a group was taken to be updated, and others wait for their turn. If it fails
// meanwhile, as with a template that becomes ready and then fails, they wait until it runs again.
func (w *World) isAwaited(ordinal int) bool {
	g := &w.Groups[ordinal]
	return g.Updating && slices.Contains(g.Revisions, w.Present) && w.anyWaits()
}

func (w *World) anyWaits() bool {
	for ordinal := range w.Groups {
		if w.waits(ordinal) {
			return true
		}
	}
	return false
}

// waits reports whether a group is to be updated and has its Pods of another revision still.
func (w *World) waits(ordinal int) bool {
	g := &w.Groups[ordinal]
	return !w.isKept(ordinal) && len(g.Revisions) > 0 && !slices.Contains(g.Revisions, w.Present)
}

// before counts the groups that run and are updated before this one: higher ordinals go first.
func (w *World) before(ordinal int) (n int) {
	for other := ordinal + 1; other < len(w.Groups); other++ {
		if g := &w.Groups[other]; w.waits(other) && g.Runs && !g.Updating {
			n++
		}
	}
	return n
}
