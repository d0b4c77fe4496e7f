//go:build !race

package simulation

// standard is how many schedules run where nobody says how many.
const standard = 200
