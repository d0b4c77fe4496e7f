package launcherpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
)

// removeIdle deletes the launchers that have had no requester for idleTimeout,
// and says when the next one may be due. A record that came meanwhile keeps its
// launcher: the deletion is of the Pod as it was read.
func (p *Pool) removeIdle(ctx context.Context, f *finding) (again time.Duration, err error) {
	timeout := f.config.Spec.Population.IdleTimeout
	if timeout == nil {
		return 0, nil
	}
	var errs []error
	for _, pod := range f.launchers {
		left, idle := idleFor(pod, p.opts.Views.View(string(pod.UID)), timeout.Duration, time.Now())
		switch {
		case !idle:
		case left > 0 && (again == 0 || left < again):
			again = left
		case left <= 0:
			err := p.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
			if err == nil {
				p.opts.Recorder.Eventf(f.config, pod, corev1.EventTypeNormal, "Idle", "Remove",
					"launcher %s of node %s has had no requester for %s", pod.Name, NodeOf(pod), timeout.Duration)
			}
			if client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("cannot remove the idle launcher %s: %w", pod.Name, err))
			}
		}
	}
	return again, errors.Join(errs...)
}

// idleFor says whether a launcher is idle, and how long it may be so still. One
// that is not ready yet, or runs something that somebody woke by hand, is not.
func idleFor(pod *corev1.Pod, view nodeview.View, timeout time.Duration, now time.Time) (left time.Duration, idle bool) {
	if !pod.DeletionTimestamp.IsZero() || bound(pod) || !ready(pod) {
		return 0, false
	}
	for _, i := range view.Instances {
		switch launcher.State(i.State) {
		case launcher.Sleeping, launcher.Failed, launcher.Stopped:
		default:
			return 0, false
		}
	}
	var since time.Time // it was ready, and the last requester was unbound
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			since = c.LastTransitionTime.Time
		}
	}
	if unbound, err := time.Parse(time.RFC3339, pod.Annotations[podmeta.AnnotationUnboundSince]); err == nil && unbound.After(since) {
		since = unbound
	}
	return timeout - now.Sub(since), true
}
