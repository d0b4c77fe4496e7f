//go:build race

package binding

// simStandard is how many schedules run where nobody says how many: the race
// detector makes each of them several times slower.
const simStandard = 100
