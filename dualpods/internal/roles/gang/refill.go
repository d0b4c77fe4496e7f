package gang

import (
	"cmp"
	"slices"
)

// This file has groups that have nodes and lack others: Pods were lost, or there are more replicas now. They
// get each replica for itself, so a lost Pod does not wait until there is room for new replicas, too.

// refill takes room for those counted replicas of a group with nodes that fit, each with all its Pods, and
// returns their Pods that have the gate.
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

// waiting returns the Pods with the gate of counted replicas whose Pods are all there: first of replicas of
// which a part has nodes, then of those with the lowest numbers. Replicas with a gate of others are left
// out.
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
