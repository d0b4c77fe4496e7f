package binding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/nominal"
	"hotseat.dev/hotseat/spec/launcherapi"
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

func (o *Observation) need() dualpods.LauncherNeed {
	return dualpods.LauncherNeed{Namespace: o.Requester.Namespace, Config: o.Form.LauncherConfig, Image: o.Form.Image, Node: o.Node.Name}
}

// lacking says why there is no launcher for a requester, and none is made for it.
func (c *Controller) lacking(ctx context.Context, o *Observation) *dualpods.LauncherWait {
	if !o.Requester.Exists || o.leaving() || o.Record != nil || len(o.Problems) > 0 || o.Node.Name == "" || c.opts.Launchers == nil {
		return nil
	}
	return c.opts.Launchers.Lacking(ctx, o.need())
}

// createAgain is when a launcher is tried to be made again, after it could not be.
const createAgain = 5 * time.Second

// createLauncher makes a launcher, or says what is in its way and when to try
// again. The launcher's Pod begins the next pass.
func (c *Controller) createLauncher(ctx context.Context, n *nodeWork, w *world, o Observation) (again time.Duration, err error) {
	err = errors.New("this controller makes none")
	if c.opts.Launchers != nil {
		err = c.opts.Launchers.Create(ctx, o.need())
	}
	if err == nil {
		return 0, nil
	}
	step := Step{Do: Tell, Reason: LauncherMissing, Warn: true, Why: fmt.Sprintf("cannot make a launcher on node %s: %v", o.Node.Name, err)}
	step.shorten()
	if o.Requester.Told == step.Why {
		return createAgain, nil
	}
	return createAgain, c.act(ctx, n, w, o, step)
}

// lackingStep tells the requester what it waits for.
func lackingStep(w *dualpods.LauncherWait) Step {
	return Step{Do: Tell, Why: w.Why, Reason: lackingReason(w), Warn: w.Stuck}
}

func lackingReason(w *dualpods.LauncherWait) Reason {
	if w.Missing {
		return LauncherMissing
	}
	return LauncherStarting
}

// prospect is how soon a launcher can serve somebody, the soonest first.
type prospect int

const (
	works prospect = iota
	isStarting
	isDown // its container has ended, and is started again
	isGoing
)

func (l *launcherPod) prospect() prospect {
	switch {
	case !l.pod.DeletionTimestamp.IsZero() || podmeta.Finished(l.pod):
		return isGoing
	case podmeta.ServerEnded(l.pod):
		return isDown
	case !running(l.pod):
		return isStarting
	default:
		return works
	}
}

// candidate is the launcher that would serve a requester of that namespace: one
// of the same namespace and of the LauncherConfig that is named; where none is,
// of the image that is asked for. Of several it is the one that can serve the
// soonest, and of those the oldest.
func (w *world) candidate(namespace string, form nominal.Form) (best *launcherPod) {
	for _, l := range w.launchers {
		named := form.LauncherConfig == l.config() || form.LauncherConfig == "" && (form.Image == "" || form.Image == l.image())
		if named && l.pod.Namespace == namespace && (best == nil || l.prospect() < best.prospect()) {
			best = l
		}
	}
	return best
}

// instance is one that is known to be there; nil where it is not.
func (l *launcherPod) instance(id string) *launcherapi.Instance {
	i, ok := l.view.Instances[id]
	if !ok || podmeta.ServerEnded(l.pod) {
		return nil
	}
	return &i
}

// observed is what is known of a launcher.
func (l *launcherPod) observed() *Launcher {
	seen := &Launcher{
		UID: l.pod.UID, Created: l.pod.CreationTimestamp.Time,
		Name: l.pod.Name, Config: l.config(), IP: l.pod.Status.PodIP, Deleting: !l.pod.DeletionTimestamp.IsZero(), Dead: podmeta.Finished(l.pod), Ended: !podmeta.Finished(l.pod) && podmeta.ServerEnded(l.pod),
		Connected: l.view.Connected, Lost: l.view.Lost, Why: l.view.Why, GPUs: l.view.GPUs,
	}
	if !running(l.pod) {
		seen.Waits = dualpods.WaitForLauncher(l.pod)
		seen.Why = seen.Waits.Why
	}
	return seen
}

// tellMute says on a launcher Pod that the launcher runs and has not answered for
// long, once until it does: other launchers of its node do not wait for it.
func (c *Controller) tellMute(n *nodeWork, w *world) {
	for _, l := range w.launchers {
		asked := running(l.pod) && !l.view.Lost.IsZero() && !w.node.Gone
		mute := asked && !l.view.Connected && w.now.Sub(l.view.Lost) >= patience
		if mute && !n.mute[l.pod.UID] {
			c.event(l.pod, Step{Reason: LauncherSilent, Warn: true, Why: "the launcher does not answer the controller: " + l.view.Why}, "Ask")
		}
		n.mute[l.pod.UID] = mute
	}
}
