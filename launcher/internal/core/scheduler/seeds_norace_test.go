//go:build !race

package scheduler

// standardSeeds is how many schedules run where nobody says how many.
const standardSeeds = 300
