package launcherpool

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
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// lookAgain is when to look again whether a requester still waits for a launcher:
// nobody tells the Pool when one does not any more.
const lookAgain = time.Minute

// removeUnwanted deletes the launchers that nobody will come to: those that have
// had no requester for idleTimeout, and those that were never placed and whose
// node is gone. It says when the next one may be due. A record that came meanwhile
// keeps its launcher: the deletion is of the Pod as it was read.
func (p *Pool) removeUnwanted(ctx context.Context, f *finding) (again time.Duration, err error) {
	if f.config.Spec.Population.Mode != v1alpha1.OnDemand {
		return 0, nil // a DaemonSet keeps its launchers
	}
	var errs []error
	for _, pod := range f.launchers {
		if !pod.DeletionTimestamp.IsZero() || bound(pod) {
			continue
		}
		stranded, err := p.stranded(ctx, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if stranded {
			errs = append(errs, p.remove(ctx, f, pod, "NodeGone", fmt.Sprintf("node %s, which launcher %s was made for, is gone", NodeOf(pod), pod.Name)))
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

func (p *Pool) remove(ctx context.Context, f *finding, pod *corev1.Pod, reason, why string) error {
	err := p.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err == nil {
		p.opts.Recorder.Eventf(f.config, pod, corev1.EventTypeNormal, reason, "Remove", "%s", why)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove launcher %s, which nobody needs: %w", pod.Name, err)
	}
	return nil
}

// stranded says that a launcher was never placed, and never will be: the node that
// it was made for is gone. Kubernetes deletes Pods of nodes that are gone only
// where they had been placed.
func (p *Pool) stranded(ctx context.Context, pod *corev1.Pod) (bool, error) {
	name := NodeOf(pod)
	if pod.Spec.NodeName != "" || name == "" {
		return false, nil
	}
	err := p.opts.API.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read node %s, which launcher %s is for: %w", name, pod.Name, err)
	}
	return false, nil
}

// untilIdle is when to look at a launcher without a record again, as far as idleness
// goes: negative where it is to be removed now, 0 where its time does not run.
func (p *Pool) untilIdle(ctx context.Context, config *v1alpha1.LauncherConfig, pod *corev1.Pod) (time.Duration, error) {
	timeout := config.Spec.Population.IdleTimeout
	if timeout == nil {
		return 0, nil
	}
	awaited, err := p.awaited(ctx, config, NodeOf(pod))
	if err != nil {
		return 0, err
	}
	now := time.Now()
	deserted := p.noteAwaited(pod, awaited, now)
	if awaited {
		return min(timeout.Duration, lookAgain), nil
	}
	left, idle := idleFor(pod, p.opts.Views.View(string(pod.UID)), deserted, timeout.Duration, now)
	switch {
	case !idle:
		return 0, nil
	case left <= 0:
		return -1, nil
	default:
		return left, nil
	}
}

// noteAwaited notes whether a requester waits for a launcher, and says since when
// none does any more, as far as this Pool has seen; zero: it has seen none.
func (p *Pool) noteAwaited(pod *corev1.Pod, awaited bool, now time.Time) (deserted time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := string(pod.UID)
	since, seen := p.deserted[uid]
	switch {
	case awaited:
		p.deserted[uid] = time.Time{}
		return time.Time{}
	case seen && since.IsZero():
		p.deserted[uid] = now
		return now
	default:
		return since
	}
}

// awaited says that a requester on a node has no record on any launcher and may
// come to one of a LauncherConfig: it waits for it to start, or will be bound in
// a moment.
func (p *Pool) awaited(ctx context.Context, config *v1alpha1.LauncherConfig, node string) (bool, error) {
	if node == "" {
		return false, nil
	}
	var pods corev1.PodList
	err := p.opts.API.List(ctx, &pods, client.InNamespace(config.Namespace), client.MatchingFields{dualpods.IndexNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("cannot list the Pods of node %s: %w", node, err)
	}
	var served []string // UIDs of requesters
	for i := range pods.Items {
		if dualpods.IsLauncher(&pods.Items[i]) {
			served = append(served, podmeta.BoundTo(&pods.Items[i])...)
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !podmeta.IsRequester(pod) || !pod.DeletionTimestamp.IsZero() || podmeta.Finished(pod) || slices.Contains(served, string(pod.UID)) {
			continue
		}
		wants, err := p.wants(ctx, config, pod)
		if wants || err != nil {
			return wants, err
		}
	}
	return false, nil
}

// wants says that a requester may be served by a launcher of a LauncherConfig. One
// whose input is wrong is served by none.
func (p *Pool) wants(ctx context.Context, config *v1alpha1.LauncherConfig, pod *corev1.Pod) (bool, error) {
	read, problems := podmeta.ReadRequester(pod)
	switch {
	case len(problems) > 0:
		return false, nil
	case read.LauncherConfig != "":
		return read.LauncherConfig == config.Name, nil
	case read.Input != podmeta.InputConfig:
		return true, nil // a patch goes by the image, and may be of any
	}
	var server v1alpha1.InferenceServerConfig
	err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: read.ConfigName}, &server)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot read InferenceServerConfig %s: %w", read.ConfigName, err)
	}
	return err == nil && server.Spec.LauncherConfigName == config.Name, nil
}

// idleFor says whether a launcher that no requester waits for is idle, and how
// long it may be so still; deserted is since when none waits, if one did. One that
// starts, or starts again and again, is idle too. One that runs something that
// somebody woke by hand is not.
func idleFor(pod *corev1.Pod, view nodeview.View, deserted time.Time, timeout time.Duration, now time.Time) (left time.Duration, idle bool) {
	if !pod.DeletionTimestamp.IsZero() || bound(pod) {
		return 0, false
	}
	for _, i := range view.Instances {
		switch launcher.State(i.State) {
		case launcher.Sleeping, launcher.Failed, launcher.Stopped:
		default:
			if !podmeta.ServerEnded(pod) { // else what it said last has ended with it
				return 0, false
			}
		}
	}
	since := pod.CreationTimestamp.Time
	unbound, err := time.Parse(time.RFC3339, pod.Annotations[podmeta.AnnotationUnboundSince])
	if err == nil && unbound.After(since) {
		since = unbound
	}
	if deserted.After(since) {
		since = deserted
	}
	return timeout - now.Sub(since), true
}
