package binding

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Allocations asks the agent of a node what the kubelet has given to whom, as
// [allocations.Client] does.
type Allocations interface {
	Pods(ctx context.Context, agent nodeview.Target) ([]podresourcesapi.Pod, error)
}

// checksAllocations says that the kubelet's word counts for the requesters of the launcher,
// as its LauncherConfig wants it. Orphans have none, and get no new requesters.
func (l *launcherPod) checksAllocations() bool {
	return l.of != nil && l.of.Spec.AllocationCheck.Mode != v1alpha1.AllocationCheckNone
}

// allocation is what the kubelet says of a requester that a launcher would serve;
// nil where the requester's own word counts.
func (c *Controller) allocation(w *world, l *launcherPod, id dualpods.Identity) *decide.Allocation {
	if c.opts.Allocations == nil || !l.checksAllocations() {
		return nil
	}
	word, asked := w.kubelet[id.UID]
	if !asked || w.pods[id.UID] != w.pod(id) {
		word = decide.Allocation{Why: "it is asked in the next pass", Since: w.now}
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
	var wanted []*corev1.Pod
	for uid, pod := range w.pods {
		word, known := n.kubelet[uid]
		if word.AskedAhead && running(pod) {
			word.Since, word.Again, word.AskedAhead = time.Time{}, time.Time{}, false
			n.kubelet[uid] = word
		}
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		if checks[pod.Namespace] && c.isToBeTold(pod, record) && (!known || !settles(word, pod) && !w.now.Before(word.Again)) {
			wanted = append(wanted, pod)
		}
	}
	if len(wanted) > 0 {
		told, why := c.askAgents(ctx, w)
		for _, pod := range wanted {
			n.kubelet[pod.UID] = askedOnceMore(n.kubelet[pod.UID], w.now, told, why, pod)
		}
	}
	for uid, word := range n.kubelet {
		w.kubelet[uid] = word
	}
}

// isToBeTold says that the kubelet's word about a requester is wanted: before it is bound,
// and once more when its program runs where it was bound before.
func (c *Controller) isToBeTold(pod *corev1.Pod, record *podmeta.Binding) bool {
	if running(pod) {
		return record == nil || record.Ahead
	}
	return record == nil && c.asksAhead(pod)
}

// asksAhead says that the kubelet's word counts before the requester program runs. The kubelet
// names Pods, not their UIDs, and one whose watch lags tells the GPUs of an earlier Pod. So
// its word counts at once for a name that no other Pod has; for others when the kubelet has
// written the status of this Pod, which it does when it has given it its devices.
func (c *Controller) asksAhead(pod *corev1.Pod) bool {
	if !c.opts.WriteAhead || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || podmeta.Finished(pod) || podmeta.ProgramOf(pod).Ended() {
		return false
	}
	return pod.Status.StartTime != nil || namedAtRandom(pod)
}

// namedAtRandom says that the API server made the end of a Pod's name: five characters of
// those that it draws from (k8s.io/apimachinery/pkg/util/rand).
func namedAtRandom(pod *corev1.Pod) bool {
	drawn, is := strings.CutPrefix(pod.Name, pod.GenerateName)
	return is && pod.GenerateName != "" && len(drawn) == 5 && strings.Trim(drawn, "bcdfghjklmnpqrstvwxz2456789") == "" && strings.ContainsAny(drawn, "bcdfghjklmnpqrstvwxz")
}

// settles says that the kubelet need not be asked again about a requester: what it has given to
// a container stays given.
func settles(a decide.Allocation, pod *corev1.Pod) bool {
	return len(a.GPUs) > 0 && (!a.Early || !running(pod))
}

// askAgents gives the Pods of the node that have devices, or why they cannot be told. A node
// has one agent, and two while one replaces the other: that which stays is asked first.
func (c *Controller) askAgents(ctx context.Context, w *world) (told []podresourcesapi.Pod, why string) {
	ctx, stop := context.WithTimeout(ctx, passLimit)
	defer stop()
	var whys []string
	agents := slices.SortedStableFunc(slices.Values(w.agents), func(a, b *corev1.Pod) int {
		return dualpods.TrueFirst(a.DeletionTimestamp.IsZero(), b.DeletionTimestamp.IsZero())
	})
	for _, agent := range agents {
		if !podmeta.ContainerRuns(agent, podmeta.AgentContainer) {
			whys = append(whys, waitsForAgent(agent))
			continue
		}
		pods, err := c.opts.Allocations.Pods(ctx, nodeview.Target{
			Address: net.JoinHostPort(agent.Status.PodIP, fmt.Sprint(podresourcesapi.DefaultPort)),
			Access:  nodeview.Access{Name: mtls.AgentName(c.opts.AgentNamespace)},
		})
		if err == nil {
			return append([]podresourcesapi.Pod{}, pods...), ""
		}
		c.log.V(1).Info("the kubelet cannot be asked", "agent", client.ObjectKeyFromObject(agent), "error", err.Error())
		whys = append(whys, err.Error())
	}
	if len(w.agents) == 0 {
		return nil, fmt.Sprintf("node %s has no Pod of the DaemonSet %s in namespace %s: see the chart's values agent.nodeSelector and agent.tolerations", w.node.Name, podmeta.AgentSet, c.opts.AgentNamespace)
	}
	return nil, strings.Join(whys, "; ")
}

// waitsForAgent says what an agent Pod waits for.
func waitsForAgent(agent *corev1.Pod) string {
	why, _ := podmeta.Waits(agent)
	return "agent " + agent.Name + " " + cmp.Or(why, "is starting")
}

// askedOnceMore is what is known of a Pod's GPUs after the kubelet was asked once more.
func askedOnceMore(a decide.Allocation, now time.Time, told []podresourcesapi.Pod, why string, pod *corev1.Pod) decide.Allocation {
	if told != nil {
		program := podmeta.ProgramOf(pod)
		gpus, err := allocations.GPUs(told, pod.Namespace, pod.Name, program.Name)
		switch {
		case err != nil:
			why = err.Error()
		case len(gpus) == 0:
			why = "the kubelet tells of no GPU of its container " + program.Name
		default:
			return decide.Allocation{GPUs: gpus, Early: !running(pod)}
		}
	}
	if a.Since.IsZero() {
		a.Since = now
	}
	first := decide.FirstKubeletPause
	if a.AskedAhead = !running(pod); a.AskedAhead {
		first = decide.AheadKubeletPause
	}
	a.Why, a.Again = why, now.Add(min(max(now.Sub(a.Since)/4, first), decide.LongestKubeletPause))
	return a
}
