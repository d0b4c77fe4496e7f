package binding

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Neighbour is an instance that another launcher of the node has on a GPU of the
// record. To the record's launcher its memory is foreign.
type Neighbour struct {
	launcherapi.Instance
	Launcher string // key by which it is asked
	Name     string // of its Pod
	Recorded bool   // a record is of it
	Living   bool   // and the record's requester is to go on
	Deleting bool   // the controller has asked for its deletion
	// Silent: its launcher runs and does not answer, so that the instance is as it
	// was when the launcher answered last; of one that has not answered yet it is
	// known by its record alone, without a state.
	Silent bool
	Lost   time.Time // since when
	Why    string
}

func (b *Neighbour) key() string { return b.Launcher + "/" + b.InstanceID }

// beside are the other launchers of the node that may have something on the GPUs
// of launcher l.
func (c *Controller) beside(w *world, l *launcherPod) (others []*launcherPod) {
	for _, other := range w.launchers {
		switch {
		case other == l || other.ended():
		case !other.countsFor(l.pod.Namespace):
		case !c.opts.Views.Pick(other.key(), nil).Connected && !other.runs(): // it has not begun
		default:
			others = append(others, other)
		}
	}
	return others
}

// unheard is one of them that this process has not heard of since it began to ask,
// the last one that it began with: nobody knows whether it has an instance awake
// that no record is of.
func (c *Controller) unheard(others []*launcherPod) (last *Launcher) {
	for _, other := range others {
		view := c.opts.Views.Pick(other.key(), nil)
		if !view.Connected && view.Instances == nil && (last == nil || view.Lost.After(last.Lost)) {
			last = &Launcher{Name: other.pod.Name, Lost: view.Lost, Why: view.Why}
		}
	}
	return last
}

// neighbours are those of a requester with a record, among what those launchers have.
func (c *Controller) neighbours(n *nodeWork, w *world, others []*launcherPod, record *podmeta.Binding) (found []Neighbour) {
	on := func(i launcherapi.Instance) bool {
		return slices.ContainsFunc(i.GPUUUIDs, func(g string) bool { return slices.Contains(record.GPUs, g) })
	}
	for _, other := range others {
		view := c.opts.Views.Pick(other.key(), func(id string, i launcherapi.Instance) bool { return on(i) || other.holder(id) != "" })
		for id, i := range other.instances(view) {
			if !on(i) {
				continue
			}
			b := Neighbour{
				Instance: i, Launcher: other.key(), Name: other.pod.Name, Deleting: n.calls.underWay(deleteKey(other, id), view.Revision),
				Silent: !view.Connected, Lost: view.Lost, Why: view.Why,
			}
			for n := range other.bindings {
				if theirs := &other.bindings[n]; theirs.Instance == id {
					pod := w.pod(dualpods.IdentityIn(theirs))
					b.Recorded, b.Living = true, pod != nil && !dualpods.RequesterOf(pod).IsOver()
				}
			}
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b Neighbour) int { return lastUse(a.Instance).Compare(lastUse(b.Instance)) })
	return found
}

// instances are those that a launcher has, as far as is known: one that does not
// answer may have those that it has records of. The View has to include these.
func (l *launcherPod) instances(view nodeview.View) map[string]launcherapi.Instance {
	if view.Connected {
		return view.Instances
	}
	all := map[string]launcherapi.Instance{}
	for _, b := range l.bindings {
		all[b.Instance] = launcherapi.Instance{InstanceID: b.Instance, GPUUUIDs: b.GPUs}
	}
	maps.Copy(all, view.Instances)
	return all
}

func lastUse(i launcherapi.Instance) time.Time {
	if i.LastUsedAt != nil {
		return *i.LastUsedAt
	}
	return i.CreatedAt
}

// evict begins to delete neighbours for the attempt of a record.
func (c *Controller) evict(n *nodeWork, w *world, l *launcherPod, record *podmeta.Binding, victims []Neighbour) error {
	var asked []string
	var errs []error
	for _, b := range victims {
		for _, other := range w.launchers {
			if other.key() == b.Launcher {
				errs = append(errs, c.callLauncher(n, other, b.InstanceID, DeleteInstance, nil, form.Form{}))
				asked = append(asked, b.key())
			}
		}
	}
	n.calls.evict(swapKey(l, record), asked)
	return errors.Join(errs...)
}

// restless is a neighbour that the controller is putting to rest.
func (o *Observation) restless() *Neighbour {
	for n := range o.Neighbours {
		if b := &o.Neighbours[n]; !b.Silent && ours(b.Instance) && !b.Living && !b.rests() {
			return b
		}
	}
	return nil
}

// rests says that an instance has no model awake, nor is about to. A sleeper that
// a swap moves may be: its launcher wakes it again when that swap is undone.
func (b *Neighbour) rests() bool {
	switch launcher.State(b.State) {
	case launcher.Sleeping:
		return b.SwapID == ""
	case launcher.Stopped, launcher.Failed:
		return true
	default:
		return false
	}
}

// unrest is why one does not.
func (b *Neighbour) unrest() string {
	switch launcher.State(b.State) {
	case launcher.Sleeping:
		return "may be awake on its GPU again when swap " + b.SwapID + ", which moves it, is undone"
	case launcher.Stopping:
		return "is still being stopped on its GPU, and has to end first"
	default:
		return "is " + strings.ReplaceAll(b.State, "_", " ") + " on its GPU, and has to sleep first"
	}
}

// unseen is a neighbour that is to be put to rest, and whose launcher does not
// tell whether it is: one that has a record still, for that goes once the instance
// rests, or that was not at rest when the launcher answered last.
func (o *Observation) unseen() *Neighbour {
	for n := range o.Neighbours {
		if b := &o.Neighbours[n]; b.Silent && !b.Living && (b.Recorded || ours(b.Instance) && !b.rests()) {
			return b
		}
	}
	return nil
}

