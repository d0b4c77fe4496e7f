package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// take takes a step. over says that there is no other to take now.
func (c *Controller) take(ctx context.Context, n *nodeWork, w *world, o decide.Observation, step decide.Step) (again time.Duration, over bool, err error) {
	if step.Do == decide.Nothing || step.Do == decide.Retry {
		return step.After, true, nil
	}
	if !c.leads() {
		return 0, false, dualpods.ErrNotLeading
	}
	if step.Do == decide.DeleteRequester && c.relaysLog(n, o) {
		return 0, true, nil // whose end begins the next pass
	}
	if step.Do == decide.RemoveFinalizer && n.unheard {
		if after := c.untilAsNew(ctx, n, w); after > 0 {
			return after, true, nil
		}
		n.unheard = false
	}
	c.logStep(n, &o, step)
	if step.Do == decide.CreateLauncher {
		again, err = c.createLauncher(ctx, n, w, o)
		return again, true, err
	}
	if err := c.act(ctx, n, w, o, step); err != nil {
		return 0, false, fmt.Errorf("cannot %s: %w", step.Do, err)
	}
	return step.After, ends(step.Do), nil
}

func (c *Controller) logStep(n *nodeWork, o *decide.Observation, step decide.Step) {
	c.log.Info("step", "node", n.name, "requester", o.Requester.Namespace+"/"+o.Requester.Name, "uid", string(o.Requester.UID), "rule", step.Rule, "do", string(step.Do), "why", step.Why)
}

// ends says that an event has to come before there is more to do for a requester.
func ends(do decide.Action) bool {
	switch do {
	case decide.Tell, decide.DeleteRequester, decide.RemoveFinalizer, decide.Sleep, decide.DeleteInstance:
		return true
	default:
		return false
	}
}

// act makes a step's write, and keeps w up with what was written.
func (c *Controller) act(ctx context.Context, n *nodeWork, w *world, o decide.Observation, step decide.Step) error {
	uid := o.Requester.UID
	id := dualpods.Identity{Namespace: o.Requester.Namespace, UID: uid}
	pod := w.pod(id)
	l, record := w.boundTo(id)
	if step.OfNext {
		record = record.Next()
	}
	switch step.Do {
	case decide.Tell:
		return c.tell(ctx, n, w, pod, o, step)
	case decide.AddFinalizer:
		return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
			p.Finalizers = append(p.Finalizers, podmeta.FinalizerRequester)
		})
	case decide.RemoveFinalizer:
		return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
			p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == podmeta.FinalizerRequester })
		})
	case decide.Publish:
		return n.repeats.add(o, step.Do, c.publish(ctx, n, w, pod, o))
	case decide.Retract:
		return c.retract(ctx, n, w, pod, o, step)
	case decide.OpenGate:
		return n.repeats.add(o, step.Do, c.setGate(ctx, n, w, pod, corev1.ConditionTrue, decide.StateServing, step.Why))
	case decide.DeleteRequester:
		return c.deleteRequester(ctx, pod, step)
	case decide.NextAttempt:
		err := c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error { return putRecord(p, step.Record) })
		if err == nil {
			n.calls.writes(swapKey(l, &step.Record))
		}
		return err
	case decide.KeepEnded, decide.ChangeRecord:
		return c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error {
			if step.Record.Instance != record.Instance {
				delete(p.Annotations, podmeta.AnnotationBindingPrefix+record.Instance)
			}
			return putRecord(p, step.Record)
		})
	case decide.NoteFailure:
		return c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error {
			p.Annotations = annotationsOf(p)
			return step.Failures.Put(p, record.Instance)
		})
	case decide.RemoveRecord:
		return c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error { dropRecord(p, record.Instance, o.Now); return nil })
	case decide.Swap, decide.CallOff, decide.Sleep, decide.DeleteInstance:
		return c.callLauncher(n, l, record.Instance, step.Do, record, &o)
	case decide.Evict:
		return c.evict(n, w, l, record, step.Victims)
	case decide.Bind, decide.Unbind, decide.BecomeReady, decide.BecomeUnready, decide.Hold, decide.EndHold:
		return c.callRequester(ctx, n, w, o, step)
	default:
		return fmt.Errorf("no such write: %q", step.Do)
	}
}

// relaysLog has a requester that is to be deleted be brought the end of its
// instance's log, as far as that can be had soon, and says whether that is under
// way. It is done beside the passes: those who share the node do not wait for it.
func (c *Controller) relaysLog(n *nodeWork, o decide.Observation) bool {
	if c.opts.RelayLog == nil || o.Record == nil || o.Instance == nil || o.SPI == nil || o.Launcher == nil || !o.Launcher.Connected {
		return false
	}
	key := logKey(o.Requester.UID, o.Record)
	if asked := n.calls.attempt(key, 0); asked.Asked {
		return !asked.Over
	}
	n.calls.begin(key, true, func(ctx context.Context) (uint64, error) {
		ctx, stop := context.WithTimeout(dualpods.ForRequester(ctx, o.Requester.UID), askLimit)
		defer stop()
		if err := c.opts.RelayLog(ctx, o); err != nil {
			c.log.Info("the end of an instance's log is not relayed", "requester", o.Requester.Namespace+"/"+o.Requester.Name, "instance", o.Record.Instance, "error", err.Error())
		}
		return 0, nil
	})
	return true
}

func (c *Controller) deleteRequester(ctx context.Context, pod *corev1.Pod, step decide.Step) error {
	c.event(pod, step, "Delete")
	err := c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsConflict(err) {
		return nil // another Pod of its name
	}
	return client.IgnoreNotFound(err)
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
