//go:build !race

package simulation

// standardSeeds is how many schedules run where nobody says how many.
const standardSeeds = 1000
