package binding

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Launchers makes launchers.
type Launchers interface {
	// Lacking says why a node has no launcher for a need and why Create cannot
	// make one now; nil where it can.
	Lacking(ctx context.Context, need dualpods.LauncherNeed) *dualpods.LauncherWait
	// Create makes one. Made twice, it is there once.
	Create(ctx context.Context, need dualpods.LauncherNeed) error
}

// choose returns the launcher that is to serve a requester, and otherwise what the
// requester waits for; nil: a launcher can be made for it. A launcher that lacks what the
// requester needs is returned only if the pool has no launcher that fits: the input is
// wrong then.
func (c *Controller) choose(ctx context.Context, w *world, o *decide.Observation) (*launcherPod, *dualpods.LauncherWait) {
	l, fits := w.candidate(o.Need())
	if fits || !c.mayGetLauncher(o) {
		return l, nil
	}
	wait := c.opts.Launchers.Lacking(ctx, o.Need())
	if l != nil && wait != nil && wait.Missing {
		return l, nil
	}
	return nil, wait
}

// candidate returns the launcher of the node that is to serve a requester, as
// dualpods.ChooseLauncher says; nil: there is none. If fits is false, it lacks what the
// requester needs.
func (w *world) candidate(need dualpods.LauncherNeed) (l *launcherPod, fits bool) {
	l, fits, _ = dualpods.ChooseLauncher(&need, w.open(), func(l *launcherPod) dualpods.Provider {
		return dualpods.ProviderOf(l.pod, l.view.LostFor(w.now))
	})
	return l, fits
}

// open returns the launchers of the node that get new requesters. Each requester of a pass
// asks for them.
func (w *world) open() []*launcherPod {
	if w.takers == nil {
		w.takers = slices.DeleteFunc(slices.Clone(w.launchers), func(l *launcherPod) bool { return l.closed })
	}
	return w.takers
}

// mayGetLauncher reports whether the pool can be asked for a launcher for a requester.
func (c *Controller) mayGetLauncher(o *decide.Observation) bool {
	return o.Requester.Exists && !o.IsLeaving() && o.Record == nil && len(o.Problems) == 0 && o.Node.Name != "" && c.opts.Launchers != nil
}

// allocation is what the kubelet says of a requester that a launcher would serve;
// nil where the requester's own word counts.
func (c *Controller) allocation(w *world, l *launcherPod, id dualpods.Identity) *dualpods.Allocation {
	if c.opts.Allocations == nil || !l.checksAllocations() {
		return nil
	}
	word, asked := w.kubelet[id.UID]
	if !asked || w.pods[id.UID] != w.pod(id) {
		word = dualpods.Allocation{Why: "it is asked in the next pass", Since: w.now}
	}
	return &word
}

// observed is what is known of a launcher.
func (l *launcherPod) observed() *decide.Launcher {
	seen := &decide.Launcher{
		UID: l.pod.UID, Created: l.pod.CreationTimestamp.Time,
		Name: l.pod.Name, Config: l.config(), IP: l.pod.Status.PodIP, Deleting: !l.pod.DeletionTimestamp.IsZero(), Dead: podmeta.Finished(l.pod), Ended: !podmeta.Finished(l.pod) && l.ended(),
		Connected: l.view.Connected, Lost: l.view.Lost, Why: l.view.Why, GPUs: l.view.GPUs,
	}
	if !l.runs() {
		seen.Waits = dualpods.WaitForLauncher(l.pod)
		seen.Why = seen.Waits.Why
	}
	return seen
}

// ended reports whether what the launcher held is gone with it.
func (l *launcherPod) ended() bool { return dualpods.ProviderOf(l.pod, 0).Ended }

// copyFor is what a launcher says of the model that a requester waits for.
func (l *launcherPod) copyFor(o *decide.Observation) decide.Copy {
	if o.Keeper == nil || !o.Keeper.Waits {
		return decide.Copy{}
	}
	return l.copyOf(modelref.FromArgs(o.Form.Args))
}

// copyOf is what it says of the model of that name.
func (l *launcherPod) copyOf(name modelref.Name) decide.Copy {
	switch {
	case l.pod.Labels[podmeta.LabelModelNodeGroup] == "":
		return decide.Copy{Why: "launcher " + l.pod.Name + " has no model store: name a ModelCacheNodeGroup of the cache in spec.modelCache of LauncherConfig " + l.config()}
	case l.view.Models == nil:
		return decide.Copy{Silent: l.view.ModelsLost, Why: "launcher " + l.pod.Name + " does not say what models it has: " + l.view.WhyNoModels}
	default:
		return decide.Copy{Whole: l.view.Has(name)}
	}
}

// observeAhead adds what counts of a requester before its program runs.
func (c *Controller) observeAhead(o *decide.Observation, pod *corev1.Pod) {
	switch {
	case pod == nil || o.Requester.Running:
	case o.Record != nil:
		o.Ahead = o.Record.Ahead && !podmeta.ProgramOf(pod).Ended()
	default:
		o.AsksAhead = c.asksAhead(pod)
		o.Ahead = o.AsksAhead && o.Kubelet != nil && len(o.Kubelet.GPUs) > 0 && len(o.Kubelet.GPUs) == o.Requester.GPUs
	}
}

// observeAttempt adds what the attempt of a record has come to, and who else on
// the node has to do with the record's GPUs.
func (c *Controller) observeAttempt(o *decide.Observation, n *nodeWork, w *world, l *launcherPod, record *podmeta.Binding) {
	o.Attempt = n.calls.attempt(swapKey(l, record), l.view.Revision)
	o.Attempt.Earlier = !n.calls.wrote(swapKey(l, record))
	c.observeChange(o, n, l, record)
	others := c.beside(w, l)
	o.Neighbours, o.Unheard = c.neighbours(n, w, others, record), c.unheard(others)
	o.Earlier, o.BoundToo = w.swapping(n, record), w.boundToo(l, record)
	off := n.calls.attempt(callOffKey(l, record), 0)
	o.Calls.CallOff, o.Calls.CallingOff = off.Asked, off.Asked && !off.Over
	o.Calls.Sleep = n.calls.underWay(sleepKey(l, record.Instance), l.view.Revision)
	o.Calls.Delete = n.calls.underWay(deleteKey(l, record.Instance), l.view.Revision)
}

// holder is the requester that is bound to an instance; empty: none is.
func (l *launcherPod) holder(id string) string {
	for _, b := range l.bindings {
		if b.Has(id) {
			return b.Namespace + "/" + b.Name
		}
	}
	return ""
}

// instance is one that is known to be there; nil where it is not.
func (l *launcherPod) instance(id string) *launcherapi.Instance {
	i, ok := l.view.Instances[id]
	if !ok || l.ended() {
		return nil
	}
	return &i
}
