//go:build race

package ranks

// standard is how many schedules run where nobody says how many: the race detector makes each of
// them several times slower.
const standard = 8
