package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// placed returns a launcher that runs on a node.
func placed(node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := pending(node)
	pod.Spec.NodeName = node
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func TestUnboundLauncherOfADeselectedNodeIsRemoved(t *testing.T) {
	bound := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{podmeta.AnnotationBindingPrefix + "x": "{}"}
	}
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	there := []client.Object{
		placed("selected"), node("selected", map[string]string{"pool": "yes"}), placed("lost"), node("lost", nil),
		placed("bound", bound), node("bound", nil), placed("unknown"), pending("node-0"),
	}
	p, config, told := poolOf(t, v1alpha1.OnDemand, there...)
	config.Spec.Population.NodeSelector = map[string]string{"pool": "yes"}
	left := func(problems ...podmeta.Problem) (names []string) {
		pods, err := p.launchers(t.Context(), config)
		require.NoError(t, err)
		_, err = p.removeUnwanted(t.Context(), &observation{config: config, launchers: pods, problems: problems})
		require.NoError(t, err)
		pods, err = p.launchers(t.Context(), config)
		require.NoError(t, err)
		for _, pod := range pods {
			names = append(names, NodeOf(pod))
		}
		return names
	}
	assert.Len(t, left(podmeta.Problem{Field: "f", Message: "m"}), 5, "a LauncherConfig that cannot be used takes nothing away")
	assert.ElementsMatch(t, []string{"selected", "bound", "unknown"}, left())
	require.Len(t, told.Events, 2)
	assert.Contains(t, []string{<-told.Events, <-told.Events}, "Normal NodeNotSelected LauncherConfig vllm does not select node lost of launcher "+podName("vllm", "lost")+" any more")
}

func TestNodeAffinityOfTheTemplateIsToldToWaitingRequesters(t *testing.T) {
	const elsewhere = `
podTemplate:
  spec:
    affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}
    containers: [{name: inference-server, image: vllm}]
`
	config := configOf(t, elsewhere)
	config.Name, config.UID = "elsewhere", "elsewhere"
	p, _, _ := poolOf(t, v1alpha1.PerNode, config)
	wait := p.Lacking(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Config: "elsewhere", Node: "node-0"})
	require.NotNil(t, wait)
	assert.Equal(t, "node node-0 gets no launcher of LauncherConfig elsewhere, because the node affinity of spec.podTemplate excludes the node", wait.Why)
	assert.True(t, wait.Missing && wait.Stuck)
}
