package form

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sourceOf has an InferenceServerConfig named llama. Reads may fail.
func sourceOf(t *testing.T, fails error) Source {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama"}}
	config.Spec.LauncherConfigName = "vllm"
	config.Spec.ModelServerConfig = v1alpha1.ModelServerConfig{Port: 8000, Args: []string{"org/llama"}}
	get := func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
		return errors.Join(fails, api.Get(ctx, key, into, opts...))
	}
	if fails == nil {
		get = nil
	}
	return Source{API: fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build()}
}

// annotated is a requester of namespace ns on a node, with that annotation alone.
func annotated(t *testing.T, key, value string) *corev1.Pod {
	t.Helper()
	pod := requester(t)
	pod.Namespace, pod.Annotations, pod.Spec.NodeName = "ns", map[string]string{key: value}, "node-0"
	return pod
}

func TestRequesterAsksByAPatchOrAConfiguration(t *testing.T) {
	const patch, config = podmeta.AnnotationServerPatch, podmeta.AnnotationInferenceServerConfig
	const image = "spec: {containers: [{name: inference-server, image: 'vllm:1', args: [m]}]}"
	named := &dualpods.LauncherNeed{Namespace: "ns", Node: "node-0", Config: "vllm"}
	for name, c := range map[string]struct {
		key, value string
		args       []string
		wrong      podmeta.Kind
		says       string
		need       *dualpods.LauncherNeed
	}{
		"it names a configuration":            {config, "llama", []string{"org/llama"}, "", "", named},
		"it names one that does not exist":    {config, "none", nil, podmeta.Missing, "metadata.annotations[dual-pod.llm-d.ai/inference-server-config]: there is no InferenceServerConfig none in namespace ns: create it, or name another one", nil},
		"its patch names an image":            {patch, image, []string{"m"}, "", "", &dualpods.LauncherNeed{Namespace: "ns", Node: "node-0", Image: "vllm:1"}},
		"its patch is wrong":                  {patch, "spec: [", nil, podmeta.Invalid, "is no YAML", nil},
		"it asks for nothing that is a model": {patch, "spec: {}", nil, podmeta.Invalid, "is the requester's own", nil},
		"its own annotations are wrong":       {podmeta.AnnotationLauncherConfig, "vllm", nil, podmeta.Invalid, "one of them says which inference server is wanted", nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := annotated(t, c.key, c.value)
			wanted, problems, err := sourceOf(t, nil).Read(t.Context(), pod)
			require.NoError(t, err)
			if c.wrong == "" {
				assert.Empty(t, problems)
				assert.Equal(t, c.args, wanted.Args)
			} else if assert.NotEmpty(t, problems) {
				assert.Equal(t, c.wrong, problems[0].Kind)
				assert.Contains(t, podmeta.Join(problems), c.says)
			}
			need, err := sourceOf(t, nil).Need(t.Context(), pod)
			require.NoError(t, err)
			assert.Equal(t, c.need, need)
		})
	}
}

func TestConfigurationThatCannotBeReadIsNotMissing(t *testing.T) {
	source := sourceOf(t, errors.New("no cache"))
	pod := annotated(t, podmeta.AnnotationInferenceServerConfig, "llama")
	_, problems, err := source.Read(t.Context(), pod)
	assert.ErrorContains(t, err, "cannot read InferenceServerConfig llama: no cache")
	assert.Empty(t, problems)
	_, err = source.Need(t.Context(), pod)
	assert.ErrorContains(t, err, "no cache", "a launcher that it may need stays")
}
