package binding

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestARequesterThatTakesOrdersFromAnybodyIsRefusedWhereItMustNotAndAskedByTLSElse(t *testing.T) {
	open := running1("ns", "open", podmeta.ServingContainer)
	open.Annotations = map[string]string{podmeta.AnnotationLauncherConfig: "vllm", podmeta.AnnotationServerPatch: `spec: {containers: [{name: inference-server, args: [m]}]}`}
	open.Spec.Containers[0].Resources.Limits = corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(1, resource.DecimalSI)}
	trusting := open.DeepCopy()
	trusting.Name, trusting.UID = "trusting", "trusting"
	trusting.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "hotseat-ca", MountPath: "/etc/hotseat"}}
	trusting.Spec.Volumes = []corev1.Volume{{Name: "hotseat-ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hotseat-ca"}}}}}

	c := New(t.Context(), Options{RequireTLS: true}, logr.Discard())
	n, w := c.work("node-0"), &world{pods: map[types.UID]*corev1.Pod{}, asked: map[types.UID]requester{}}
	see := func(pod *corev1.Pod, record *podmeta.Binding) decide.Observation {
		read, problems := podmeta.ReadRequester(pod)
		w.pods[pod.UID], w.asked[pod.UID] = pod, requester{read, problems}
		o := decide.Observation{Record: record}
		c.observePod(t.Context(), &o, n, w, pod)
		return o
	}
	refused := see(open, nil)
	require.Len(t, refused.Problems, 1)
	assert.Contains(t, refused.Problems[0].String(), "volumeMounts: [{name: hotseat-ca, mountPath: /etc/hotseat, readOnly: true}]")
	assert.Equal(t, "10.1.0.2:8081", refused.Requester.AdminAddress)
	assert.Empty(t, see(open, &podmeta.Binding{}).Problems, "one that is bound is served until it goes")
	served := see(trusting, nil)
	assert.Empty(t, served.Problems)
	assert.Equal(t, "https://10.1.0.2:8081", served.Requester.AdminAddress)
	c.opts.RequireTLS = false
	assert.Empty(t, see(open, nil).Problems)
}
