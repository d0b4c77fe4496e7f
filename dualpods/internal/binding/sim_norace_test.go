//go:build !race

package binding

// simStandard is how many schedules run where nobody says how many.
const simStandard = 1000
