package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestRequesterOfAnotherNamespaceKeepsNoInstanceAwake(t *testing.T) {
	l := &launcherPod{pod: running1("ours", "launcher", podmeta.ServingContainer)}
	i := launcherapi.Instance{InstanceID: "model-1", State: "awake", Port: 40001, StateSince: now}
	carries := &decide.SPI{Proxy: requesterapi.Proxy{State: requesterapi.StateBound, ProxyConfig: requesterapi.ProxyConfig{Address: l.pod.Status.PodIP, Port: 40001}}}
	for namespace, kept := range map[string]bool{"ours": true, "theirs": false} {
		pod := running1(namespace, "req", podmeta.ServingContainer)
		w := &world{pods: map[types.UID]*corev1.Pod{pod.UID: pod}, spi: map[types.UID]*decide.SPI{pod.UID: carries}}
		assert.Equal(t, kept, w.carrier(l, i) != "", "it says that it carries traffic to the instance, from namespace %s", namespace)
	}
}
