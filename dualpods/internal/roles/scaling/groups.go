package scaling

import "maps"

// Group is a group that the ModelServing should have.
type Group struct {
	// Has are the numbers of replicas that the group was given, by role. nil: it is a new group, or
	// is to be created again.
	Has map[string]int
	// Wants are the numbers that it is to get.
	Wants  map[string]int
	Scales bool // it was given other numbers in its turn, and does not run yet
	Grown  bool // it was given more replicas when it did not run, and has not run since
	Runs   bool // all Pods are ready, and there are as many as Has says
}

// Target is what a group is to have.
type Target struct {
	Row     string
	Numbers map[string]int // by role
	Scales  bool           // the other groups wait until it runs
	Grown   bool           // it has got more replicas, and the others do not wait
}

// row is a row of the table. It returns the target; ok is false if the row does not fit.
type row struct {
	name string
	fits func(groups []Group, ordinal int) (t Target, ok bool)
}

// Waits is the row of a group that is yet to get other numbers.
const Waits = "waits"

var rows = []row{
	{"new", func(groups []Group, n int) (Target, bool) {
		return Target{Numbers: groups[n].Wants}, groups[n].Has == nil
	}},
	{"is being scaled", func(groups []Group, n int) (Target, bool) {
		return Target{Numbers: groups[n].Wants, Scales: true}, groups[n].Scales
	}},
	{"as it should be", func(groups []Group, n int) (Target, bool) {
		return Target{Numbers: groups[n].Wants, Grown: groups[n].Grown}, !groups[n].differs()
	}},
	{"does not run", func(groups []Group, n int) (Target, bool) {
		return Target{Numbers: groups[n].Wants, Grown: groups[n].Grown || groups[n].grows()}, !groups[n].Runs
	}},
	{"its turn", func(groups []Group, n int) (Target, bool) {
		return Target{Numbers: groups[n].Wants, Scales: true}, isFree(groups) && isHighest(groups, n)
	}},
	{Waits, func(groups []Group, n int) (Target, bool) { return Target{Numbers: groups[n].Has}, true }},
}

// Decide returns the target of each group, by ordinal.
func Decide(groups []Group) []Target {
	targets := make([]Target, len(groups))
	for ordinal := range groups {
		for _, r := range rows {
			if target, ok := r.fits(groups, ordinal); ok {
				target.Row = r.name
				targets[ordinal] = target
				break
			}
		}
	}
	return targets
}

// differs reports whether a group is to get other numbers than it has.
func (g *Group) differs() bool { return !maps.Equal(g.Has, g.Wants) }

// grows reports whether a group is to get more replicas of a role than it has.
func (g *Group) grows() bool {
	for role, n := range g.Wants {
		if n > g.Has[role] {
			return true
		}
	}
	return false
}

// isFree reports whether no group is being scaled.
func isFree(groups []Group) bool {
	for n := range groups {
		if groups[n].Has != nil && groups[n].Scales {
			return false
		}
	}
	return true
}

// isHighest reports whether no group with a higher ordinal runs and is to get other numbers.
func isHighest(groups []Group, n int) bool {
	for _, g := range groups[n+1:] {
		if g.Has != nil && g.Runs && g.differs() {
			return false
		}
	}
	return true
}
