//go:build race

package decide

// standardSeeds is how many schedules run where nobody says how many: the race detector makes them
// slow.
const standardSeeds = 20
