package gang

import (
	"cmp"
	"slices"
)

// This file is about groups of which only a part has nodes: Pods were lost, or replicas were added. Each replica
// gets nodes by itself, so a lost Pod does not wait for room for new replicas.

// refill takes room for the counted replicas that fit, each with all its Pods, if a part of the group has nodes.
// It returns the Pods of these replicas that have the gate.
func (d *decision) refill(g *Gang, s *Step) (fit []*Member) {
	if len(at(g.counted, hasNode)) == 0 {
		return nil
	}
	waiting := g.waiting()
	for _, in := range g.mayContinue() {
		s.in = area{in, g.area().replicas}
		for _, of := range waiting {
			if a, fits := d.takeReplica(g, s.in, of); fits {
				s.in, fit = a, append(fit, of...)
			}
		}
		if len(fit) > 0 {
			return fit
		}
	}
	return nil
}

// waiting returns, for each counted replica whose Pods are all there, its Pods with the gate. Replicas of which
// a part has nodes come first, then the lowest numbers. Replicas with a gate of others are left out.
func (g *Gang) waiting() (all [][]*Member) {
	numbers, byRole := map[*Replica]int{}, map[string]int{}
	for _, r := range g.Replicas {
		numbers[r] = byRole[r.Role.Name]
		byRole[r.Role.Name]++
		gated := at(r.Pods, isGated)
		if len(gated) > 0 && slices.Contains(g.counted, gated[0]) && len(at(r.Pods, isMissing, leaves)) == 0 && !slices.ContainsFunc(gated, func(m *Member) bool { return m.otherGate() != "" }) {
			all = append(all, gated)
		}
	}
	untouched := func(r *Replica) int { return min(len(at(r.Pods, isGated))/len(r.Pods), 1) }
	slices.SortStableFunc(all, func(a, b []*Member) int {
		return cmp.Or(untouched(a[0].of)-untouched(b[0].of), numbers[a[0].of]-numbers[b[0].of])
	})
	return all
}
