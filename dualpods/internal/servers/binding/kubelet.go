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
	aheadKubeletPause   = 10 * time.Millisecond // before the requester program runs
	longestKubeletPause = 5 * time.Second
)

// asksKubelet says that there is a container beside the launcher that asks the kubelet.
func (l *launcherPod) asksKubelet() bool {
	return podmeta.Container(&l.pod.Spec, podmeta.PodResourcesContainer) != nil
}

// allocation is what the kubelet says of a requester that a launcher would serve;
// nil where that launcher has nobody to ask.
func (c *Controller) allocation(w *world, l *launcherPod, id dualpods.Identity) *Allocation {
	if c.opts.Allocations == nil || !l.asksKubelet() || l.orphan { // which is not asked, nor are new requesters bound to it
		return nil
	}
	word, asked := w.kubelet[id.UID]
	if !asked || w.pods[id.UID] != w.pod(id) {
		word = Allocation{Why: "it is asked in the next pass", Since: w.now}
	}
	return &word
}

// askKubelet asks for the requesters of a node by one question for each namespace. The program that is asked is beside a launcher of the requester's
// namespace that a LauncherConfig owns: whoever can lie there has these launchers already.
func (c *Controller) askKubelet(ctx context.Context, n *nodeWork, w *world) {
	if c.opts.Allocations == nil || w.node.Gone {
		return
	}
	wanted := map[string][]*corev1.Pod{}
	for uid, pod := range w.pods {
		word, known := n.kubelet[uid]
		if word.AskedAhead && running(pod) {
			word.Since, word.Again, word.AskedAhead = time.Time{}, time.Time{}, false
			n.kubelet[uid] = word
		}
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		if c.isToBeTold(pod, record) && (!known || !word.settles(pod) && !w.now.Before(word.Again)) {
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
func (a Allocation) settles(pod *corev1.Pod) bool {
	return len(a.GPUs) > 0 && (!a.Early || !running(pod))
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
		program := podmeta.ProgramOf(pod)
		gpus, err := allocations.GPUs(told, pod.Name, program.Name)
		switch {
		case err != nil:
			why = err.Error()
		case len(gpus) == 0:
			why = "the kubelet tells of no GPU of its container " + program.Name
		default:
			return Allocation{GPUs: gpus, Early: !running(pod)}
		}
	}
	if a.Since.IsZero() {
		a.Since = now
	}
	first := firstKubeletPause
	if a.AskedAhead = !running(pod); a.AskedAhead {
		first = aheadKubeletPause
	}
	a.Why, a.Again = why, now.Add(min(max(now.Sub(a.Since)/4, first), longestKubeletPause))
	return a
}

// gpus are those that the requester has: as its program says, or the kubelet before that runs.
func (o *Observation) gpus() []string {
	switch {
	case o.SPI != nil:
		return o.SPI.GPUs
	case o.Ahead && o.Kubelet != nil:
		return o.Kubelet.GPUs
	}
	return nil
}

// gpusNotTold says that the kubelet is to be asked which GPUs a requester has,
// and has not said: before it is bound, and once more when its program runs where it was
// bound before.
func (o *Observation) gpusNotTold() bool {
	if o.Kubelet == nil || o.Ahead {
		return false
	}
	told := len(o.Kubelet.GPUs) > 0 && (!o.Kubelet.Early || !o.Requester.Running)
	return !told && (o.Record == nil || o.Record.Ahead && !o.carries())
}

// untilToldGPUs is when the kubelet is asked next.
func (o *Observation) untilToldGPUs() time.Duration {
	if !o.Requester.Running {
		return max(o.Kubelet.Again.Sub(o.Now), aheadKubeletPause)
	}
	return max(o.Kubelet.Again.Sub(o.Now), firstKubeletPause)
}
