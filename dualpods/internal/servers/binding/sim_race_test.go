//go:build race

package binding

// simStandard is how many schedules run where nobody says how many: the race
// detector makes each of them several times slower.
const simStandard = 100

// simKilled is in how many schedules the controller is killed after the step of a row.
const simKilled = 1
