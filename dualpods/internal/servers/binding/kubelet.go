package binding

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// Allocations asks the programs beside launchers what the kubelet has given to
// whom, as [allocations.Client] does.
type Allocations interface {
	Pods(ctx context.Context, target nodeview.Target, namespace string) ([]podresourcesapi.Pod, error)
}

// Bounds of the pause before a kubelet is asked again.
const (
	firstKubeletPause   = 50 * time.Millisecond
	longestKubeletPause = 5 * time.Second
)

// asksKubelet says that there is a container beside the launcher that asks the kubelet.
func (l *launcherPod) asksKubelet() bool {
	return podmeta.Container(&l.pod.Spec, podmeta.PodResourcesContainer) != nil
}

// allocation is what the kubelet says of a requester that a launcher would serve;
// nil where that launcher has nobody to ask.
func (c *Controller) allocation(w *world, l *launcherPod, id dualpods.Identity) *Allocation {
	if c.opts.Allocations == nil || !l.asksKubelet() {
		return nil
	}
	word, asked := w.kubelet[id.UID]
	if !asked || w.pods[id.UID] != w.pod(id) {
		word = Allocation{Why: "it is asked in the next pass", Since: w.now}
	}
	return &word
}

// askKubelet asks once for each requester that runs and is not bound, by one
// question for each namespace: what the kubelet has given to a container stays
// given. The program that is asked is beside a launcher of the requester's
// namespace that a LauncherConfig owns: whoever can lie there has these launchers already.
func (c *Controller) askKubelet(ctx context.Context, n *nodeWork, w *world) {
	if c.opts.Allocations == nil || w.node.Gone {
		return
	}
	wanted := map[string][]*corev1.Pod{}
	for uid, pod := range w.pods {
		word, known := n.kubelet[uid]
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		if record == nil && running(pod) && (!known || len(word.GPUs) == 0 && !w.now.Before(word.Again)) {
			wanted[pod.Namespace] = append(wanted[pod.Namespace], pod)
		}
	}
	ctx, stop := context.WithTimeout(ctx, passLimit)
	defer stop()
	for namespace, pods := range wanted {
		if told, why := c.askNamespace(ctx, w, namespace); told != nil || why != "" {
			for _, pod := range pods {
				n.kubelet[pod.UID] = n.kubelet[pod.UID].next(w.now, told, why, pod)
			}
		}
	}
	for uid, word := range n.kubelet {
		w.kubelet[uid] = word
	}
}

// askNamespace gives the Pods of a namespace that have devices, or why they
// cannot be told; neither where nobody can be asked.
func (c *Controller) askNamespace(ctx context.Context, w *world, namespace string) (told []podresourcesapi.Pod, why string) {
	var whys []string
	for _, l := range w.launchers {
		switch {
		case l.pod.Namespace != namespace || l.orphan || !l.asksKubelet():
			continue
		case !podmeta.ContainerRuns(l.pod, podmeta.PodResourcesContainer):
			whys = append(whys, dualpods.WaitForLauncher(l.pod).Why)
			continue
		}
		access := c.access(l)
		if access.Refused != "" {
			whys = append(whys, "launcher "+l.pod.Name+" is not called: "+access.Refused)
			continue
		}
		pods, err := c.opts.Allocations.Pods(ctx, nodeview.Target{
			Address: net.JoinHostPort(l.pod.Status.PodIP, fmt.Sprint(podresourcesapi.DefaultPort)), Access: access,
		}, namespace)
		if err == nil {
			return append([]podresourcesapi.Pod{}, pods...), ""
		}
		c.log.V(1).Info("the kubelet cannot be asked", "launcher", client.ObjectKeyFromObject(l.pod), "error", err.Error())
		whys = append(whys, err.Error())
	}
	return nil, strings.Join(whys, "; ")
}

// next is what is known of a Pod's GPUs after the kubelet was asked once more.
func (a Allocation) next(now time.Time, told []podresourcesapi.Pod, why string, pod *corev1.Pod) Allocation {
	if told != nil {
		gpus, err := allocations.GPUs(told, pod.Name)
		switch {
		case err != nil:
			why = err.Error()
		case len(gpus) == 0:
			why = "the kubelet tells of no GPU of its container " + podmeta.ServingContainer
		default:
			return Allocation{GPUs: gpus}
		}
	}
	if a.Since.IsZero() {
		a.Since = now
	}
	a.Why, a.Again = why, now.Add(min(max(now.Sub(a.Since)/4, firstKubeletPause), longestKubeletPause))
	return a
}
