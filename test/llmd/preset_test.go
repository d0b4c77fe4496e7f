package llmd

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/llm-d-incubation/llm-d-fast-model-actuation/api/fma/v1alpha1"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/api"
	dualpods "github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/dual-pods"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/utils"
)

var preset = []string{"--values", root + "/deploy/chart/values-llm-d.yaml", "--set", "llmD.image=registry.example/launcher:1"}

// rendered are the objects that the chart makes with the preset, by kind.
func rendered(t *testing.T, more ...string) map[string]string {
	t.Helper()
	text, err := in(".", bin.helm, slices.Concat([]string{"template", "hotseat", root + "/deploy/chart", "--namespace", "models"}, preset, more)...)
	require.NoError(t, err)
	objects := map[string]string{}
	for object := range strings.SplitSeq(text, "\n---\n") {
		var of struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(object), &of))
		assert.NotContains(t, objects, of.Kind)
		objects[of.Kind] = object
	}
	return objects
}

// launcherPod is what that community's controller makes of the preset's
// LauncherConfig, and its container that runs the launcher.
func launcherPod(t *testing.T, more ...string) (*corev1.Pod, corev1.Container) {
	t.Helper()
	var config v1alpha1.LauncherConfig
	require.NoError(t, yaml.UnmarshalStrict([]byte(rendered(t, more...)["LauncherConfig"]), &config))
	pod, _, err := utils.BuildNodeIndependentLauncherTemplate(&config)
	require.NoError(t, err)
	at, err := utils.GetInferenceServerContainerIndex(pod)
	require.NoError(t, err)
	return pod, pod.Spec.Containers[at]
}

func TestThePresetInstallsNothingOfOurController(t *testing.T) {
	_, err := in(".", bin.helm, slices.Concat([]string{"lint", "--strict", root + "/deploy/chart"}, preset)...)
	require.NoError(t, err)
	objects := rendered(t)
	for _, kind := range []string{"LauncherConfig", "ServiceAccount", "Role", "RoleBinding"} {
		assert.Contains(t, objects, kind)
	}
	assert.Len(t, objects, 4)

	said, err := in(".", bin.helm, slices.Concat([]string{"install", "hotseat", root + "/deploy/chart", "--namespace", "models", "--dry-run=client"}, preset)...)
	require.NoError(t, err)
	_, notes, found := strings.Cut(said, "NOTES:")
	require.True(t, found, said)
	assert.Contains(t, notes, "kubectl -n models get launcherconfigs.fma.llm-d.ai hotseat\n")
	assert.NotContains(t, notes, "hotseat-controller")
}

func TestThePresetIsRefusedBesideOurController(t *testing.T) {
	for value, says := range map[string]string{
		"controller.enabled=true":         "at '/controller/enabled': value must be false",
		"admissionPolicy.enabled=true":    "at '/admissionPolicy/enabled': value must be false",
		"metrics.podMonitor.enabled=true": "at '/metrics/podMonitor/enabled': value must be false",
		"launcherConfig.create=true":      "at '/launcherConfig/create': value must be false",
		"llmD.image=":                     "at '/llmD/image': minLength",
	} {
		_, err := in(".", bin.helm, slices.Concat([]string{"template", "x", root + "/deploy/chart"}, preset, []string{"--set", value})...)
		assert.ErrorContains(t, err, says, value)
	}
}

func TestTheContainerThatTheControllerAddsMayWriteOnItsPod(t *testing.T) {
	pod, _ := launcherPod(t)
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	objects := rendered(t)
	require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Role"]), &role))
	require.NoError(t, yaml.UnmarshalStrict([]byte(objects["RoleBinding"]), &binding))
	require.Len(t, pod.Spec.Containers, 2)
	assert.Equal(t, "registry.example/launcher:1", pod.Spec.Containers[1].Image, "which has its program")
	assert.Equal(t, role.Name, binding.RoleRef.Name)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.Spec.ServiceAccountName, Namespace: pod.Namespace}}, binding.Subjects)
	assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "patch"}}}, role.Rules)
}

