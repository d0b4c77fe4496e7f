//go:build !race

package gang

// standardSeeds is how many schedules run where nobody says how many.
const standardSeeds = 100
