package launcherpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// waiterRecheck is the period after which the Pool checks again whether a requester
// still waits for a launcher. No event reports that a requester stopped waiting.
const waiterRecheck = time.Minute

// removeUnwanted deletes the launchers that unused.verdict removes. It returns the time until the
// next launcher may be due. The deletion has the resource version that was read as a
// precondition: a launcher that was bound since then stays. No successor is created for a
// launcher that was removed.
func (p *Pool) removeUnwanted(ctx context.Context, f *observation) (again time.Duration, err error) {
	if f.config.Spec.Population.Mode != v1alpha1.OnDemand {
		return 0, nil // a DaemonSet keeps its launchers
	}
	var errs []error
	for _, pod := range f.launchers {
		if !pod.DeletionTimestamp.IsZero() || isBound(pod) || p.replaced.has(pod) {
			continue
		}
		u, err := p.unused(ctx, f, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		left, reason, why := u.verdict()
		again = dualpods.Sooner(again, left)
		if reason != "" {
			errs = append(errs, p.remove(ctx, f, pod, reason, why))
		}
	}
	return again, errors.Join(errs...)
}

// unused gathers what is known of a launcher without requesters.
func (p *Pool) unused(ctx context.Context, f *observation, pod *corev1.Pod) (*unused, error) {
	u := &unused{pod: pod, config: f.config, now: p.opts.Now(), timeout: f.config.Spec.Population.IdleTimeout}
	var err error
	if u.node = NodeOf(pod); u.node != "" {
		var node *corev1.Node
		if node, err = p.node(ctx, u.node); err != nil {
			return nil, fmt.Errorf("launcher %s: %w", pod.Name, err)
		}
		u.nodeGone = node == nil
		u.deselected = node != nil && len(f.problems) == 0 && !f.selects(node)
	}
	if u.timeout == nil || u.isMisplaced() {
		return u, nil
	}
	if u.awaited, err = p.hasWaiter(ctx, pod); err != nil {
		return nil, err
	}
	u.noWaiterSince = p.recordWaiter(pod, u.awaited, u.now)
	u.view = p.opts.Views.Pick(string(pod.UID), moves)
	return u, nil
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
