package placement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestSleepersOfAPodAreThoseOnFreeGPUs(t *testing.T) {
	pod, wrong, ungated := gatedPod("r"), gatedPod("wrong"), gatedPod("promised")
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.GateGang}} // not that of placement
	wrong.Annotations = nil
	wants, problems := form.FromConfig(pod, serverConfig())
	require.Empty(t, problems)
	on, problems := wants.On(&launcherPod("l", "n", 0).Spec)
	require.Empty(t, problems)
	// asleep returns the view of a launcher that has an instance of the model on each GPU.
	asleep := func(state launcher.State, gpus ...string) nodeview.View {
		all := map[string]launcherapi.Instance{}
		for _, uuid := range gpus {
			id := form.InstanceID(on, []string{uuid})
			all[id] = launcherapi.Instance{InstanceID: id, State: string(state), GPUUUIDs: []string{uuid}}
		}
		return nodeview.View{Connected: true, Instances: all}
	}
	ungated.Spec.SchedulingGates = nil
	ungated.Annotations[podmeta.AnnotationPlacement] = podmeta.Placement{Launcher: "l3", Instance: form.InstanceID(on, []string{"c0"}), Since: now}.Encode()
	silent := asleep(launcher.Sleeping, "e0")
	silent.Connected = false
	c := newCluster(t, interceptor.Funcs{}, views{
		"l1": asleep(launcher.Sleeping, "a0", "a1"), "l2": asleep(launcher.Awake, "b0"), "l3": asleep(launcher.Sleeping, "c0"), "l4": silent,
	}, pod, wrong, ungated, serverConfig(), node("n1"), node("n2"), node("n3"), node("n4"),
		launcherPod("l1", "n1", time.Hour), launcherPod("l2", "n2", time.Hour), launcherPod("l3", "n3", time.Hour), launcherPod("l4", "n4", time.Hour))
	found, err := NewSleepers(c.opts).Of(t.Context(), []*corev1.Pod{pod, wrong})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.ElementsMatch(t, []Asleep{{"n1", []string{"a0"}}, {"n1", []string{"a1"}}}, found[types.UID("r")])
}
