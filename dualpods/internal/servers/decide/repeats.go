package decide

import "time"

// Repeated counts the writes of one kind to a requester.
type Repeated struct {
	Times int
	Last  time.Time
}

// spaced replaces a write that was made many times by a pause. The first writes are made at once:
// edits of labels, and a model that is served again and again, need them.
func (o *Observation) spaced(step Step) Step {
	made := o.Repeats[step.Do]
	if made.Times <= Freely {
		return step
	}
	left := made.Last.Add(PauseAfter(FirstPause, made.Times-Freely)).Sub(o.Now)
	if left <= 0 {
		return step
	}
	return Step{Rule: step.Rule, Do: Retry, After: left, Why: "somebody reverts what the controller writes: " + step.Why}
}
