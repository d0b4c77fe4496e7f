package launcherpool

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var image = Image{Name: "registry.example/launcher:v1", Port: 8001}

// configOf returns a LauncherConfig named vllm with the spec, which is YAML.
func configOf(t *testing.T, spec string) *v1alpha1.LauncherConfig {
	t.Helper()
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "config-uid", Generation: 1}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &config.Spec))
	return config
}

const plain = `
podTemplate:
  spec:
    containers:
    - name: inference-server
      image: vllm/vllm-openai:v0.11.0
`

// rich is a template that sets most of the fields that a template may set.
const rich = `
maxInstances: 8
budgets: {maxSleepersPerGPU: 3, maxSleeperBytesPerGPU: 4Gi, maxHostSleeperBytes: 200Gi, minResidency: 1m30s}
population: {mode: OnDemand, nodeSelector: {gpu: h100}}
podTemplate:
  metadata:
    labels: {team: inference, hotseat.dev/launcher-config: another}
    annotations: {note: kept, hotseat.dev/template-hash: forged}
  spec:
    runtimeClassName: nvidia
    nodeSelector: {zone: a}
    tolerations: [{key: nvidia.com/gpu, operator: Exists}]
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: rack, operator: In, values: [r1]}]
          - matchExpressions: [{key: rack, operator: In, values: [r2]}]
    initContainers: [{name: own, image: busybox}]
    containers:
    - name: sidecar
      image: example/sidecar
    - name: inference-server
      image: vllm/vllm-openai:v0.11.0
      args: [--log-level=debug, --env-file-dirs=/secrets]
      env: [{name: HF_HOME, value: /models}]
      ports: [{name: api, containerPort: 8001}]
      readinessProbe: {tcpSocket: {port: 8001}}
      volumeMounts: [{name: models, mountPath: /models}, {name: memory, mountPath: /dev/shm/}, {name: kept, mountPath: /var/lib/hotseat/state}]
    volumes:
    - {name: models, hostPath: {path: /srv/models}}
    - {name: memory, emptyDir: {medium: Memory, sizeLimit: 10Gi}}
    - {name: kept, hostPath: {path: /srv/state}}
`

func TestTemplateMatchesItsGoldenFile(t *testing.T) {
	for name, spec := range map[string]string{"plain": plain, "rich": rich} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, spec)
			made, problems := Template(config, image, secretName(config), nil, "")
			require.Empty(t, problems)
			golden(t, name+".yaml", made)
			golden(t, name+"-on-demand.yaml", podOn(config, made, "node-1"))
			again, _ := Template(config, image, secretName(config), nil, "")
			assert.Equal(t, made, again)
		})
	}
}

// cached is a LauncherConfig whose launchers have a model store.
const cached = "modelCache: {nodeGroup: gpu-nodes}\n" + plain

func TestTemplateHasTheFolderAndLimitsOfItsGroup(t *testing.T) {
	group := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu-nodes"}}
	require.NoError(t, yaml.UnmarshalStrict([]byte("path: /srv/models\nstorageLimit: 500Gi\nperNode: {streams: 8, bytesPerSecond: 100Mi}\ntolerations: [{key: models, operator: Exists}, {key: nvidia.com/gpu, operator: Exists}]"), &group.Spec))
	config := configOf(t, cached)
	made, problems := Template(config, image, secretName(config), group, "")
	require.Empty(t, problems)
	golden(t, "models.yaml", made)
	without, _ := Template(configOf(t, plain), image, secretName(config), nil, "")
	assert.NotContains(t, without.Labels, podmeta.LabelModelNodeGroup)
}

func TestTemplateMountsTheNamedClaims(t *testing.T) {
	config := configOf(t, "modelCache: {claims: [llama, team.qwen]}\n"+plain)
	made, problems := Template(config, image, secretName(config), nil, "")
	require.Empty(t, problems)
	golden(t, "claims.yaml", made)
	api := fake.NewClientBuilder().WithObjects(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: "llama"}}).Build()
	missing, err := New(Options{API: api}).missingClaims(t.Context(), config)
	require.NoError(t, err)
	require.Len(t, missing, 1)
	assert.Equal(t, "spec.modelCache.claims[1]", missing[0].Field)
	assert.Contains(t, missing[0].Message, "there is no PersistentVolumeClaim team.qwen")
}

