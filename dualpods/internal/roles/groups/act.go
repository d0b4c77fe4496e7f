package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// do takes the steps, one after the other. A write that the API server refuses is told of its
// group, and the others are made all the same. After any other error, or without the
// ControllerRevision of the present template, no further write is made. Orders to launchers are
// given all the same, since ranks wait for them. again is when to look again if nothing else begins
// a pass.
func (c *Controller) do(ctx context.Context, about *v1alpha1.ModelServing, steps []*Step) (again time.Duration, err error) {
	broken := false
	for _, s := range steps {
		again = dualpods.Sooner(again, s.Again)
		if s.Do.isOrder() {
			again = dualpods.Sooner(again, c.give(ctx, s))
			continue
		}
		if broken = broken || s.Row == rowEarlierRevision; s.Do == "" || broken {
			continue
		}
		of, patch := madeKey(kindOf(s.Object), s.Object.GetNamespace(), s.Object.GetName()), patchOf(s) // the answer of the API server replaces the object
		if pause := c.repeatPause(of, patch); pause > 0 {
			again = dualpods.Sooner(again, pause)
			continue
		}
		failed := c.write(ctx, s)
		if failed == nil {
			c.tellWritten(about, s, c.noteChange(of, patch))
			continue
		}
		failed = fmt.Errorf("cannot %s %s %s: %w", s.Do, kindOf(s.Object), s.Object.GetName(), failed)
		switch {
		case isTaken(failed):
			s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonNameTaken, failed.Error())
			again = dualpods.Sooner(again, takenPause)
		case apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause):
			return again, failed
		case apierrors.IsInvalid(failed) || apierrors.IsForbidden(failed):
			s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonRefused, failed.Error())
			err = errors.Join(err, failed)
		case dualpods.IsStale(failed):
			again = dualpods.Sooner(again, conflictPause)
		default:
			broken, err = true, errors.Join(err, failed)
		}
		broken = broken || s.Row == rowCreateRevision
	}
	return again, err
}

// tellWritten emits the Events about a write. again means that somebody else has undone the same write.
func (c *Controller) tellWritten(about *v1alpha1.ModelServing, s *Step, again bool) {
	if again || s.Row == rowEdited {
		c.tellEdit(about, s)
	}
	if s.Event != "" {
		c.warn(about, s.Event, s.Why)
	}
}

// write makes the write of a step.
func (c *Controller) write(ctx context.Context, s *Step) error {
	switch s.Do {
	case Create:
		return c.create(ctx, s.Object)
	case Change: // fails if the object has changed since it was read
		return client.IgnoreNotFound(c.opts.API.Update(ctx, s.Object))
	case Patch, Annotate, Label: // likewise
		return client.IgnoreNotFound(c.opts.API.Patch(ctx, s.Object, client.MergeFromWithOptions(s.Was, client.MergeFromWithOptimisticLock{})))
	case Delete:
		return c.remove(ctx, s)
	case Report:
		return client.IgnoreNotFound(c.opts.API.Status().Update(ctx, s.Object))
	default:
		return nil
	}
}

// takenError means that an object of another owner has the name that a ModelServing needs.
type takenError struct{}

func (takenError) Error() string {
	return "an object of that name exists and was not created for this ModelServing: delete it, or give the ModelServing another name"
}

func isTaken(err error) bool { return errors.As(err, new(takenError)) }

// create creates an object. It also succeeds when this process has created the object before and
// the cache does not show it yet.
func (c *Controller) create(ctx context.Context, o client.Object) error {
	err := c.opts.API.Create(ctx, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := madeKey(kindOf(o), o.GetNamespace(), o.GetName())
	maps.DeleteFunc(c.made, func(_ string, since time.Time) bool { return c.opts.Now().Sub(since) >= hearLimit })
	_, made := c.made[key]
	switch {
	case err == nil:
		c.made[key] = c.opts.Now()
	case apierrors.IsAlreadyExists(err) && made:
		return nil
	case apierrors.IsAlreadyExists(err) && isCachedOwn(o):
		return takenError{}
	}
	return err
}

// isCachedOwn reports whether the cache has only the controller's own objects of a kind. It has
// all objects of the other kinds, and shows whose they are.
func isCachedOwn(o client.Object) bool {
	switch o.(type) {
	case *discoveryv1.EndpointSlice, *appsv1.ControllerRevision:
		return true
	default:
		return false
	}
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "Pod"
	case *corev1.Service:
		return "Service"
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case *appsv1.ControllerRevision:
		return "ControllerRevision"
	case *v1alpha1.RoleScaler:
		return "RoleScaler"
	default:
		return "object"
	}
}

// unheard reports whether this process created an object less than hearLimit ago and has not seen
// it in the cache since.
func (c *Controller) unheard(kind, namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, made := c.made[madeKey(kind, namespace, name)]
	return made && c.opts.Now().Sub(since) < hearLimit
}

// heard forgets that this process created an object, because the cache shows it now.
func (c *Controller) heard(kind string, o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, madeKey(kind, o.GetNamespace(), o.GetName()))
}

func madeKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }
