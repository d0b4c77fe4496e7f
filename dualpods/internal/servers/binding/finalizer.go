package binding

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"hotseat.dev/hotseat/spec/podmeta"
)

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
