package gang

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// write is a write of this process: the object as it was before.
type write struct {
	before client.Object
	since  time.Time
}

// hearLimit bounds the wait until the cache shows a write.
const hearLimit = 10 * time.Second

// maxConcurrentWrites is how many writes are made side by side. writeLimit bounds a write.
const (
	maxConcurrentWrites = 16
	writeLimit          = 2 * time.Second
)

// cacheShowsWrites reports whether the cache shows the writes of this process: an object that was
// written has another version there, or is gone.
func (c *Controller) cacheShowsWrites(ctx context.Context) (bool, error) {
	var failed error
	c.unseen = slices.DeleteFunc(c.unseen, func(w write) bool {
		is := w.before.DeepCopyObject().(client.Object)
		err := c.opts.API.Get(ctx, client.ObjectKeyFromObject(is), is)
		if client.IgnoreNotFound(err) != nil {
			failed = errors.Join(failed, err)
			return false
		}
		return err != nil || is.GetUID() != w.before.GetUID() || is.GetResourceVersion() != w.before.GetResourceVersion() || c.opts.Now().Sub(w.since) >= hearLimit
	})
	return len(c.unseen) == 0, failed
}

// do makes the writes of all steps. conflict means that one of them was based on a stale cache.
func (c *Controller) do(ctx context.Context, steps []*Step) (conflict bool, err error) {
	var order []*v1alpha1.ModelServing
	of := map[*v1alpha1.ModelServing][]*Step{}
	for _, s := range steps {
		if s.Record == nil && len(s.Ungate)+len(s.Delete) == 0 {
			continue
		}
		if of[s.Of.Serving] == nil {
			order = append(order, s.Of.Serving)
		}
		of[s.Of.Serving] = append(of[s.Of.Serving], s)
	}
	writes, errs := make([][]write, len(order)), make([]error, len(order))
	take := make(turns, maxConcurrentWrites)
	var writing sync.WaitGroup
	for n, serving := range order {
		writing.Go(func() { writes[n], errs[n] = c.doFor(ctx, serving, of[serving], take) })
	}
	writing.Wait()
	c.unseen = append(c.unseen, slices.Concat(writes...)...)
	for _, failed := range errs {
		if apierrors.IsConflict(failed) {
			conflict = true
		} else {
			err = errors.Join(err, failed)
		}
	}
	return conflict, err
}

// turns bound how many writes are made side by side.
type turns chan struct{}

func (t turns) take(write func() error) error {
	t <- struct{}{}
	defer func() { <-t }()
	return write()
}

// doFor makes the writes for the groups of a ModelServing: first all records in one write, then
// those to Pods. It stops at the first write that fails; gates of Pods with as many GPUs are removed side
// by side.
func (c *Controller) doFor(ctx context.Context, serving *v1alpha1.ModelServing, steps []*Step, turns turns) (done []write, err error) {
	note := func(before, after client.Object) {
		if before.GetResourceVersion() != after.GetResourceVersion() {
			done = append(done, write{before, c.opts.Now()})
		}
	}
	if changed := withRecords(serving, steps); changed != nil {
		if err := turns.take(func() error { return c.record(ctx, changed) }); err != nil {
			return done, err
		}
		note(serving, changed)
	}
	for _, s := range steps {
		c.announce(s)
		for _, m := range s.Delete {
			if err := turns.take(func() error { return c.delete(ctx, m.Pod) }); err != nil {
				return done, err
			}
			done = append(done, write{m.Pod, c.opts.Now()})
		}
		for _, alike := range bySize(s.Ungate) {
			changed, err := c.ungateAll(ctx, s, alike, turns)
			for n, m := range alike {
				note(m.Pod, changed[n])
			}
			if err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// bySize divides Pods into runs of those that need as many GPUs.
func bySize(pods []*Member) (all [][]*Member) {
	for n, m := range pods {
		if n == 0 || gpusOf(pods[n-1:n]) != gpusOf(pods[n:n+1]) {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], m)
	}
	return all
}

// withRecords returns the ModelServing with what is written about its groups; nil: nothing is.
func withRecords(serving *v1alpha1.ModelServing, steps []*Step) (changed *v1alpha1.ModelServing) {
	for _, s := range steps {
		if s.Record == nil {
			continue
		}
		if changed == nil {
			changed = serving.DeepCopy()
		}
		for i := range changed.Status.Groups {
			if g := &changed.Status.Groups[i]; g.Name == s.Of.Name {
				g.Gang = s.Record
			}
		}
	}
	return changed
}

func (c *Controller) record(ctx context.Context, changed *v1alpha1.ModelServing) error {
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	err := c.opts.API.Status().Update(ctx, changed)
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot write the status of ModelServing %s: %w", client.ObjectKeyFromObject(changed), err)
	}
	return err
}

// ungateAll removes the gates of some Pods of a step. It returns the Pods as they are then, and the first
// error.
func (c *Controller) ungateAll(ctx context.Context, s *Step, pods []*Member, turns turns) (changed []*corev1.Pod, err error) {
	errs := make([]error, len(pods))
	var writing sync.WaitGroup
	for n, m := range pods {
		is := m.Pod.DeepCopy()
		changed = append(changed, is)
		s.in.group.apply(&is.Spec, isHard(s.Of.topology()))
		s.in.replicas[m.of].apply(&is.Spec, isHard(s.Of.roleTopology()))
		writing.Go(func() { errs[n] = turns.take(func() error { return c.ungate(ctx, m.Pod, is) }) })
	}
	writing.Wait()
	return changed, cmp.Or(errs...)
}

func (c *Controller) ungate(ctx context.Context, before, changed *corev1.Pod) error {
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	changed.Spec.SchedulingGates = slices.DeleteFunc(slices.Clone(changed.Spec.SchedulingGates), func(g corev1.PodSchedulingGate) bool { return g.Name == podmeta.GateGang })
	err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove the gate %s of Pod %s: %w", podmeta.GateGang, client.ObjectKeyFromObject(before), err)
	}
	return client.IgnoreNotFound(err)
}

func (c *Controller) delete(ctx context.Context, pod *corev1.Pod) error {
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	uid := pod.UID
	err := c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return client.IgnoreNotFound(err)
}

// announce emits an Event if a group missed its deadline.
func (c *Controller) announce(s *Step) {
	if len(s.Delete) > 0 && s.Of.isAdmitted() {
		c.opts.Recorder.Eventf(s.Of.Serving, nil, corev1.EventTypeWarning, "GangMissed", "Place", "%s", dualpods.Truncate(s.Of.Name+": "+s.Why+s.Of.whyMissed(), decide.MaxNote))
	}
}

// whyMissed says why the scheduler gave a Pod no node; empty: it has not said so.
func (g *Gang) whyMissed() string {
	for _, m := range at(g.counted, mayGetNode) {
		if why, _ := podmeta.Waits(m.Pod); why != "" {
			return "; Pod " + m.Name + " " + why
		}
	}
	return ""
}
