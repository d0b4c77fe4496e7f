package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// forgetLimit bounds how long a deleted Model waits for launchers that do not delete what sleeps. The budgets of the
// launchers bound it then.
const forgetLimit = time.Minute

// beginOrEnd puts the finalizer on a Model, or removes the objects of one that is being deleted, and then the finalizer.
func (c *Controller) beginOrEnd(ctx context.Context, m *v1alpha1.Model) (reconcile.Result, error) {
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	changed := m.DeepCopy()
	if m.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(changed, podmeta.FinalizerModel)
	} else {
		left, err := c.removeAll(ctx, m)
		switch {
		case dualpods.IsStale(err):
			return reconcile.Result{RequeueAfter: conflictPause}, nil
		case err != nil || left:
			return reconcile.Result{}, err // their deletion has it called again
		case !controllerutil.RemoveFinalizer(changed, podmeta.FinalizerModel):
			return reconcile.Result{}, nil
		}
	}
	err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}))
	switch {
	case dualpods.IsStale(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("cannot change the finalizers of Model %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return reconcile.Result{}, nil // the change has it called again
}

// removeAll removes the objects of a Model that is being deleted, and reports whether some are left. With
// --cascade=orphan they stay.
func (c *Controller) removeAll(ctx context.Context, m *v1alpha1.Model) (left bool, err error) {
	if !controllerutil.ContainsFinalizer(m, podmeta.FinalizerModel) || controllerutil.ContainsFinalizer(m, metav1.FinalizerOrphanDependents) {
		return false, nil
	}
	w := &world{model: m, now: c.opts.Now()}
	if err := errors.Join(c.observeObjects(ctx, w), c.observePods(ctx, w)); err != nil {
		return false, fmt.Errorf("cannot observe Model %s: %w", client.ObjectKeyFromObject(m), err)
	}
	var errs []error
	for _, e := range w.gone {
		left = left || e.deployment != nil || e.config != nil
		errs = append(errs, c.remove(ctx, w, e))
	}
	return left, errors.Join(errs...)
}

// forget deletes what sleeps of an entry.
func (c *Controller) forget(ctx context.Context, w *world, e *entry) error {
	if c.opts.Forget == nil {
		return nil
	}
	err := errors.Join(c.opts.Forget(ctx, e.config), forgetEditions(ctx, e.config, c.opts.Forget))
	if d := w.model.DeletionTimestamp; err != nil && d != nil && w.now.Sub(d.Time) >= forgetLimit {
		return nil
	}
	return err
}
