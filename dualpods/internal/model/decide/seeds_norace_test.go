//go:build !race

package decide

// standardSeeds is how many schedules run where nobody says how many.
const standardSeeds = 500
