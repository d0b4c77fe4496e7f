//go:build cluster

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// gang creates a ModelServing of one group with the role server, whose Pods get nodes together. least
// of its replicas are counted.
func (s *site) gang(name string, replicas, least int32, change func(*v1alpha1.ModelServing)) {
	s.t.Helper()
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, name
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "server", Replicas: &replicas, EntryTemplate: raw(s.t, server{app: name}.template(s.t))}}
	serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"server": least}}
	if change != nil {
		change(serving)
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
}

// raw returns a Pod template as an object of the API has it.
func raw(t *testing.T, template corev1.PodTemplateSpec) *runtime.RawExtension {
	t.Helper()
	text, err := json.Marshal(template)
	require.NoError(t, err)
	return &runtime.RawExtension{Raw: text}
}

// waits waits until the only group of a ModelServing says that it waits for room.
func (s *site) waits(name, why string) {
	s.t.Helper()
	s.eventually(name+" waits: "+why, func() bool {
		groups := s.modelServing(name).Status.Groups
		return len(groups) == 1 && groups[0].Reason == v1alpha1.ReasonWaitsForGang && groups[0].Message == why
	})
}

// onNodes counts the Pods of a ModelServing that have nodes, and those that have the gate.
func (s *site) onNodes(name string) (placed, gated int) {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: name}))
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			placed++
		}
		if podmeta.AwaitsGang(&pods.Items[i]) {
			gated++
		}
	}
	return placed, gated
}

// waitsWhole reports whether all Pods of a ModelServing are there, and none has a node.
func (s *site) waitsWhole(name string, pods int) bool {
	s.t.Helper()
	placed, gated := s.onNodes(name)
	return placed == 0 && gated == pods
}

func TestGangOneGPUShortGetsNoNodeUntilThereIsRoom(t *testing.T) {
	s := newPool(t, nil)
	s.onOneGPU()
	s.onOneGPUOf(2, "0")
	s.start(server{app: "other"})
	s.served("other", 1)
	s.gang("llama", 2, 2, nil)
	const why = "2 Pods need 2 GPUs together, and the nodes that they may use have 1 free"
	s.waits("llama", why)
	assert.Contains(t, s.kubectl("get", "ms/llama", "-o", "wide"), why)
	s.stays("no Pod of it has a node", func() bool { return s.waitsWhole("llama", 2) })

	s.kubectl("delete", "pod/other", "--timeout="+patience.Wait().String())
	serving := s.runs("llama", 1)
	require.NotNil(t, serving.Status.Groups[0].Gang)
	assert.Equal(t, v1alpha1.GangPlaced, serving.Status.Groups[0].Gang.State)
	s.served("llama", 2)

	// The Pod that is not counted is Pending, and keeps nobody from serving.
	s.kubectl("patch", "ms/llama", "--type=merge", `-p={"spec":{"template":{"roles":[`+s.roleOf("llama", 3)+`]}}}`)
	s.eventually("the third Pod is Pending, without a gate", func() bool {
		var pod corev1.Pod
		err := s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "llama-0-server-2-0"}, &pod)
		return err == nil && len(pod.Spec.SchedulingGates) == 0 && pod.Status.Phase == corev1.PodPending
	})
	s.served("llama", 2)
}

// roleOf returns the only role of a ModelServing as JSON, with another number of replicas.
func (s *site) roleOf(name string, replicas int32) string {
	s.t.Helper()
	role := s.modelServing(name).Spec.Template.Roles[0]
	role.Replicas = &replicas
	text, err := json.Marshal(role)
	require.NoError(s.t, err)
	return string(text)
}

func TestOfTwoGangsWithRoomForOneExactlyOneRuns(t *testing.T) {
	s := newPool(t, nil)
	s.onOneGPU()
	s.onOneGPUOf(2, "0")
	s.gang("one", 2, 2, nil)
	s.gang("two", 2, 2, nil)
	var first string
	s.eventually("one of them runs", func() bool {
		for _, name := range []string{"one", "two"} {
			if s.modelServing(name).Status.ReadyReplicas == 1 {
				first = name
			}
		}
		return first != ""
	})
	second := map[string]string{"one": "two", "two": "one"}[first]
	s.waits(second, "2 Pods need 2 GPUs together, and the nodes that they may use have 0 free")
	s.stays("no Pod of the other has a node", func() bool { return s.waitsWhole(second, 2) })

	// The controller that follows leaves both as they are; the other runs once there is room.
	s.killController(s.controller())
	s.stays("no Pod of the other has a node", func() bool { return s.waitsWhole(second, 2) })
	assert.EqualValues(t, 1, s.modelServing(first).Status.ReadyReplicas)
	s.kubectl("delete", "ms/"+first, "--timeout="+patience.Wait().String())
	s.runs(second, 1)
}
