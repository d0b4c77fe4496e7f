package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestAnInstanceThatNobodyIsBoundToIsPutToRest(t *testing.T) {
	ours := map[string]string{podmeta.AnnotationMadeFor: "ns/req"}
	for _, e := range []struct {
		i  launcherapi.Instance
		do Action
	}{
		{launcherapi.Instance{State: "awake", Annotations: ours}, Sleep},
		{launcherapi.Instance{State: "awake", Annotations: ours, SwapID: "s"}, Nothing},
		{launcherapi.Instance{State: "awake"}, Nothing},
		{launcherapi.Instance{State: "starting", Annotations: ours}, DeleteInstance},
		{launcherapi.Instance{State: "starting", Annotations: ours, SwapID: "s"}, DeleteInstance},
		{launcherapi.Instance{State: "failed", Annotations: ours}, DeleteInstance},
		{launcherapi.Instance{State: "sleeping", Annotations: ours}, Nothing},
		{launcherapi.Instance{State: "falling_asleep", Annotations: ours}, Nothing},
	} {
		assert.Equal(t, e.do, DecideStray(e.i, false).Do, e.i)
	}
	assert.Equal(t, DeleteInstance, DecideStray(launcherapi.Instance{State: "awake", Annotations: ours}, true).Do, "it was told to sleep in vain")
	assert.Equal(t, Nothing, DecideStray(launcherapi.Instance{State: "awake"}, true).Do)
}

func TestRequesterOfAnotherNamespaceKeepsNoInstanceAwake(t *testing.T) {
	l := &launcherPod{pod: running1("ours", "launcher", podmeta.ServingContainer)}
	i := launcherapi.Instance{InstanceID: "model-1", State: "awake", Port: 40001, StateSince: now}
	carries := &SPI{Proxy: requesterapi.Proxy{State: requesterapi.StateBound, ProxyConfig: requesterapi.ProxyConfig{Address: l.pod.Status.PodIP, Port: 40001}}}
	for namespace, kept := range map[string]bool{"ours": true, "theirs": false} {
		pod := running1(namespace, "req", podmeta.ServingContainer)
		w := &world{pods: map[types.UID]*corev1.Pod{pod.UID: pod}, spi: map[types.UID]*SPI{pod.UID: carries}}
		assert.Equal(t, kept, w.carrier(l, i) != "", "it says that it carries traffic to the instance, from namespace %s", namespace)
	}
}
