//go:build cluster

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// domainOfGangs is the key of a node label of which each node has a value of its own.
const domainOfGangs = "example.com/domain-of-gangs"

// inDomains makes each node a domain of its own, as long as the test takes.
func (s *site) inDomains() {
	s.t.Helper()
	for number := 1; number <= s.cluster.Nodes; number++ {
		name := cluster.NodeName(number)
		s.kubectl("label", "--overwrite", "node", name, domainOfGangs+"="+name)
		s.t.Cleanup(func() {
			_, err := s.cluster.Kubectl(context.WithoutCancel(s.t.Context()), nil, "label", "node", name, domainOfGangs+"-")
			assert.NoError(s.t, err)
		})
	}
}

// runsOn waits until the only group of llama, which has two Pods, runs on a node. It returns when its
// instances there were created, by their IDs.
func (s *site) runsOn(node int) map[string]time.Time {
	s.t.Helper()
	serving := s.runs("llama", 1)
	require.NotNil(s.t, serving.Status.Groups[0].Gang)
	assert.Equal(s.t, domainOfGangs+"="+cluster.NodeName(node), serving.Status.Groups[0].Gang.Domain)
	for _, pod := range s.served("llama", 2) {
		assert.Equal(s.t, cluster.NodeName(node), pod.Spec.NodeName, pod.Name)
		assert.Equal(s.t, cluster.NodeName(node), pod.Spec.NodeSelector[domainOfGangs], pod.Name)
	}
	all := s.createdOn(node, "awake")
	assert.Len(s.t, all, 2)
	return all
}

// createdOn says when the instances on a node were created, by their IDs. Others than those in a state do
// not count.
func (s *site) createdOn(node int, state string) map[string]time.Time {
	s.t.Helper()
	pods := s.launchers()
	at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == cluster.NodeName(node) })
	require.GreaterOrEqual(s.t, at, 0)
	list, err := s.launcher(pods[at].Name).List(s.t.Context())
	require.NoError(s.t, err)
	all := map[string]time.Time{}
	for _, i := range list.Instances {
		if i.State == state {
			all[i.InstanceID] = i.CreatedAt
		}
	}
	return all
}

// sleepsOn has llama have no groups, and waits until its two instances on a node sleep.
func (s *site) sleepsOn(node int) {
	s.t.Helper()
	s.kubectl("scale", "ms/llama", "--replicas=0")
	s.eventually("it has no Pods, and its models sleep", func() bool { return len(s.pods("llama")) == 0 && len(s.createdOn(node, "sleeping")) == 2 })
}

func TestGroupGetsNodesInTheDomainWhereItSleeps(t *testing.T) {
	s := newPool(t, nil)
	require.Equal(t, []int{2, 2}, []int{s.cluster.Nodes, s.cluster.GPUs})
	s.inDomains()
	s.onOneGPU()
	s.onOneGPUOf(2, "0")
	s.gang("llama", 2, 2, func(serving *v1alpha1.ModelServing) {
		serving.Spec.Template.NetworkTopology = &v1alpha1.NetworkTopology{GroupPolicy: &v1alpha1.NetworkTopologyPolicy{HighestTierName: domainOfGangs}}
	})
	s.waits("llama", "2 Pods need 2 GPUs together, and the nodes that they may use have 1 free in the domain "+domainOfGangs+"=node-1, where most are")
	s.stays("no Pod of it has a node, though two GPUs are free", func() bool { return s.waitsWhole("llama", 2) })

	// The models start on node-2, and sleep there.
	s.kubectl("delete", "pod/other-gpus-node-2", "--timeout="+patience.Wait().String())
	first := s.runsOn(2)
	s.sleepsOn(2)

	// Of two domains with as many free GPUs the group would get the other one.
	s.kubectl("delete", "pod/other-gpus", "--timeout="+patience.Wait().String())
	s.kubectl("scale", "ms/llama", "--replicas=1")
	assert.Equal(t, first, s.runsOn(2), "they were woken")

	// Where it sleeps there is no room.
	s.sleepsOn(2)
	s.onOneGPUOf(2, "0")
	s.kubectl("scale", "ms/llama", "--replicas=1")
	s.runsOn(1)
}

func TestReplicaOfTwoPodsGetsNodesInOneDomain(t *testing.T) {
	s := newPool(t, nil)
	require.Equal(t, []int{2, 2}, []int{s.cluster.Nodes, s.cluster.GPUs})
	s.inDomains()
	s.onOneGPU()
	s.onOneGPUOf(2, "0")
	s.gang("llama", 1, 1, func(serving *v1alpha1.ModelServing) {
		role := &serving.Spec.Template.Roles[0]
		role.WorkerReplicas = new(int32(1))
		role.EntryTemplate = raw(t, server{app: "llama", args: []string{"--tensor-parallel-size=2"}}.template(t))
		role.WorkerTemplate = role.EntryTemplate
		serving.Spec.Template.NetworkTopology = &v1alpha1.NetworkTopology{RolePolicy: &v1alpha1.NetworkTopologyPolicy{HighestTierName: domainOfGangs}}
	})
	s.waits("llama", "2 Pods need 2 GPUs together, and the nodes that they may use have 2 free, but not so that each replica of a role is in one domain of the label "+domainOfGangs)
	s.stays("no Pod of it has a node, though two GPUs are free", func() bool { return s.waitsWhole("llama", 2) })

	s.kubectl("delete", "pod/other-gpus-node-2", "--timeout="+patience.Wait().String())
	s.replicaIsOn(2)

	// A rank that is lost comes back to the domain of the other, though another domain has more free GPUs.
	s.kubectl("delete", "pod/other-gpus", "--timeout="+patience.Wait().String())
	const worker = "llama-0-server-0-1"
	before := s.pod(worker).UID
	s.delete(worker)
	s.eventually("there is another worker", func() bool {
		uid := s.uidOf(worker)
		return uid != "" && uid != before
	})
	s.replicaIsOn(2)
}

// replicaIsOn waits until the only group of llama runs, and checks that both ranks of its replica are in the
// domain of a node.
func (s *site) replicaIsOn(node int) {
	s.t.Helper()
	serving := s.runs("llama", 1)
	domain := domainOfGangs + "=" + cluster.NodeName(node)
	require.NotNil(s.t, serving.Status.Groups[0].Gang)
	assert.Empty(s.t, serving.Status.Groups[0].Gang.Domain)
	assert.Equal(s.t, map[string]string{"server-0": domain}, serving.Status.Groups[0].Gang.RoleDomains)
	for _, pod := range s.served("llama", 2) {
		assert.Equal(s.t, cluster.NodeName(node), pod.Spec.NodeName, pod.Name)
		assert.Equal(s.t, cluster.NodeName(node), pod.Spec.NodeSelector[domainOfGangs], pod.Name)
	}
	answered, err := s.ask(s.leadsToLauncher("llama-0-server-0-0"), "org/llama")
	require.NoError(s.t, err)
	assert.Equal(s.t, "org/llama", answered)
}
