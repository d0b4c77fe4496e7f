package swap

import (
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// order is a swap request that has been read.
type order struct {
	swapID string
	gpus   []string
	in     string              // id of the instance to come in; empty: none
	want   *ledger.Want        // of a new one; of one that exists it is worked out
	draft  *supervisor.Draft   // of a new one
	out    launcherapi.SwapOut // with defaults filled in
	now    time.Time           // of the decision
	held   []string            // GPUs that the swap has its turn on
}

// movingError says that an instance is on its way to another state, so that
// nothing can be decided yet.
type movingError struct{ id string }

func (e *movingError) Error() string { return "instance " + e.id + " is on its way to another state" }

// tooSoonError says that an instance has not been awake for long enough to be
// sent away.
type tooSoonError struct {
	id   string
	wait time.Duration
}

func (e *tooSoonError) Error() string {
	return fmt.Sprintf("instance %s stays awake for another %s (min_residency)", e.id, e.wait)
}

// widerError says that the swap needs its turn on more GPUs: an instance that
// has to leave is on them as well.
type widerError struct{ gpus []string }

func (e *widerError) Error() string { return fmt.Sprintf("the swap touches GPUs %v", e.gpus) }

// decide answers what a swap has to do. It is pure.
//
//	in               others awake there   answer
//	none             none                 nothing to do
//	awake            none                 nothing to do
//	any but ended    some                 they leave; in wakes or starts
//	sleeping or new  none                 in wakes or starts
//	stopped, failed  any                  conflict
//	on other GPUs    any                  conflict
func decide(o order, w ledger.World, instances []launcherapi.Instance) (supervisor.Intent, error) {
	intent := supervisor.Intent{In: o.in, New: o.draft != nil, Draft: o.draft, Stop: o.out.Mode == launcherapi.OutStop, Level: o.out.Level}
	clearing := stillHolding(w)
	var in *launcherapi.Instance
	for n := range instances {
		i := &instances[n]
		if i.InstanceID == o.in {
			in = i
		}
		if !touches(i, o.gpus) && i.InstanceID != o.in {
			continue
		}
		if !supervisor.Settled(*i) || clearing[i.InstanceID] {
			return intent, &movingError{id: i.InstanceID}
		}
		if i.State == string(launcher.Awake) && i.InstanceID != o.in {
			intent.Out = append(intent.Out, i.InstanceID)
			if wider := missing(o.held, i.GPUUUIDs); len(wider) > 0 {
				return intent, &widerError{gpus: wider}
			}
			if wait := w.Budget.MinResidency.D() - o.now.Sub(i.StateSince); wait > 0 && w.Budget.MinResidency > 0 {
				return intent, &tooSoonError{id: i.InstanceID, wait: wait}
			}
		}
	}
	want, err := o.wanted(w, in)
	if err != nil {
		return intent, err
	}
	intent.Want = want
	intent.Evict, err = ledger.PlanSwap(w, ledger.Swap{ID: o.swapID, Want: want, Out: intent.Out, Stop: intent.Stop})
	return intent, err
}

// wanted is the room that the swap needs; nil when in is awake already or
// there is none.
func (o order) wanted(w ledger.World, in *launcherapi.Instance) (*ledger.Want, error) {
	if o.draft != nil {
		if in != nil {
			return nil, launcher.Existsf("Instance with ID %s already exists: name it as in.instance_id to bring it in", o.in)
		}
		return o.want, nil
	}
	if o.in == "" {
		return nil, nil //nolint:nilnil // no room wanted, nothing wrong
	}
	if in == nil {
		return nil, launcher.NotFound(o.in)
	}
	if !sameSet(in.GPUUUIDs, o.gpus) {
		return nil, launcher.Conflictf("instance %s lives on GPUs %v, not on %v: an instance cannot move to other GPUs", o.in, in.GPUUUIDs, o.gpus)
	}
	switch launcher.State(in.State) {
	case launcher.Awake:
		return nil, nil //nolint:nilnil // no room wanted, nothing wrong
	case launcher.Sleeping:
		want := w.Instance(o.in).Want(o.swapID)
		return &want, nil
	case launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Stopped, launcher.Failed:
	}
	return nil, launcher.Conflictf("instance %s is %s and cannot be brought in: delete it and make it anew", o.in, in.State)
}

// stillHolding are the ids of the instances that have ended and still hold
// something.
func stillHolding(w ledger.World) map[string]bool {
	out := map[string]bool{}
	for _, i := range w.Instances {
		if i.State.Ended() && !i.Released {
			out[i.ID] = true
		}
	}
	return out
}

func touches(i *launcherapi.Instance, gpus []string) bool {
	return slices.ContainsFunc(i.GPUUUIDs, func(g string) bool { return slices.Contains(gpus, g) })
}

// missing gives what have lacks of need.
func missing(have, need []string) []string {
	var out []string
	for _, g := range need {
		if !slices.Contains(have, g) {
			out = append(out, g)
		}
	}
	return out
}

func sameSet(a, b []string) bool { return len(missing(a, b)) == 0 && len(missing(b, a)) == 0 }