func golden(t *testing.T, name string, made any) {
	t.Helper()
	got, err := yaml.Marshal(made)
	require.NoError(t, err)
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "go test -update writes the golden files")
}

func TestForbiddenFieldsOfATemplateAreNamed(t *testing.T) {
	in := func(line string) string { return plain + "      " + line + "\n" }
	pod := func(line string) string { return plain + "    " + line + "\n" }
	for name, c := range map[string]struct{ spec, field, says string }{
		"it has a command":                                      {in("command: [vllm, serve]"), "spec.podTemplate.spec.containers[inference-server].command", "remove it"},
		"it sets where the launcher listens":                    {in("args: [--listen, 127.0.0.1:9]"), "spec.podTemplate.spec.containers[inference-server].args", "--listen is set by the controller"},
		"it sets a budget":                                      {in("args: [--budgets-max-instances=3]"), "spec.podTemplate.spec.containers[inference-server].args", "spec.maxInstances"},
		"it hides GPUs":                                         {in("env: [{name: NVIDIA_VISIBLE_DEVICES, value: '0'}]"), "spec.podTemplate.spec.containers[inference-server].env[NVIDIA_VISIBLE_DEVICES]", "every GPU"},
		"its ranks listen at loopback, by a variable":           {in("env: [{name: HOTSEAT_RANK_ADDRESS, value: 127.0.0.1}]"), "spec.podTemplate.spec.containers[inference-server].env[HOTSEAT_RANK_ADDRESS]", "127.0.0.1 is an address that other launchers cannot reach"},
		"its ranks listen at loopback, by a flag":               {in("args: ['--rank-address=::1']"), "spec.podTemplate.spec.containers[inference-server].args", "::1 is an address that other launchers cannot reach"},
		"its ranks listen at loopback, by a flag and its value": {in("args: [--rank-address, localhost]"), "spec.podTemplate.spec.containers[inference-server].args", "localhost is an address that other launchers cannot reach"},
		"it asks for GPUs":                                      {in("resources: {limits: {nvidia.com/gpu: 1}}"), "spec.podTemplate.spec.containers[inference-server].resources", "remove that"},
		"it mounts over the program":                            {in("volumeMounts: [{name: x, mountPath: /hotseat/}]"), "spec.podTemplate.spec.containers[inference-server].volumeMounts[/hotseat/]", "another path"},
		"a volume has a reserved name":                          {pod("volumes: [{name: hotseat-tls}]"), "spec.podTemplate.spec.volumes[hotseat-tls]", "choose another"},
		"a container has a reserved name":                       {pod("initContainers: [{name: copy-launcher}]"), "spec.podTemplate.spec.containers[copy-launcher]", "choose another"},
		"it is not restarted":                                   {pod("restartPolicy: Never"), "spec.podTemplate.spec.restartPolicy", "remove it"},
		"it names a node":                                       {pod("nodeName: node-1"), "spec.podTemplate.spec.nodeName", "nodeSelector"},
		"it contradicts its population":                         {"population: {nodeSelector: {zone: b}}" + pod("nodeSelector: {zone: a}"), "spec.population.nodeSelector[zone]", "no node has both"},
		"it sets the model store":                               {in("args: [--model-store=/m]"), "spec.podTemplate.spec.containers[inference-server].args", "set by spec.modelCache"},
		"it sets the model claims":                              {in("args: [--model-claims=a=/b]"), "spec.podTemplate.spec.containers[inference-server].args", "set by spec.modelCache.claims"},
		"a volume is named like that of a claim":                {pod("volumes: [{name: hotseat-claim-3}]"), "spec.podTemplate.spec.volumes[hotseat-claim-3]", "choose another"},
		"a volume is named like that of the models":             {pod("volumes: [{name: hotseat-models}]"), "spec.podTemplate.spec.volumes[hotseat-models]", "choose another"},
		"it is missing":                                         {"maxInstances: 1", "spec.podTemplate", "is missing"},
		"the serving container is missing":                      {"podTemplate: {spec: {containers: [{name: x, image: example}]}}", "spec.podTemplate.spec.containers", "has no container inference-server"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Template(configOf(t, c.spec), image, "token", nil, "")
			require.Len(t, problems, 1)
			assert.Equal(t, c.field, problems[0].Field)
			assert.Contains(t, problems[0].Message, c.says)
		})
	}
}