// victims are the sleepers of other launchers, least recently used first, whose
// memory the attempt lacks; none where it would lack some still.
func (o *Observation) victims() (found []Neighbour) {
	fit := o.Attempt.NoRoom
	if fit == nil {
		return nil
	}
	lacks := lacking(fit)
	for _, b := range o.Neighbours {
		if b.Silent || launcher.State(b.State) != launcher.Sleeping || !ours(b.Instance) || pinned(b.Instance) || b.Recorded || b.SwapID != "" || !slices.Contains(b.GPUUUIDs, fit.GPUUUID) {
			continue
		}
		bytes, measured := b.GPUBytes[fit.GPUUUID]
		if measured && bytes == 0 {
			continue
		}
		found = append(found, b)
		if !measured || bytes >= lacks { // what it holds will show
			return found
		}
		lacks -= bytes
	}
	return nil
}

// lacking is how many bytes are missing.
func lacking(fit *launcherapi.Fit) uint64 { return fit.Needed - min(fit.Needed, fit.Available) }

// evicting is a neighbour that goes for the attempt; left says that one should
// have gone and does not.
func (o *Observation) evicting() (going *Neighbour, left bool) {
	for n := range o.Neighbours {
		b := &o.Neighbours[n]
		switch {
		case b.Silent || !slices.Contains(o.Attempt.Evicted, b.key()):
		case b.Deleting || launcher.State(b.State) == launcher.Stopping:
			return b, true
		default:
			left = true
		}
	}
	return nil, left
}

// makingRoom are the rows for an attempt that came to nothing since memory is
// missing that sleepers of other launchers hold.
var makingRoom = []rule{
	{"room being made", func(o *Observation) bool {
		going, _ := o.evicting()
		return going != nil && o.noRoom()
	}, do(Nothing, "a sleeper of another launcher is being evicted")},
	{"room made", func(o *Observation) bool {
		_, left := o.evicting()
		return o.noRoom() && (len(o.Attempt.Evicted) > 0 && !left || o.Attempt.Earlier && len(o.victims()) > 0)
	}, func(o *Observation) Step {
		record := o.renewed()
		record.New = o.Instance == nil
		why := "sleepers of other launchers were evicted to make room"
		if o.Attempt.Earlier {
			why = "an earlier controller process may have evicted sleepers of other launchers to make room"
		}
		return Step{Do: NextAttempt, Why: why, Record: record}
	}},
	{"room taken elsewhere", func(o *Observation) bool { return o.noRoom() && len(o.Attempt.Evicted) == 0 && len(o.victims()) > 0 },
		func(o *Observation) Step {
			step := Step{Do: Evict, Victims: o.victims()}
			first := step.Victims[0]
			step.Why = fmt.Sprintf("GPU %s has %d bytes too few, which %d sleepers of other launchers hold: instance %s of launcher %s was used least recently",
				o.Attempt.NoRoom.GPUUUID, lacking(o.Attempt.NoRoom), len(step.Victims), first.InstanceID, first.Name)
			return step
		}},
}

func (o *Observation) noRoom() bool { return o.Attempt.NoRoom != nil && !o.in(launcher.Awake) }

// awakeElsewhere are the rows for a GPU on which another launcher's instance, which
// nobody is bound to any more, is not asleep yet, or may be awake.
var awakeElsewhere = []rule{
	{"neighbour not heard", func(o *Observation) bool {
		return o.beforeSwap() && o.Unheard != nil && o.Now.Sub(o.Unheard.Lost) < patience
	}, func(o *Observation) Step {
		return Step{Do: Retry, After: patience - o.Now.Sub(o.Unheard.Lost), Why: fmt.Sprintf("launcher %s has not told yet what it has on its GPU: %s", o.Unheard.Name, o.Unheard.Why)}
	}},
	{"neighbour just lost", func(o *Observation) bool {
		return o.beforeSwap() && o.unseen() != nil && o.Now.Sub(o.unseen().Lost) < patience
	}, func(o *Observation) Step {
		b := o.unseen()
		return Step{Do: Retry, After: patience - o.Now.Sub(b.Lost), Why: fmt.Sprintf("launcher %s does not say whether its instance %s is awake on its GPU: %s", b.Name, b.InstanceID, b.Why)}
	}},
	{"neighbour silent", func(o *Observation) bool { return o.beforeSwap() && o.unseen() != nil },
		warn(LauncherSilent, "instance %s of launcher %s may be awake on its GPU, and has to sleep first: launcher %s does not answer: %s",
			func(o *Observation) string { return o.unseen().InstanceID }, func(o *Observation) string { return o.unseen().Name },
			func(o *Observation) string { return o.unseen().Name }, func(o *Observation) string { return o.unseen().Why })},
	{"awake elsewhere", func(o *Observation) bool { return o.beforeSwap() && o.restless() != nil },
		inform(GPUBusy, "instance %s of launcher %s %s", func(o *Observation) string { return o.restless().InstanceID },
			func(o *Observation) string { return o.restless().Name }, func(o *Observation) string { return o.restless().unrest() })},
}

// beforeSwap says that a swap would be asked for, if nothing were in its way.
func (o *Observation) beforeSwap() bool { return !o.Attempt.Asked && o.atRest() }

// noRoom gives the numbers of a refusal for want of device memory that others
// than the launcher hold.
func noRoom(err error) *launcherapi.Fit {
	e, ok := errors.AsType[*launcher.Error](err)
	if !ok || e.Fit == nil || e.Fit.Bound != launcherapi.BoundDeviceMemory || e.Fit.Foreign == 0 {
		return nil
	}
	return e.Fit
}
