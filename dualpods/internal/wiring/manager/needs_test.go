package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestNeedIsReadFromThePatchOrTheConfiguration(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama"}}
	config.Spec.LauncherConfigName = "vllm"
	config.Spec.ModelServerConfig = v1alpha1.ModelServerConfig{Port: 8000, Args: []string{"org/llama"}}
	read := readNeed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build())
	named := &dualpods.LauncherNeed{Namespace: "ns", Node: "node-0", Config: "vllm"}
	for name, c := range map[string]struct {
		annotation, value string
		need              *dualpods.LauncherNeed
	}{
		"it names a configuration":            {podmeta.AnnotationInferenceServerConfig, "llama", named},
		"it names one that does not exist":    {podmeta.AnnotationInferenceServerConfig, "none", nil},
		"its patch names an image":            {podmeta.AnnotationServerPatch, "spec: {containers: [{name: inference-server, image: 'vllm:1', args: [m]}]}", &dualpods.LauncherNeed{Namespace: "ns", Node: "node-0", Image: "vllm:1"}},
		"its patch is wrong":                  {podmeta.AnnotationServerPatch, "spec: [", nil},
		"it asks for nothing that is a model": {podmeta.AnnotationServerPatch, "spec: {}", nil},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", Annotations: map[string]string{c.annotation: c.value}}}
		pod.Spec.NodeName = "node-0"
		pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "requester", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")},
		}}}
		need, err := read(t.Context(), pod)
		require.NoError(t, err, name)
		assert.Equal(t, c.need, need, name)
	}
}
