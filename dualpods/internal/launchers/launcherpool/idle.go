package launcherpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// waiterRecheck is the period after which the Pool checks again whether a requester
// still waits for a launcher. No event reports that a requester stopped waiting.
const waiterRecheck = time.Minute

// removeUnwanted deletes launchers that have had no requester for idleTimeout, launchers
// that were never scheduled and whose node is gone, and unbound launchers whose node the
// LauncherConfig does not select any more. It returns the time until the next launcher
// may be due. The deletion has the resource version that was read as a precondition: a
// launcher that was bound since then stays. No successor is created for a launcher that
// was removed.
func (p *Pool) removeUnwanted(ctx context.Context, f *observation) (again time.Duration, err error) {
	if f.config.Spec.Population.Mode != v1alpha1.OnDemand {
		return 0, nil // a DaemonSet keeps its launchers
	}
	var errs []error
	for _, pod := range f.launchers {
		if !pod.DeletionTimestamp.IsZero() || isBound(pod) || p.replaced.has(pod) {
			continue
		}
		reason, why, err := p.whyMisplaced(ctx, f, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if reason != "" {
			errs = append(errs, p.remove(ctx, f, pod, reason, why))
			continue
		}
		left, err := p.untilIdle(ctx, f.config, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
		if left < 0 {
			errs = append(errs, p.remove(ctx, f, pod, "Idle", fmt.Sprintf("launcher %s of node %s has had no requester for %s", pod.Name, NodeOf(pod), f.config.Spec.Population.IdleTimeout.Duration)))
		}
	}
	return again, errors.Join(errs...)
}

func (p *Pool) remove(ctx context.Context, f *observation, pod *corev1.Pod, reason, why string) error {
	err := p.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err == nil {
		p.opts.Recorder.Eventf(f.config, pod, corev1.EventTypeNormal, reason, "Remove", "%s", why)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete the unused launcher %s: %w", pod.Name, err)
	}
	at := place{client.ObjectKeyFromObject(f.config), NodeOf(pod)}
	p.replaced.add(pod, at, false)
	p.replaced.forget(at)
	return nil
}

// untilIdle returns the time after which to check an unbound launcher again. It is
// negative when the launcher is to be removed now, and 0 when it is not idle.
func (p *Pool) untilIdle(ctx context.Context, config *v1alpha1.LauncherConfig, pod *corev1.Pod) (time.Duration, error) {
	timeout := config.Spec.Population.IdleTimeout
	if timeout == nil {
		return 0, nil
	}
	awaited, err := p.hasWaiter(ctx, pod)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	noWaiterSince := p.recordWaiter(pod, awaited, now)
	if awaited {
		return min(timeout.Duration, waiterRecheck), nil
	}
	left, idle := idleFor(pod, p.opts.Views.Pick(string(pod.UID), moves), noWaiterSince, timeout.Duration, now)
	switch {
	case !idle:
		return 0, nil
	case left <= 0:
		return -1, nil
	default:
		return left, nil
	}
}

// recordWaiter records whether a requester waits for a launcher. It returns the time
// at which this Pool saw that the last one had stopped waiting; zero: it saw none.
func (p *Pool) recordWaiter(pod *corev1.Pod, awaited bool, now time.Time) (noWaiterSince time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := string(pod.UID)
	since, seen := p.noWaiterSince[uid]
	switch {
	case awaited:
		p.noWaiterSince[uid] = time.Time{}
		return time.Time{}
	case seen && since.IsZero():
		p.noWaiterSince[uid] = now
		return now
	default:
		return since
	}
}

// hasWaiter reports whether a requester on the node of a launcher waits for it, or is
// about to be bound to it: the launcher may serve it, and no launcher has a record of it.
func (p *Pool) hasWaiter(ctx context.Context, waited *corev1.Pod) (bool, error) {
	node := NodeOf(waited)
	if node == "" {
		return false, nil
	}
	var pods corev1.PodList
	err := p.opts.API.List(ctx, &pods, client.InNamespace(waited.Namespace), client.MatchingFields{dualpods.IndexNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("cannot list the Pods of node %s: %w", node, err)
	}
	launchers := dualpods.NewLaunchers(p.opts.API)
	served := map[dualpods.Identity]bool{}
	var requesters []*corev1.Pod // that do not leave
	for i := range pods.Items {
		pod := &pods.Items[i]
		kind, _, err := launchers.KindOf(ctx, pod)
		switch {
		case err != nil:
			return false, err
		case kind.IsLauncher():
			bindings, _ := podmeta.ReadBindings(pod)
			for n := range bindings {
				served[dualpods.IdentityIn(&bindings[n])] = true
			}
		case kind.IsRequester() && !dualpods.RequesterOf(pod).Leaves(false):
			requesters = append(requesters, pod)
		}
	}
	provider := dualpods.ProviderOf(waited, 0)
	for _, pod := range requesters {
		if served[dualpods.IdentityOf(pod)] {
			continue
		}
		need, err := p.opts.Need(ctx, pod)
		if err != nil {
			return false, err
		}
		if need != nil && provider.CanServe(need) {
			return true, nil
		}
	}
	return false, nil
}

// clockSkew is how much the clocks of two controllers may differ. A time that is farther ahead is
// of a controller whose clock was wrong, and does not count.
const clockSkew = 5 * time.Minute

// moves reports whether an instance is awake, or on its way to another state.
func moves(_ string, i launcherapi.Instance) bool {
	switch launcher.State(i.State) {
	case launcher.Sleeping, launcher.Failed, launcher.Stopped:
		return false
	default:
		return true
	}
}

// idleFor reports whether a launcher that no requester waits for is idle, and the
// time that is left until its timeout. noWaiterSince is the time since which no requester
// waits, if one did. A launcher that is starting or crash-looping is idle. A launcher
// with an instance that somebody woke by hand is not.
func idleFor(pod *corev1.Pod, view nodeview.View, noWaiterSince time.Time, timeout time.Duration, now time.Time) (left time.Duration, idle bool) {
	if !pod.DeletionTimestamp.IsZero() || isBound(pod) {
		return 0, false
	}
	provider := dualpods.ProviderOf(pod, 0)
	for id, i := range view.Instances {
		if moves(id, i) && !provider.Ended { // else the instance ended with the container
			return 0, false
		}
	}
	since := pod.CreationTimestamp.Time
	unbound, err := time.Parse(time.RFC3339, pod.Annotations[podmeta.AnnotationUnboundSince])
	if err == nil && unbound.After(since) && unbound.Sub(now) <= clockSkew {
		since = unbound
	}
	if noWaiterSince.After(since) {
		since = noWaiterSince
	}
	return timeout - now.Sub(since), true
}
