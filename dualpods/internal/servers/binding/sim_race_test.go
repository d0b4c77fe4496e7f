//go:build race

package binding

// simStandard is how many schedules run where nobody says how many: the race
// detector makes each of them ten times slower, and make test runs more without it. Each
// schedule has the same goroutines meet, so a few of them show the detector what there is.
const simStandard = 8

// simSeated is how many schedules run in which requesters are seats.
const simSeated = 4

// simKilled is in how many schedules the controller is killed after the step of a row.
// The controllers that schedules kill by chance are enough for the race detector.
const simKilled = 0

// simComposed is with how many seeds a schedule is played that was composed by hand.
const simComposed = 3
