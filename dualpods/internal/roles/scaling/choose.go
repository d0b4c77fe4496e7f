package scaling

import (
	"cmp"
	"slices"
)

// Replica is a replica of a role that has a Pod which stays.
type Replica struct {
	Ordinal int
	Ready   bool  // all its Pods are there, and ready
	Cost    int32 // the pod-deletion-cost of its entry
}

// Choose returns the ordinals of the n replicas that a role is to have, in ascending order. If
// it has more, the unready ones go first, then those of the lowest cost, and among equals the
// highest ordinals. New ones get the lowest ordinals that are free.
func Choose(n int, has []Replica) []int {
	kept := slices.SortedFunc(slices.Values(has), func(a, b Replica) int {
		return cmp.Or(cmp.Compare(unready(a), unready(b)), cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	chosen := make([]int, 0, n)
	for _, r := range kept[:min(n, len(kept))] {
		chosen = append(chosen, r.Ordinal)
	}
	taken := make(map[int]bool, len(chosen))
	for _, ordinal := range chosen {
		taken[ordinal] = true
	}
	for free := 0; len(chosen) < n; free++ {
		if !taken[free] {
			chosen = append(chosen, free)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func unready(r Replica) int {
	if r.Ready {
		return 0
	}
	return 1
}
