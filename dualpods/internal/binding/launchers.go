package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Need is what a requester needs a launcher of.
type Need struct {
	Namespace string
	Config    string // name of the LauncherConfig; empty: one with the image
	Image     string // empty: any will do
	Node      string
}

// Launchers makes launchers.
type Launchers interface {
	// Lacking says why a node has no launcher for a need and why Create cannot
	// make one now; empty where it can.
	Lacking(ctx context.Context, need Need) string
	// Create makes one. Made twice, it is there once.
	Create(ctx context.Context, need Need) error
}

func (o *Observation) need() Need {
	return Need{Namespace: o.Requester.Namespace, Config: o.Form.LauncherConfig, Image: o.Form.Image, Node: o.Node.Name}
}

// lacking says why there is no launcher for a requester, and none is made for it.
func (c *Controller) lacking(ctx context.Context, o *Observation) string {
	if !o.Requester.Exists || o.leaving() || o.Record != nil || len(o.Problems) > 0 || o.Node.Name == "" || c.opts.Launchers == nil {
		return ""
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
	step := Step{Do: Tell, Why: fmt.Sprintf("cannot make a launcher on node %s: %v", o.Node.Name, err)}
	if o.Requester.Told == step.Why {
		return createAgain, nil
	}
	return createAgain, c.act(ctx, n, w, o, step)
}

// notRunning says what a container of a launcher Pod waits for.
func notRunning(pod *corev1.Pod, container string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "" {
			return fmt.Sprintf("its container %s waits: %s %s", s.Name, w.Reason, w.Message)
		}
	}
	return "its container " + container + " does not run yet"
}

// observed is what is known of a launcher.
func (l *launcherPod) observed() *Launcher {
	seen := &Launcher{
		UID: l.pod.UID, Created: l.pod.CreationTimestamp.Time,
		Name: l.pod.Name, Config: l.config(), IP: l.pod.Status.PodIP, Deleting: !l.pod.DeletionTimestamp.IsZero(), Dead: finished(l.pod),
		Connected: l.view.Connected, Lost: l.view.Lost, Why: l.view.Why, GPUs: l.view.GPUs,
	}
	if !running(l.pod) {
		seen.Why = notRunning(l.pod, podmeta.ServingContainer)
	}
	return seen
}
