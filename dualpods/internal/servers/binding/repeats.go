package binding

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// repeated counts the writes of one kind to a requester.
type repeated struct {
	times int
	last  time.Time
}

// repeats counts the writes publish and open gate, by requester. A webhook or another
// controller that reverts them would otherwise get a new write in each pass. One pass of a node
// uses it at a time.
type repeats map[types.UID]map[Action]repeated

// add counts a write that succeeded, and returns the error of the write.
func (r repeats) add(o Observation, do Action, err error) error {
	if err != nil {
		return err
	}
	counts := r.of(o.Requester.UID)
	if counts == nil {
		counts = map[Action]repeated{}
	}
	before := counts[do]
	if o.Now.Sub(before.last) > settled {
		before.times = 0
	}
	counts[do] = repeated{times: before.times + 1, last: o.Now}
	r[o.Requester.UID] = counts
	return nil
}

// of returns the counts for a requester. Later writes do not change them.
func (r repeats) of(uid types.UID) map[Action]repeated { return maps.Clone(r[uid]) }

// forget removes the counts of requesters that are gone.
func (r repeats) forget(gone func(types.UID) bool) {
	maps.DeleteFunc(r, func(uid types.UID, _ map[Action]repeated) bool { return gone(uid) })
}

// spaced replaces a write that was made many times by a pause. The first writes are made at once:
// edits of labels, and a model that is served again and again, need them.
func (o *Observation) spaced(step Step) Step {
	made := o.Repeats[step.Do]
	if made.times <= freely {
		return step
	}
	left := made.last.Add(pauseAfter(firstPause, made.times-freely)).Sub(o.Now)
	if left <= 0 {
		return step
	}
	return Step{Rule: step.Rule, Do: Retry, After: left, Why: "somebody reverts what the controller writes: " + step.Why}
}
