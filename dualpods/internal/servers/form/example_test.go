package form

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestRequesterOfTheLLMDCommunityAsksForWhatLaunchersGive(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/llm-d/requester.yaml")
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(text, &pod))
	who, problems := podmeta.ReadRequester(&pod)
	require.Empty(t, problems)
	assert.EqualValues(t, 8082, who.AdminPort)
	form, problems := FromPatch(&pod, who.Patch)
	require.Empty(t, problems)
	assert.Equal(t, "hotseat.local/launcher:dev", form.Image)
	assert.EqualValues(t, 8000, form.Port)
	assert.Equal(t, 1, form.GPUs)
	assert.Contains(t, form.Args, "--model=ibm-granite/granite-3.3-2b-instruct")
}

func TestPatchMakesTheEngineOfTheContainerBesideASidecar(t *testing.T) {
	pod := requester(t)
	program := pod.Spec.Containers[0]
	program.Name, program.RestartPolicy = podmeta.SidecarContainer, new(corev1.ContainerRestartPolicyAlways)
	program.Ports = append(program.Ports, corev1.ContainerPort{Name: "http", ContainerPort: 8005})
	pod.Spec.InitContainers = []corev1.Container{program}
	pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "hotseat/requester:1", Args: []string{"wait"}, Env: []corev1.EnvVar{{Name: "A", Value: "of the engine"}}}}
	form, problems := FromPatch(pod, serving(`image: "vllm:1", args: [m]`))
	require.Empty(t, problems)
	assert.Equal(t, Form{
		LauncherConfig: "vllm", Args: []string{"m"}, Env: map[string]string{"A": "of the engine"}, Image: "vllm:1",
		Port: 8005, GPUs: 1,
	}, form)
	_, problems = FromPatch(pod, serving(`args: [m, --port=8080]`))
	holds(t, podmeta.Invalid, []string{c + "ports: 8080 is what the requester's own probes ask"}, problems)
	_, problems = FromPatch(pod, serving(`args: [m], resources: {limits: {nvidia.com/gpu: 2}}`))
	holds(t, podmeta.Invalid, []string{c + "resources.limits[nvidia.com/gpu]: 2 in the patch, and 1 on the requester, which holds them"}, problems)
	_, problems = FromPatch(pod, "spec: {initContainers: [{name: requester, image: other}], containers: [{name: inference-server, args: [m]}]}")
	holds(t, podmeta.LauncherCannotGive, []string{"spec.initContainers[requester]: an engine has no containers beside it"}, problems)
}

func TestExampleWithASidecarAsksForWhatLaunchersGive(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/dual-pods/sidecar.yaml")
	require.NoError(t, err)
	_, text, _ = bytes.Cut(text, []byte("\n---\n"))
	var deployment appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict(text, &deployment))
	pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
	who, problems := podmeta.ReadRequester(pod)
	require.Empty(t, problems)
	assert.True(t, who.TLS)
	form, problems := FromPatch(pod, who.Patch)
	require.Empty(t, problems)
	assert.EqualValues(t, 8000, form.Port)
	assert.Equal(t, 1, form.GPUs)
	assert.Equal(t, []string{"org/model-d", "--gpu-memory-utilization=0.4"}, form.Args)
}
