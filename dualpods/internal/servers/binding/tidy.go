package binding

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// tidy puts to rest what runs for nobody, and evicts sleepers that exceed lowered budgets.
// On a node that was deleted, and whose machine may go on, requesters are not asked
// whether they carry traffic, and nothing is put to rest under them. again is when to look
// again at what did not rest though told to; ok says that no write failed.
func (c *Controller) tidy(ctx context.Context, n *nodeWork, w *world) (again time.Duration, ok bool) {
	ok = true
	c.tellDamaged(n, w)
	c.tellMute(n, w)
	for _, l := range w.launchers {
		if err := c.keepFinalizer(ctx, n, w, l); err != nil && ctx.Err() == nil {
			c.log.Error(err, "cannot add our finalizer to a launcher, or remove it", "launcher", l.pod.Name)
			ok = false
		}
		view := c.opts.Providers.View(l.key()) // with all instances: once per launcher and pass
		if w.node.Gone || !view.Connected || !c.leads() {
			continue
		}
		again = dualpods.Sooner(again, c.putStraysToRest(n, w, l, view))
	}
	return again, ok
}

// tellDamaged says on a launcher Pod which of its records cannot be read, once.
func (c *Controller) tellDamaged(n *nodeWork, w *world) {
	for _, l := range w.launchers {
		text := podmeta.Join(l.damaged)
		if text != "" && n.damaged[l.pod.UID] != text {
			c.event(l.pod, decide.Step{Reason: decide.RecordDamaged, Warn: true, Why: text}, "Read")
		}
		n.damaged[l.pod.UID] = text
	}
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

// keepFinalizer keeps our finalizer on a launcher as long as the launcher has a record,
// and removes it afterwards. A launcher has a record without the finalizer after an
// uninstallation. A record that cannot be read keeps the finalizer too, but not on a
// launcher that is being deleted and has ended.
func (c *Controller) keepFinalizer(ctx context.Context, n *nodeWork, w *world, l *launcherPod) error {
	deleting, ended := !l.pod.DeletionTimestamp.IsZero(), podmeta.Finished(l.pod) || w.node.Gone
	wanted := len(l.bindings) > 0 || len(l.damaged) > 0 && (!deleting || !ended)
	has := slices.Contains(l.pod.Finalizers, podmeta.FinalizerProvider)
	if has == wanted || wanted && (deleting || ended) { // the API server adds no finalizer to a Pod that is being deleted
		return nil
	}
	err := c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error {
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == podmeta.FinalizerProvider })
		if wanted {
			p.Finalizers = append(p.Finalizers, podmeta.FinalizerProvider)
		}
		return nil
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the Pod's next change begins the next pass
		return nil
	}
	return err
}
