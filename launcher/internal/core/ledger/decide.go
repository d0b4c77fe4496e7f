package ledger

import (
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// Plan is what a swap does. A request fills in SwapID, In, Stop, Level, Drain and
// Until, and the Room of a new instance; [Decide] fills in the rest. From then on
// the plan does not change: it is written down, executed and reported as it stands.
type Plan struct {
	SwapID string        `json:"swap_id"`
	GPUs   []string      `json:"gpus,omitempty"`  // UUIDs of the GPUs that the swap has its turn on
	In     string        `json:"in,omitempty"`    // id of the instance that comes in; empty: none
	Room   *Want         `json:"room,omitempty"`  // what In needs; nil: In is awake already and stays, or there is none
	Out    []string      `json:"out,omitempty"`   // ids of the instances that are awake on the GPUs and leave
	Stop   bool          `json:"stop,omitempty"`  // the instances that leave are ended once In is awake; until then they sleep
	Level  int           `json:"level"`           // at which the instances that leave sleep
	Evict  []string      `json:"evict,omitempty"` // ids of the sleepers that are ended first, in that order
	Drain  time.Duration `json:"drain"`           // how long answers in flight of the instances that leave may take
	Until  time.Time     `json:"until"`           // when the swap's time is over
}

// Makes says whether the swap makes the instance that comes in.
func (p Plan) Makes() bool { return p.Room != nil && p.Room.New }

// Idle says whether there is nothing to do.
func (p Plan) Idle() bool { return len(p.Out) == 0 && p.Room == nil }

// Parties are the ids of the existing instances that the plan names.
func (p Plan) Parties() []string {
	all := slices.Concat(p.Out, p.Evict)
	if p.In != "" && !p.Makes() {
		all = append(all, p.In)
	}
	return all
}

// MovingError says that an instance is on its way to another state, so that
// nothing can be decided yet.
type MovingError struct{ InstanceID string }

func (e *MovingError) Error() string {
	return "instance " + e.InstanceID + " is on its way to another state"
}

// TooSoonError says that an instance has not been awake for long enough to be
// sent away.
type TooSoonError struct {
	InstanceID string
	Wait       time.Duration // until the instance has been awake for long enough
}

func (e *TooSoonError) Error() string {
	return fmt.Sprintf("instance %s stays awake for another %s (min_residency)", e.InstanceID, e.Wait)
}

// WiderError says that the swap needs its turn on more GPUs: an instance that
// has to leave is on them as well.
type WiderError struct{ GPUs []string }

func (e *WiderError) Error() string { return fmt.Sprintf("the swap touches GPUs %v", e.GPUs) }

// Decide answers what a swap has to do for In to be the only instance that is awake
// on gpus. It is pure: now is the time of the decision.
//
//	in               others awake there   answer
//	none             none                 nothing to do
//	awake            none                 nothing to do
//	any but ended    some                 they leave; in wakes or starts
//	sleeping or new  none                 in wakes or starts
//	stopped, failed  any                  conflict
//	on other GPUs    any                  conflict
//
// Other errors: not_found, exists and does_not_fit; a [MovingError], [TooSoonError]
// or [WiderError] where nothing can be decided yet.
func Decide(w World, p Plan, gpus []string, now time.Time) (Plan, error) {
	for _, i := range w.Instances {
		if i.ID != p.In && !slices.ContainsFunc(i.GPUs, func(g string) bool { return slices.Contains(gpus, g) }) {
			continue
		}
		if i.State.Moving() || i.State.Ended() && !i.Released {
			return p, &MovingError{InstanceID: i.ID}
		}
		if i.State != launcher.Awake || i.ID == p.In {
			continue
		}
		p.Out = append(p.Out, i.ID)
		if wider := missing(p.GPUs, i.GPUs); len(wider) > 0 {
			return p, &WiderError{GPUs: wider}
		}
		if wait := w.Budget.MinResidency.D() - now.Sub(i.Since); wait > 0 && w.Budget.MinResidency > 0 {
			return p, &TooSoonError{InstanceID: i.ID, Wait: wait}
		}
	}
	var err error
	if p.Room, err = w.room(p, gpus); err != nil {
		return p, err
	}
	p.Evict, err = evictions(w, p)
	return p, err
}

// room is what the instance that comes in needs; nil when that is awake already, or
// when none comes in.
func (w World) room(p Plan, gpus []string) (*Want, error) {
	there := slices.ContainsFunc(w.Instances, func(i Instance) bool { return i.ID == p.In })
	switch {
	case p.Makes() && there:
		return nil, launcher.Existsf("Instance with ID %s already exists: name it as in.instance_id to bring it in", p.In)
	case p.Makes() || p.In == "":
		return p.Room, nil
	case !there:
		return nil, launcher.NotFound(p.In)
	}
	in := w.Instance(p.In)
	if len(missing(in.GPUs, gpus))+len(missing(gpus, in.GPUs)) > 0 {
		return nil, launcher.Conflictf("instance %s lives on GPUs %v, not on %v: an instance cannot move to other GPUs", p.In, in.GPUs, gpus)
	}
	switch in.State {
	case launcher.Awake:
		return nil, nil //nolint:nilnil // no room needed, nothing wrong
	case launcher.Sleeping:
		want := in.Want(p.SwapID)
		return &want, nil
	case launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Stopped, launcher.Failed:
	}
	return nil, launcher.Conflictf("instance %s is %s and cannot be brought in: delete it and make it anew", p.In, in.State)
}

// missing gives the elements of need that have lacks.
func missing(have, need []string) []string {
	var out []string
	for _, g := range need {
		if !slices.Contains(have, g) {
			out = append(out, g)
		}
	}
	return out
}
