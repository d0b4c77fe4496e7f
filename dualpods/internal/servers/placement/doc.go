// Package placement tells the scheduler where a requester's model is near, for the
// requesters that carry podmeta.SchedulingGate: it adds preferences for nodes, and
// takes the gate off. The rows are in spec/placement.md.
package placement