// put replaces the value of a flag that the arguments have.
func put(t *testing.T, args []string, flag, value string) {
	t.Helper()
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag+"=") })
	require.GreaterOrEqual(t, at, 0, "%s is in %q", flag, args)
	args[at] = flag + "=" + value
}

func TestTheControllersClientDrivesALauncherOfThePreset(t *testing.T) {
	pod, container := launcherPod(t, "--set", "llmD.args={--gpus=simulated:2,--start-method=exec}", "--set", "llmD.maxInstances=1")
	assert.Equal(t, []string{"/hotseat/launcher", "init", "--", "serve"}, container.Command)
	require.Len(t, pod.Spec.InitContainers, 1)
	assert.Equal(t, []string{"/copier", "/launcher", "/hotseat"}, pod.Spec.InitContainers[0].Command)

	// The Pod's own command line, in the folders and at the address of this test.
	args := append([]string{"serve"}, container.Args...)
	address := freeAddress(t)
	put(t, args, "--listen", address)
	put(t, args, "--state-dir", t.TempDir())
	put(t, args, "--instance-host", "127.0.0.1")
	serve(t, address, append(args, "--vllm="+bin.enginesim)...)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, http.StatusOK, status(t, "http://"+address+probe.HTTPGet.Path), "the controller's probe of "+probe.HTTPGet.Path)
	}

	latencies := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "latency"}, []string{"purpose", "method", "status_code"})
	client, err := dualpods.NewLauncherClient("http://"+address, latencies)
	require.NoError(t, err)
	require.NoError(t, client.Health(t.Context()))
	empty, err := client.ListInstances(t.Context())
	require.NoError(t, err)
	assert.Zero(t, empty.TotalInstances)
	_, err = client.GetInstanceState(t.Context(), "a")
	require.Error(t, err)
	assert.True(t, dualpods.IsInstanceNotFoundError(err))

	// As the controller asks: options, a port of its choice, annotations of its own.
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	gpus := []string{"GPU-00000000-0000-0000-0000-000000000000"}
	config := dualpods.VllmConfig{
		Options: "--model org/a --gpu-memory-utilization 0.4 --port " + port, GpuUUIDs: gpus, EnvVars: map[string]string{"VLLM_SERVER_DEV_MODE": "1"},
		Annotations: map[string]string{dualpods.VllmConfigISCNameAnnotationKey: "config-a", dualpods.VllmConfigInferencePortAnnotationKey: port},
	}
	made, err := client.CreateNamedInstance(t.Context(), "a", config)
	require.NoError(t, err)
	assert.Equal(t, "a", made.InstanceID)
	state, err := client.GetInstanceState(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, config.Options, state.Options)
	assert.Equal(t, gpus, state.GpuUUIDs)
	assert.Equal(t, config.Annotations, state.Annotations)
	assert.NotEqual(t, dualpods.InstanceStatusStopped, state.Status)
	_, err = client.CreateInstance(t.Context(), dualpods.VllmConfig{Options: "--model org/b"})
	require.Error(t, err, "maxInstances is the launcher's bound too")

	engine := "http://127.0.0.1:" + port
	require.Eventually(t, func() bool { return status(t, engine+"/is_sleeping") == http.StatusOK }, patience, tick, "the engine serves")
	assert.False(t, sleeping(t, engine))
	order(t, engine+"/sleep")
	assert.True(t, sleeping(t, engine))
	order(t, engine+"/wake_up")
	assert.False(t, sleeping(t, engine))

	ids, err := client.ListInstanceIDs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, ids)
	gone, err := client.DeleteInstance(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, dualpods.InstanceStatusStopped, gone.Status)
	_, err = client.DeleteAllInstances(t.Context())
	require.NoError(t, err)
}

// sleeping asks an engine as the controller does, into its own type.
func sleeping(t *testing.T, engine string) bool {
	t.Helper()
	resp, err := http.Get(engine + "/is_sleeping")
	require.NoError(t, err)
	defer resp.Body.Close()
	var state api.SleepState
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&state))
	return state.IsSleeping
}

func order(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url, "", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, url)
}
