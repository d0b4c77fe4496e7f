package binding

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
)

// The new records of a launcher are written by one patch, after the pass has looked at all
// requesters of the node: they often come together. Decisions for other requesters meanwhile
// see these records. Another write to the launcher writes them first.

// staged is a new record that is to be written, or was.
type staged struct {
	id    dualpods.Identity
	sight Sight
	err   error // why it was not written
}

// stageRecord adds a new record to its launcher in the world.
func (c *Controller) stageRecord(n *nodeWork, w *world, id dualpods.Identity, sight Sight) error {
	if !c.leads() {
		return dualpods.ErrNotLeading
	}
	l := w.launcher(sight.Observation.Launcher.UID)
	changed := l.pod.DeepCopy()
	if err := putRecord(changed, sight.Step.Record); err != nil {
		return fmt.Errorf("cannot %s: %w", sight.Step.Do, err)
	}
	c.logStep(n, &sight.Observation, sight.Step)
	if len(l.staged) == 0 {
		l.written = l.pod
	}
	l.staged = append(l.staged, staged{id: id, sight: sight})
	l.read(changed)
	return nil
}

// writeStaged writes the new records of a launcher. If the API server refuses the patch, none of
// them is there.
func (c *Controller) writeStaged(ctx context.Context, n *nodeWork, l *launcherPod) {
	records, wanted := l.staged, l.pod
	if len(records) == 0 {
		return
	}
	l.staged = nil
	l.read(l.written)
	err := dualpods.ErrNotLeading
	if c.leads() {
		err = c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error {
			p.Annotations, p.Finalizers = wanted.Annotations, wanted.Finalizers
			return nil
		})
		n.unheard = n.unheard || err != nil && dualpods.AnswerLost(err)
	}
	for _, r := range records {
		if err == nil {
			n.calls.writes(swapKey(l, &r.sight.Step.Record))
		} else {
			r.err = fmt.Errorf("cannot %s: %w", r.sight.Step.Do, err)
		}
		r.sight.Ended, r.sight.Err = c.opts.Now(), r.err
		c.opts.Observer.Saw(r.sight)
		l.recorded = append(l.recorded, r)
	}
}

// writeRecords writes the new records of all launchers. It returns those that were written, or
// could not be, since it was called last.
func (c *Controller) writeRecords(ctx context.Context, n *nodeWork, w *world) (all []staged) {
	for _, l := range w.launchers {
		c.writeStaged(ctx, n, l)
		all = append(all, l.recorded...)
		l.recorded = nil
	}
	return all
}
