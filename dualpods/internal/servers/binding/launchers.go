package binding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
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

// mayGetLauncher reports whether the pool can be asked for a launcher for a requester.
func (c *Controller) mayGetLauncher(o *decide.Observation) bool {
	return o.Requester.Exists && !o.IsLeaving() && o.Record == nil && len(o.Problems) == 0 && o.Node.Name != "" && c.opts.Launchers != nil
}

// createAgain is when a launcher is tried to be made again, after it could not be.
const createAgain = 5 * time.Second

// createLauncher makes a launcher, or says what is in its way and when to try
// again. The launcher's Pod begins the next pass.
func (c *Controller) createLauncher(ctx context.Context, n *nodeWork, w *world, o decide.Observation) (again time.Duration, err error) {
	err = errors.New("this controller makes none")
	if c.opts.Launchers != nil {
		err = c.opts.Launchers.Create(ctx, o.Need())
	}
	if err == nil {
		return 0, nil
	}
	step := decide.Step{Do: decide.Tell, Reason: decide.LauncherMissing, Warn: true, Why: fmt.Sprintf("cannot make a launcher on node %s: %v", o.Node.Name, err)}
	step.Shorten()
	if o.Requester.Told == step.Why {
		return createAgain, nil
	}
	return createAgain, c.act(ctx, n, w, o, step)
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

// launcher returns the launcher with that UID; nil: there is none.
func (w *world) launcher(uid types.UID) *launcherPod {
	for _, l := range w.launchers {
		if l.pod.UID == uid {
			return l
		}
	}
	return nil
}

// ended reports whether what the launcher held is gone with it.
func (l *launcherPod) ended() bool { return dualpods.ProviderOf(l.pod, 0).Ended }

// look reads the View of a launcher with the instances that one decision needs: that of the
// given id, and those whose records cannot be read.
func (c *Controller) look(l *launcherPod, id string) nodeview.View {
	if len(l.damaged) == 0 {
		return c.opts.Providers.One(l.key(), id)
	}
	return c.opts.Providers.Pick(l.key(), func(other string, _ launcherapi.Instance) bool { return other == id || l.lost(other) })
}

// instance is one that is known to be there; nil where it is not.
func (l *launcherPod) instance(id string) *launcherapi.Instance {
	i, ok := l.view.Instances[id]
	if !ok || l.ended() {
		return nil
	}
	return &i
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

// tellMute says on a launcher Pod that the launcher runs and has not answered for
// long, once until it does: other launchers of its node do not wait for it.
func (c *Controller) tellMute(n *nodeWork, w *world) {
	for _, l := range w.launchers {
		mute := l.runs() && !w.node.Gone && l.view.LostFor(w.now) >= decide.Patience
		if mute && !n.mute[l.pod.UID] {
			c.event(l.pod, decide.Step{Reason: decide.LauncherSilent, Warn: true, Why: "the launcher does not answer the controller: " + l.view.Why}, "Ask")
		}
		n.mute[l.pod.UID] = mute
	}
}
