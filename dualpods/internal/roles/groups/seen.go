package groups

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file keeps decisions about replicas from being made on what the cache does not show yet.

// isStale reports whether this process has changed the status of a ModelServing since the version
// that the cache shows. The status says how many replicas the groups were given: by an older one,
// replicas would be deleted that were just created.
func (c *Controller) isStale(serving *v1alpha1.ModelServing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(serving)
	if slices.Contains(c.told[key], serving.ResourceVersion) {
		return true
	}
	delete(c.told, key) // the cache never goes back
	return false
}

// noteTold notes which version of a ModelServing had the status that this process has just changed;
// empty: there is no such ModelServing any more. A pass may change a status twice.
func (c *Controller) noteTold(key types.NamespacedName, before string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before == "" {
		delete(c.told, key)
		return
	}
	c.told[key] = append(c.told[key], before)
}

// begun returns when the first pass of this process began.
func (c *Controller) begun() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = c.opts.Now()
	}
	return c.began
}

// remove deletes the object of a step. A Pod that is surplus, of another revision, or late, and a Service that
// others have changed, is deleted only if it has not changed since it was read. A Pod that was chosen
// because it was not ready may be ready by now, and a Pod may have the label of the new revision by now.
func (c *Controller) remove(ctx context.Context, s *Step) error {
	uid, version := s.Object.GetUID(), s.Object.GetResourceVersion()
	only := client.Preconditions{UID: &uid}
	if slices.Contains([]string{rowSurplus, rowOutdated, rowRevisionLost, rowLate, rowEdited}, s.Row) {
		only.ResourceVersion = &version
	}
	err := client.IgnoreNotFound(c.opts.API.Delete(ctx, s.Object, only))
	if pod, is := s.Object.(*corev1.Pod); is && err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		maps.DeleteFunc(c.removed, func(_ types.UID, since time.Time) bool { return c.opts.Now().Sub(since) >= hearLimit })
		c.removed[pod.UID] = c.opts.Now()
	}
	return err
}

// isRemoved reports whether this process has deleted a Pod less than hearLimit ago.
func (c *Controller) isRemoved(pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, removed := c.removed[pod.UID]
	return removed && c.opts.Now().Sub(since) < hearLimit
}
