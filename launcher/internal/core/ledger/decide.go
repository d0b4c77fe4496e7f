package ledger

import (
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// MovingError reports that an instance is still changing its state: the decision has
// to wait.
type MovingError struct{ InstanceID string }

func (e *MovingError) Error() string {
	return "instance " + e.InstanceID + " is changing its state"
}

// MinResidencyError reports that an instance that would leave has not been awake for
// min_residency yet: the decision has to wait.
type MinResidencyError struct {
	InstanceID string
	Wait       time.Duration // the rest of min_residency
}

func (e *MinResidencyError) Error() string {
	return fmt.Sprintf("instance %s stays awake for another %s (min_residency)", e.InstanceID, e.Wait)
}

// MoreGPUsError reports that the swap needs its turn on these GPUs too: an instance
// that has to leave uses them as well.
type MoreGPUsError struct{ GPUs []string }

func (e *MoreGPUsError) Error() string { return fmt.Sprintf("the swap changes GPUs %v", e.GPUs) }

// Decide plans what a swap has to do so that In is the only instance awake on gpus. It
// is pure; now is the time of the decision.
//
//	In               others awake there   answer
//	none             none                 nothing to do
//	awake            none                 nothing to do
//	none             some                 the others leave
//	awake            some                 the others leave
//	sleeping or new  some                 the others leave; In wakes or starts
//	sleeping or new  none                 In wakes or starts
//	stopped, failed  any                  conflict, unless In is new and takes its place
//	on other GPUs    any                  conflict
//
// Other errors have the codes not_found, exists and does_not_fit. If the decision has
// to wait, the error is a [MovingError], [MinResidencyError] or [MoreGPUsError].
func Decide(w World, p launcher.Plan, gpus []string, now time.Time) (launcher.Plan, error) {
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
			return p, &MoreGPUsError{GPUs: wider}
		}
		if wait := w.Budget.MinResidency.D() - now.Sub(i.Since); wait > 0 && w.Budget.MinResidency > 0 {
			return p, &MinResidencyError{InstanceID: i.ID, Wait: wait}
		}
	}
	var err error
	if p.Room, err = w.room(p, gpus); err != nil {
		return p, err
	}
	p.Evict, err = evictions(w, p)
	return p, err
}

// room returns the room that the instance that comes in needs. It returns nil if that
// instance is already awake, or if none comes in.
func (w World) room(p launcher.Plan, gpus []string) (*launcher.Room, error) {
	there := slices.ContainsFunc(w.Instances, func(i Instance) bool { return i.ID == p.In && (!p.CreatesIn() || !i.State.Ended()) })
	switch {
	case p.CreatesIn() && there:
		return nil, launcher.Existsf("Instance with ID %s already exists; name it as in.instance_id to wake it", p.In)
	case p.CreatesIn() || p.In == "":
		return p.Room, nil
	case !there:
		return nil, launcher.NotFound(p.In)
	}
	in := w.Instance(p.In)
	if len(missing(in.GPUs, gpus))+len(missing(gpus, in.GPUs)) > 0 {
		return nil, launcher.Conflictf("instance %s runs on GPUs %v, not on %v; an instance cannot move to other GPUs", p.In, in.GPUs, gpus)
	}
	switch in.State {
	case launcher.Awake:
		return nil, nil //nolint:nilnil // no room needed, nothing wrong
	case launcher.Sleeping:
		want := in.Want(p.SwapID)
		return &want, nil
	case launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Stopped, launcher.Failed:
	}
	return nil, launcher.Conflictf("cannot wake instance %s: it is %s; ask again, and the swap starts it", p.In, in.State)
}

// missing returns the elements of need that are not in have.
func missing(have, need []string) []string {
	var out []string
	for _, g := range need {
		if !slices.Contains(have, g) {
			out = append(out, g)
		}
	}
	return out
}
