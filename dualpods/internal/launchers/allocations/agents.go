package allocations

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// Kubelets asks the agent of a node what the kubelet has given to whom, as [Client] does.
type Kubelets interface {
	Pods(ctx context.Context, agent nodeview.Target) ([]podresourcesapi.Pod, error)
}

// Ask returns the Pods of a node that have devices, or why they cannot be told. The agents are in
// the namespace of the controller. A node has one agent, and two while one replaces the other: the
// one that stays is asked first.
func Ask(ctx context.Context, kubelets Kubelets, namespace, node string, agents []*corev1.Pod) (told []podresourcesapi.Pod, why string) {
	var whys []string
	agents = slices.SortedStableFunc(slices.Values(agents), func(a, b *corev1.Pod) int {
		return dualpods.TrueFirst(a.DeletionTimestamp.IsZero(), b.DeletionTimestamp.IsZero())
	})
	for _, agent := range agents {
		if !podmeta.ContainerRuns(agent, podmeta.AgentContainer) {
			whys = append(whys, waitsFor(agent))
			continue
		}
		pods, err := kubelets.Pods(ctx, nodeview.Target{
			Address: net.JoinHostPort(agent.Status.PodIP, fmt.Sprint(podresourcesapi.DefaultPort)),
			Access:  nodeview.Access{Name: mtls.AgentName(namespace)},
		})
		if err == nil {
			return append([]podresourcesapi.Pod{}, pods...), ""
		}
		whys = append(whys, err.Error())
	}
	if len(agents) == 0 {
		return nil, fmt.Sprintf("node %s has no Pod of the DaemonSet %s in namespace %s: see the chart's values agent.nodeSelector and agent.tolerations", node, podmeta.AgentSet, namespace)
	}
	return nil, strings.Join(whys, "; ")
}

// waitsFor says what an agent Pod waits for.
func waitsFor(agent *corev1.Pod) string {
	why, _ := podmeta.Waits(agent)
	return "agent " + agent.Name + " " + cmp.Or(why, "is starting")
}
