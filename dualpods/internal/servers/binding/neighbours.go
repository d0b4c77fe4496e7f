package binding

import (
	"errors"
	"maps"
	"slices"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// beside are the other launchers of the node that may have something on the GPUs
// of launcher l.
func (c *Controller) beside(w *world, l *launcherPod) (others []*launcherPod) {
	for _, other := range w.launchers {
		switch {
		case other == l || other.ended():
		case !other.countsFor(l.pod.Namespace):
		case !c.opts.Providers.Pick(other.key(), nil).Connected && !other.runs(): // it has not begun
		default:
			others = append(others, other)
		}
	}
	return others
}

// unheard is one of them that this process has not heard of since it began to ask,
// the last one that it began with: nobody knows whether it has an instance awake
// that no record is of.
func (c *Controller) unheard(others []*launcherPod) (last *decide.Launcher) {
	for _, other := range others {
		view := c.opts.Providers.Pick(other.key(), nil)
		if !view.Connected && view.Instances == nil && (last == nil || view.Lost.After(last.Lost)) {
			last = &decide.Launcher{Name: other.pod.Name, Lost: view.Lost, Why: view.Why}
		}
	}
	return last
}

// neighbours are those of a requester with a record, among what those launchers have.
func (c *Controller) neighbours(n *nodeWork, w *world, others []*launcherPod, record *podmeta.Binding) (found []decide.Neighbour) {
	on := func(i launcherapi.Instance) bool {
		return slices.ContainsFunc(i.GPUUUIDs, func(g string) bool { return slices.Contains(record.GPUs, g) })
	}
	for _, other := range others {
		view := c.opts.Providers.Pick(other.key(), func(id string, i launcherapi.Instance) bool { return on(i) || other.holder(id) != "" })
		for id, i := range other.instances(view) {
			if !on(i) {
				continue
			}
			b := decide.Neighbour{
				Instance: i, Launcher: other.key(), Name: other.pod.Name, Deleting: n.calls.underWay(deleteKey(other, id), view.Revision),
				Silent: !view.Connected, Lost: view.Lost, Why: view.Why,
			}
			for n := range other.bindings {
				if theirs := &other.bindings[n]; theirs.Has(id) {
					pod := w.pod(dualpods.IdentityIn(theirs))
					b.Recorded, b.Living = true, pod != nil && !dualpods.RequesterOf(pod).IsOver()
				}
			}
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b decide.Neighbour) int { return decide.LastUse(a.Instance).Compare(decide.LastUse(b.Instance)) })
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
		if next := b.Next(); next != nil {
			all[next.Instance] = launcherapi.Instance{InstanceID: next.Instance, GPUUUIDs: next.GPUs}
		}
	}
	maps.Copy(all, view.Instances)
	return all
}

// evict begins to delete neighbours for the attempt of a record.
func (c *Controller) evict(n *nodeWork, w *world, l *launcherPod, record *podmeta.Binding, victims []decide.Neighbour) error {
	var asked []string
	var errs []error
	for _, b := range victims {
		for _, other := range w.launchers {
			if other.key() == b.Launcher {
				errs = append(errs, c.callLauncher(n, other, b.InstanceID, decide.DeleteInstance, nil, &decide.Observation{}))
				asked = append(asked, b.Key())
			}
		}
	}
	n.calls.evict(swapKey(l, record), asked)
	return errors.Join(errs...)
}

// noRoom gives the numbers of a refusal for want of device memory that others
// than the launcher hold.
func noRoom(err error) *launcherapi.Fit {
	e, ok := errors.AsType[*launcher.Error](err)
	if !ok || e.Fit == nil || e.Fit.Bound != launcherapi.BoundDeviceMemory || e.Fit.Foreign == 0 {
		return nil
	}
	return e.Fit
}
