// Package scaling decides how many replicas each role of each group is to have, and which ones. All
// its functions are pure. The table is in spec/roles.md.
package scaling

import (
	"fmt"
	"maps"
)

// Ratio bounds the numbers of two roles by each other.
type Ratio struct {
	NumeratorRole, DenominatorRole string
	Numerator, Denominator         int // at least 1
	// Min and Max say how far the ratio of the numbers may be from Numerator : Denominator, in
	// percent of that; Min ≤ 100 ≤ Max.
	Min, Max int
}

// Bound returns the numbers with that role reduced which has too many replicas for the other one.
// held says so; empty: neither has. A role without replicas bounds nothing, and a role keeps at
// least one replica. The result is another map than numbers if it differs.
func (r *Ratio) Bound(numbers map[string]int) (bounded map[string]int, held string) {
	if r == nil {
		return numbers, ""
	}
	above, below := numbers[r.NumeratorRole], numbers[r.DenominatorRole]
	if above == 0 || below == 0 {
		return numbers, ""
	}
	if most := max(below*r.Numerator*r.Max/(r.Denominator*100), 1); above > most {
		return r.hold(numbers, r.NumeratorRole, most, r.DenominatorRole)
	}
	if r.Min == 0 {
		return numbers, ""
	}
	if most := max(above*r.Denominator*100/(r.Numerator*r.Min), 1); below > most {
		return r.hold(numbers, r.DenominatorRole, most, r.NumeratorRole)
	}
	return numbers, ""
}

func (r *Ratio) hold(numbers map[string]int, role string, most int, by string) (map[string]int, string) {
	bounded := maps.Clone(numbers)
	bounded[role] = most
	return bounded, fmt.Sprintf("role %s gets %d replicas, and not %d, as there are %d of role %s: change ratioConstraint, or that number", role, most, numbers[role], numbers[by], by)
}
