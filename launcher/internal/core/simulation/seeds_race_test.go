//go:build race

package simulation

// standardSeeds is how many schedules run where nobody says how many: the race
// detector makes each of them several times slower. Each has the same goroutines meet.
const standardSeeds = 30
