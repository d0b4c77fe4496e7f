// Package placement tells the scheduler on which nodes a requester's model is near. It
// handles the requesters that carry podmeta.SchedulingGate: it adds node preferences and
// removes the gate. spec/placement.md has the decision table.
package placement
