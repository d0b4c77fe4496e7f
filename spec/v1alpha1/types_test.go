package v1alpha1_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestAPodTemplateIsReadOrSaidToBeNone(t *testing.T) {
	for name, tt := range map[string]struct {
		template string
		want     []string
	}{
		"one with a container inference-server": {`{metadata: {labels: {a: b}}, spec: {containers: [{name: inference-server, image: x}]}}`, nil},
		"GPUs of zero":                          {`{spec: {containers: [{name: inference-server, image: x, resources: {limits: {nvidia.com/gpu: "0"}}}]}}`, nil},
		"nothing":                               {``, []string{"spec.podTemplate: is missing: give a Pod template with a container inference-server"}},
		"an empty one":                          {`{}`, []string{"spec.podTemplate.spec.containers: has no container inference-server"}},
		"containers that are none": {`{spec: {containers: none}}`, []string{
			"spec.podTemplate: is not a valid Pod template: json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
		}},
		"a field that no Pod template has": {`{spec: {containers: [{name: inference-server, image: x, imagePolicy: Never}]}}`, []string{
			`spec.podTemplate: is not a valid Pod template: unknown field "spec.containers[0].imagePolicy"`,
		}},
		"a quantity that is none": {`{spec: {containers: [{name: inference-server, image: x, resources: {limits: {cpu: much}}}]}}`, []string{
			"spec.podTemplate: is not a valid Pod template: ",
		}},
		"no image": {`{spec: {containers: [{name: inference-server}]}}`, []string{
			"spec.podTemplate.spec.containers[inference-server].image: is missing: name the image that has vLLM",
		}},
		"GPUs that nobody else could have": {`{spec: {containers: [{name: inference-server, image: x, resources: {limits: {nvidia.com/gpu: 8}, requests: {nvidia.com/gpu: 8}}}]}}`, []string{
			"spec.podTemplate.spec.containers[inference-server].resources: requests 8 of nvidia.com/gpu: remove that; a launcher sees every GPU of its node",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := v1alpha1.LauncherConfig{}
			if tt.template != "" {
				raw, err := yaml.YAMLToJSON([]byte(tt.template))
				require.NoError(t, err)
				config.Spec.PodTemplate.Raw = raw
			}
			_, problems := config.Template()
			require.Len(t, problems, len(tt.want), "%v", problems)
			for i, want := range tt.want {
				assert.Contains(t, problems[i].String(), want)
			}
		})
	}
}

func TestEntryTemplateIsReadOrItsMistakesAreTold(t *testing.T) {
	const field = "spec.template.roles[prefill].entryTemplate"
	for name, tt := range map[string]struct {
		template string
		want     []string
	}{
		"a requester":           {`{metadata: {annotations: {dual-pod.llm-d.ai/inference-server-config: llama}}, spec: {containers: [{name: inference-server, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}`, nil},
		"a Pod without GPUs":    {`{metadata: {labels: {app: router, app.kubernetes.io/component: router}}, spec: {containers: [{name: router, image: x}]}}`, nil},
		"an empty one":          {`{}`, []string{field + ".spec.containers: has no container: add one"}},
		"containers as a word":  {`{spec: {containers: none}}`, []string{field + ": is not a valid Pod template: json: cannot unmarshal string"}},
		"an unknown field":      {`{spec: {containers: [{name: a, imagePolicy: Never}]}}`, []string{field + `: is not a valid Pod template: unknown field "spec.containers[0].imagePolicy"`}},
		"GPUs without a server": {`{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}`, []string{field + ".metadata.annotations: do not say which server runs on the GPUs"}},
		"a server without GPUs": {`{metadata: {annotations: {dual-pods.llm-d.ai/server-patch: x}}, spec: {containers: [{name: a}]}}`, []string{field + ".spec.containers: request no nvidia.com/gpu, and an annotation asks for a server"}},
		"a record": {`{metadata: {annotations: {dual-pod.llm-d.ai/binding.a: "{}"}}, spec: {containers: [{name: a}]}}`, []string{
			field + ".metadata.annotations[dual-pod.llm-d.ai/binding.a]: is the controller's to write: remove it",
		}},
		"what happens at an exit": {`{metadata: {annotations: {hotseat.dev/on-exit: Keep}}, spec: {containers: [{name: a}]}}`, []string{
			field + ".metadata.annotations: have hotseat.dev/on-exit, which is the controller's to add: remove it, and set spec.recoveryPolicy",
		}},
		"the gate of gangs": {`{spec: {schedulingGates: [{name: hotseat.dev/placement}, {name: hotseat.dev/gang}], containers: [{name: a}]}}`, []string{
			field + ".spec.schedulingGates: have hotseat.dev/gang, which is the controller's to add: remove it, and set spec.template.gangPolicy",
		}},
		"the labels of a launcher": {`{metadata: {labels: {app.kubernetes.io/component: launcher, hotseat.dev/launcher-config: x}}, spec: {containers: [{name: a}]}}`, []string{
			field + ".metadata.labels[app.kubernetes.io/component]: is the controller's to write: remove it",
			field + ".metadata.labels[hotseat.dev/launcher-config]: is the controller's to write: remove it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(tt.template))
			require.NoError(t, err)
			role := v1alpha1.ServingRole{Name: "prefill", EntryTemplate: &runtime.RawExtension{Raw: raw}}
			_, problems := role.EntryPodTemplate()
			require.Len(t, problems, len(tt.want), "%v", problems)
			for i, want := range tt.want {
				assert.Contains(t, problems[i].String(), want)
			}
		})
	}
}

// TestEveryObjectThatIsTakenIsReadByTheTypes holds the types against the
// schema: an object that the API server takes must never break a list or a
// watch of those who read it.
func TestEveryObjectThatIsTakenIsReadByTheTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	text, err := os.ReadFile("testdata/validation.yaml")
	require.NoError(t, err)
	var cases []struct {
		Name    string
		Object  json.RawMessage
		Message string
	}
	require.NoError(t, yaml.Unmarshal(text, &cases))
	read := 0
	for _, tt := range cases {
		if tt.Message != "" {
			continue
		}
		_, _, err := decoder.Decode(tt.Object, nil, nil)
		assert.NoError(t, err, tt.Name)
		read++
	}
	assert.Positive(t, read)
}
