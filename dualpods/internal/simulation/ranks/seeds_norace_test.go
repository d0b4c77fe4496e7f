//go:build !race

package ranks

// standard is how many schedules run where nobody says how many.
const standard = 150
