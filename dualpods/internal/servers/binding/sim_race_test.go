//go:build race

package binding

// simStandard is how many schedules run where nobody says how many: the race
// detector makes each of them ten times slower, and make test runs more without it.
const simStandard = 20

// simKilled is in how many schedules the controller is killed after the step of a row.
const simKilled = 1

// simComposed is with how many seeds a schedule is played that was composed by hand.
const simComposed = 10
