//go:build !race

package binding

// simStandard is how many schedules run where nobody says how many.
const simStandard = 500

// simSeated is how many schedules run in which requesters are seats.
const simSeated = 300

// simKilled is in how many schedules the controller is killed after the step of a row.
const simKilled = 3

// simComposed is with how many seeds a schedule is played that was composed by hand.
const simComposed = 40
