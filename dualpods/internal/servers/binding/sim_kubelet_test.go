package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// simKubelets is the way of a controller process to the agents of nodes.
type simKubelets struct{ inc *incarnation }

func (k *simKubelets) Pods(ctx context.Context, agent nodeview.Target) (pods []podresourcesapi.Pod, err error) {
	hangs := false
	err = k.inc.call(ctx, "kubelet", func() error {
		s := k.inc.s
		at := slices.IndexFunc(sortedKeys(s.api.nodesEver), func(node string) bool { return agent.Address == simAgentIP(node)+":8002" })
		if at < 0 {
			return errors.New("connection refused")
		}
		node := sortedKeys(s.api.nodesEver)[at]
		if there := s.api.pods[simAgent(node)]; there == nil || !podmeta.ContainerRuns(there, podmeta.AgentContainer) {
			return errors.New("connection refused")
		}
		switch s.kubelets[node] {
		case kubeletRefuses:
			return errors.New("the kubelet refuses")
		case kubeletHangs:
			hangs = true
			return nil
		}
		for _, name := range sortedKeys(s.knows[node]) {
			if p := s.knows[node][name]; !p.dead || p.there() == nil { // it may not have heard of that yet
				pods = append(pods, podresourcesapi.Pod{Namespace: "ns", Name: name, Containers: []podresourcesapi.Container{{
					Name: p.container, Devices: map[string][]string{string(podmeta.ResourceGPU): p.gpus},
				}}})
			}
		}
		return nil
	})
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return pods, err
}

// checkAskedAhead looks for a requester that could be bound before its program runs, and of which
// the kubelet was asked in vain: it is asked again.
func (inc *incarnation) checkAskedAhead(node string, before simPass, again time.Duration) {
	s, n := inc.s, inc.kept(node)
	if again > 0 || !s.writeAhead || n == nil || inc.dead || inc.faults != before.faults {
		return
	}
	words := n.gpus.Kubelet()
	for _, name := range s.requesters() {
		pod := s.api.pods[name]
		word, asked := words[pod.UID]
		inVain := asked && len(word.GPUs) == 0 && time.Since(word.Since) < decide.Patience-time.Second
		if pod.Spec.NodeName != node || s.living(pod.UID) == nil || !before.known[name] || !inVain || running(pod) || !allocations.CountsAhead(pod) || s.recordOf(pod.UID) >= 0 {
			continue
		}
		wanted, problems := s.asks(pod)
		if _, stuck := podmeta.Waits(pod); stuck || len(problems) > 0 || s.api.nodes[node].Spec.Unschedulable || !s.selects(node) {
			continue
		}
		if on := s.launcherFor(node, wanted); on != nil && before.known[on.Name] {
			s.violated("the kubelet was asked in vain which GPUs requester %s has, and is not asked again", name)
		}
	}
}

// simAgent is the name of a node's agent, and simAgentIP its address.
func simAgent(node string) string   { return "agent-of-" + node }
func simAgentIP(node string) string { return "10.2.0." + strings.TrimPrefix(node, "node-") }

// addAgent has a node get its agent, as the DaemonSet of the chart has it.
func (s *sim) addAgent(node string) {
	if !s.asksKubelet || s.api.nodes[node] == nil || s.api.pods[simAgent(node)] != nil {
		return
	}
	uid := types.UID(fmt.Sprintf("%s.%d", simAgent(node), s.number(simAgent(node))))
	s.api.putPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: simAgent(node), Namespace: "ns", UID: uid, CreationTimestamp: metav1.Now(), Labels: map[string]string{podmeta.LabelComponent: podmeta.ComponentAgent},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: podmeta.AgentContainer, Image: "launcher"}}},
	})
	s.after(s.between("agent runs", time.Millisecond, time.Second), func() {
		if there := s.api.pods[simAgent(node)]; there != nil && there.UID == uid && there.DeletionTimestamp == nil {
			s.api.changeThis(there, func(p *corev1.Pod) { runs(p, simAgentIP(node)) })
		}
	})
}

// silence has a node's kubelet not answer, or its agent be gone.
func (s *sim) silence(node, how string) {
	if s.kubelets[node] == kubeletAnswers {
		s.kubeletsBy[node] = time.Now()
	}
	if s.kubelets[node] = how; how == kubeletUnasked {
		s.api.deletePod(simAgent(node), 0)
	}
}

// answers has a node's kubelet answer again.
func (s *sim) answers(node string) {
	delete(s.kubelets, node)
	s.addAgent(node)
}

// What a node's kubelet does with questions.
const (
	kubeletAnswers = ""
	kubeletRefuses = "refuses"
	kubeletHangs   = "hangs"
	kubeletUnasked = "unasked" // its node has no agent
)

// admit is what a node's kubelet does when it hears of a Pod: it gives it its devices, writes its
// status, and runs it. Until then it tells of an earlier Pod of that name what it knew last.
func (s *sim) admit(p *simProgram, pod *corev1.Pod) (lag time.Duration) {
	lag = s.between("admission", time.Millisecond, 50*time.Millisecond)
	if s.chance("kubelet lags", 5) {
		lag *= 200
	}
	s.after(lag, func() {
		if p.there() == nil {
			return
		}
		if s.knows[p.node] == nil {
			s.knows[p.node] = map[string]*simProgram{}
		}
		s.knows[p.node][p.pod] = p
		s.note("the kubelet of %s admits %s with %v", p.node, p.uid, p.gpus)
		s.after(s.between("start time", time.Millisecond, 100*time.Millisecond), func() {
			s.api.changeThis(pod, func(o *corev1.Pod) {
				if o.Status.StartTime == nil {
					o.Status.StartTime = new(metav1.Now())
				}
			})
		})
	})
	return lag
}
