//go:build race

package simulation

// standard is how many schedules run where nobody says how many: the race detector
// makes each of them several times slower. Each has the same goroutines meet.
const standard = 8
