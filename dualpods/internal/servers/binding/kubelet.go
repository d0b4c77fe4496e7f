package binding

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// checksAllocations says that the kubelet's word counts for the requesters of the launcher,
// as its LauncherConfig wants it. Orphans have none, and get no new requesters.
func (l *launcherPod) checksAllocations() bool {
	return l.of != nil && l.of.Spec.AllocationCheck.Mode != v1alpha1.AllocationCheckNone
}

// allocation is what the kubelet says of a requester that a launcher would serve;
// nil where the requester's own word counts.
func (c *Controller) allocation(w *world, l *launcherPod, id dualpods.Identity) *dualpods.Allocation {
	if c.opts.Allocations == nil || !l.checksAllocations() {
		return nil
	}
	word, asked := w.kubelet[id.UID]
	if !asked || w.pods[id.UID] != w.pod(id) {
		word = dualpods.Allocation{Why: "it is asked in the next pass", Since: w.now}
	}
	return &word
}

// isAgent says that a Pod is the agent of its node. Only who may make Pods in the controller's
// namespace could make one that looks like it, and has no certificate of agents.
func (c *Controller) isAgent(pod *corev1.Pod) bool {
	return pod.Namespace == c.opts.AgentNamespace && podmeta.IsAgent(pod)
}

// askKubelet asks for all requesters of a node that the kubelet's word is wanted of, by one
// question.
func (c *Controller) askKubelet(ctx context.Context, n *nodeWork, w *world) {
	if c.opts.Allocations == nil || w.node.Gone {
		return
	}
	checks := map[string]bool{} // the namespaces with launchers that want the kubelet's word
	for _, l := range w.launchers {
		checks[l.pod.Namespace] = checks[l.pod.Namespace] || l.checksAllocations()
	}
	var due []*corev1.Pod
	for _, pod := range w.pods {
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		if checks[pod.Namespace] && c.isToBeTold(pod, record) && n.gpus.IsDue(w.now, pod) {
			due = append(due, pod)
		}
	}
	if len(due) > 0 {
		ctx, stop := context.WithTimeout(ctx, passLimit)
		defer stop()
		told, why := allocations.Ask(ctx, c.opts.Allocations, c.opts.AgentNamespace, w.node.Name, w.agents)
		if why != "" {
			c.log.V(1).Info("the kubelet cannot be asked", "node", w.node.Name, "why", why)
		}
		for _, pod := range due {
			n.gpus.NoteKubelet(w.now, pod, told, why)
		}
	}
	w.kubelet = n.gpus.Kubelet()
}

// isToBeTold reports whether the kubelet's word about a requester is wanted: before it is bound,
// and once more when its program runs if it was bound before.
func (c *Controller) isToBeTold(pod *corev1.Pod, record *podmeta.Binding) bool {
	if running(pod) {
		return record == nil || record.Ahead
	}
	return record == nil && c.asksAhead(pod)
}

// asksAhead reports whether the kubelet's word about a requester counts before its program runs.
func (c *Controller) asksAhead(pod *corev1.Pod) bool {
	return c.opts.WriteAhead && allocations.CountsAhead(pod)
}
