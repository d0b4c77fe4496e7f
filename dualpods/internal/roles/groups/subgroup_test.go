package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/dualpods/internal/roles/subgroups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const tpuWorker = `{"spec": {"containers": [{"name": "worker", "image": "worker", "resources": {"limits": {"google.com/tpu": "4"}}}]}}`

// slices4 makes the role one of an entry on a CPU and four workers with TPUs, two in a subgroup.
func slices4(m *v1alpha1.ModelServing) {
	role := &m.Spec.Template.Roles[0]
	role.EntryTemplate, role.WorkerTemplate, role.WorkerReplicas = &runtime.RawExtension{Raw: []byte(plainEntry)}, &runtime.RawExtension{Raw: []byte(tpuWorker)}, new(int32(4))
	m.Spec.Template.SubGroupPolicy = &v1alpha1.SubGroupPolicy{SubGroupSize: 2, SubGroupPolicyType: "LeaderWorker"}
}

func TestPodsOfAReplicaAreDividedIntoSubgroups(t *testing.T) {
	s := newSite(t, slices4, nil)
	s.passes(1)
	for name, want := range map[string]struct{ index, id, hosts string }{
		"llama-0-prefill-0-0": {"0", "", ""},
		"llama-0-prefill-0-1": {"0", "0", "llama-0-prefill-0-1.ns.svc,llama-0-prefill-0-2.ns.svc"},
		"llama-0-prefill-0-4": {"1", "1", "llama-0-prefill-0-3.ns.svc,llama-0-prefill-0-4.ns.svc"},
	} {
		var pod corev1.Pod
		require.True(t, s.read(name, &pod), name)
		env := map[string]string{}
		for _, e := range pod.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		assert.Equal(t, []string{want.index, want.id, want.hosts, "2"}, []string{
			pod.Labels[podmeta.LabelSubgroupIndex], env[podmeta.EnvTPUWorkerID], env[podmeta.EnvTPUWorkerHostnames], pod.Annotations[podmeta.AnnotationSubgroupSize],
		}, name)
		assert.Equal(t, []string{"5", "llama-0-prefill-0-0.ns.svc"}, []string{env[podmeta.EnvGroupSize], env[podmeta.EnvEntryAddress]})
		assert.NotContains(t, pod.Annotations, podmeta.AnnotationRank, "it is no requester")
		assert.True(t, s.read(name, &corev1.Service{}), "%s is found by its name", name)
	}
}

func TestWorkerIsCreatedInTheDomainOfItsEntry(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		slices4(m)
		m.Annotations = map[string]string{podmeta.AnnotationExclusiveTopology: zone}
	}, nil, node)
	s.passes(2)
	var entry, worker corev1.Pod
	require.True(t, s.read("llama-0-prefill-0-0", &entry))
	assert.Len(t, entry.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 1)
	assert.False(t, s.read("llama-0-prefill-0-1", &worker), "its entry is on no node")
	assert.Contains(t, s.groups()[0].Message, "Pod llama-0-prefill-0-0")

	entry.Spec.NodeName = node.Name
	require.NoError(t, s.api.Update(t.Context(), &entry))
	entry.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, s.api.Status().Update(t.Context(), &entry))
	s.passes(1)
	assert.False(t, s.read("llama-0-prefill-0-1", &worker))
	assert.Contains(t, s.groups()[0].Message, "Pod llama-0-prefill-0-1 waits until its entry runs on a node with the label "+zone)

	node.Labels = map[string]string{zone: "a"}
	require.NoError(t, s.api.Update(t.Context(), node))
	s.passes(1)
	require.True(t, s.read("llama-0-prefill-0-1", &worker))
	assert.Equal(t, map[string]string{zone: "a"}, worker.Spec.NodeSelector)
}

func TestSubgroupsThatDoNotFitAreRefused(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		slices4(m)
		m.Spec.Template.SubGroupPolicy.SubGroupSize = 3
		m.Spec.Template.Roles = append(m.Spec.Template.Roles, v1alpha1.ServingRole{Name: "router", EntryTemplate: &runtime.RawExtension{Raw: []byte(plainEntry)}})
	}, nil)
	s.passes(1)
	assert.False(t, s.read("llama-0-prefill-0-0", &corev1.Pod{}))
	group := s.groups()[0]
	assert.Equal(t, v1alpha1.ReasonMalformedTemplate, group.Reason)
	assert.Contains(t, group.Message, "spec.template.subGroupPolicy.subGroupSize: 3 divides neither the 5 Pods of a replica of role prefill nor its 4 workers")
}

// TestPolicyOfTheAPIHasTheTypesOfThePackage holds the two enumerations against each other.
func TestPolicyOfTheAPIHasTheTypesOfThePackage(t *testing.T) {
	serving := llama()
	serving.Spec.Template.SubGroupPolicy = &v1alpha1.SubGroupPolicy{SubGroupSize: 2, SubGroupPolicyType: "LeaderExcluded"}
	assert.Equal(t, &subgroups.Policy{Size: 2, Type: subgroups.LeaderExcluded}, policyOf(&serving.Spec.Template))
	assert.Nil(t, policyOf(&llama().Spec.Template))
}