func TestEachChangeOfAPodChangesTheHash(t *testing.T) {
	hash := func(change func(*v1alpha1.LauncherConfig), image Image) string {
		config := configOf(t, plain)
		change(config)
		made, problems := Template(config, image, secretName(config), nil, "")
		require.Empty(t, problems)
		return made.Annotations[podmeta.AnnotationTemplateHash]
	}
	none := func(*v1alpha1.LauncherConfig) {}
	before := hash(none, image)
	assert.Equal(t, before, hash(none, image))
	assert.Equal(t, before, hash(func(c *v1alpha1.LauncherConfig) { c.Generation, c.Labels = 2, map[string]string{"a": "b"} }, image))
	for what, other := range map[string]string{
		"the launcher":      hash(none, Image{Name: "registry.example/launcher:v2", Port: 8001}),
		"the port":          hash(none, Image{Name: image.Name, Port: 9001}),
		"the image of vLLM": hash(func(c *v1alpha1.LauncherConfig) { *c = *configOf(t, strings.Replace(plain, "v0.11.0", "v0.12.0", 1)) }, image),
		"a budget": hash(func(c *v1alpha1.LauncherConfig) {
			c.Spec.Budgets.MinResidency = &metav1.Duration{Duration: time.Second}
		}, image),
		"the key":           hash(func(c *v1alpha1.LauncherConfig) { c.Annotations = map[string]string{AnnotationTokenRotation: "2"} }, image),
		"the node selector": hash(func(c *v1alpha1.LauncherConfig) { c.Spec.Population.NodeSelector = map[string]string{"gpu": "a100"} }, image),
	} {
		assert.NotEqual(t, before, other, what)
	}
}

func TestAllocationCheckChangesNoLauncher(t *testing.T) {
	before, problems := Template(configOf(t, plain), image, "token", nil, "")
	require.Empty(t, problems)
	after, problems := Template(configOf(t, "allocationCheck: {mode: None, kubeletDir: /var/lib/k0s/kubelet}\n"+plain), image, "token", nil, "")
	require.Empty(t, problems)
	assert.Equal(t, before, after)
	assert.Len(t, after.Spec.Containers, 1)
	for _, v := range after.Spec.Volumes {
		assert.Nil(t, v.HostPath, v.Name)
	}
}

func TestNodeOfReadsTheNodeFromTheAffinity(t *testing.T) {
	config := configOf(t, rich)
	made, problems := Template(config, image, "token", nil, "")
	require.Empty(t, problems)
	pod := podOn(config, made, "node-1")
	assert.Equal(t, "node-1", NodeOf(pod))
	pod.Spec.NodeName = "node-2"
	assert.Equal(t, "node-2", NodeOf(pod))
	assert.Empty(t, NodeOf(&corev1.Pod{}))
	assert.NotEqual(t, podOn(config, made, "node-1").Name, podOn(config, made, "node-2").Name)
}

func TestLongListOfNodesIsShortened(t *testing.T) {
	assert.Empty(t, Listed(nil, 10))
	assert.Equal(t, "a, b", Listed([]string{"a", "b"}, 10))
	assert.Equal(t, "node-1 and 2 more", Listed([]string{"node-1", "node-2", "node-3"}, 20))
}
