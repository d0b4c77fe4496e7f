package act

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// observeSleepers counts the sleepers of the members of groups on GPUs that nothing uses. Sleepers of several members
// on the same GPU count for the first of these alone.
func (c *Controller) observeSleepers(ctx context.Context, w *world) error {
	var would []*corev1.Pod
	for _, e := range w.entries {
		if e.Group != "" && e.RunsIn == v1alpha1.RunsInLauncher && e.deployment != nil && e.Problem == "" {
			would = append(would, wouldBe(e))
		}
	}
	if len(would) == 0 || c.opts.Sleepers == nil {
		return nil
	}
	found, err := c.opts.Sleepers(ctx, would)
	if err != nil {
		return fmt.Errorf("cannot find the sleepers of Model %s: %w", w.model.Name, err)
	}
	used := map[[2]string]bool{} // GPUs, by node and UUID
	for _, e := range w.entries {
		for _, at := range found[types.UID(e.Name)] {
			if take(used, at) {
				e.asleep++
			}
		}
	}
	return nil
}

// wouldBe returns a requester of an entry as its Deployment makes them. Its UID is the entry's name.
func wouldBe(e *entry) *corev1.Pod {
	template := &e.deployment.Spec.Template
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.deployment.Namespace, Name: e.deployment.Name, UID: types.UID(e.Name), Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

// take takes all GPUs of a sleeper, unless one of them is taken.
func take(used map[[2]string]bool, at placement.Asleep) bool {
	for _, uuid := range at.GPUs {
		if used[[2]string{at.Node, uuid}] {
			return false
		}
	}
	for _, uuid := range at.GPUs {
		used[[2]string{at.Node, uuid}] = true
	}
	return true
}
