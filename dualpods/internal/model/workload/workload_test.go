package workload_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model has an entry of each kind.
const model = `
metadata: {name: llama-3.1, namespace: team, uid: u-1}
spec:
  env: {B: "2", A: "1"}
  aliases: [gpt-4o]
  args: [--max-model-len=512]
specs:
- {name: gpu, url: 'hf://org/m', resourceProfile: 'l4:2', modelCache: require, priorityClassName: high}
- {name: direct, url: 'hf://org/m', launcherConfigName: vllm}
- {name: seats, url: 'hf://org/m', seatPool: pool}
- {name: tpu, url: 'hf://org/m', resourceProfile: tpu}
- {name: cpu, url: 'pvc://models/tiny/m.gguf', engine: LlamaCpp, resourceProfile: cpu, targetRequests: 0, minReplicas: 1}
- {name: ollama, url: 'ollama://llama3.2:1b', engine: OLlama, resourceProfile: cpu, args: [-c, '4096']}
- {name: sg, url: 'hf://org/m', engine: SGLang, resourceProfile: cpu, image: example.com/sglang}
- {name: dra, url: 'hf://org/m', resourceProfile: dra}
`

func TestObjectsOfEachKindOfEntry(t *testing.T) {
	limits := func(name corev1.ResourceName, n string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(n)}
	}
	profiles := map[string]v1alpha1.ResourceProfileSpec{
		"l4":  {LauncherConfigName: "vllm", Limits: limits("nvidia.com/gpu", "1"), Requests: limits("cpu", "4"), NodeSelector: map[string]string{"gpu": "l4"}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}},
		"tpu": {Limits: limits("google.com/tpu", "4"), Images: map[string]v1alpha1.ImageName{"VLLM": "example.com/vllm-tpu"}},
		"dra": {ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: new("one")}}, Images: map[string]v1alpha1.ImageName{"VLLM": "example.com/vllm"}},
		"cpu": {Limits: limits("memory", "2Gi"), Requests: limits("cpu", "500m"), Images: map[string]v1alpha1.ImageName{"LlamaCpp": "example.com/llama", "OLlama": "example.com/llama"}},
	}
	m := v1alpha1.Model{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(model), &m))
	entries := merge.Entries(&m, func(name string) *v1alpha1.ResourceProfile {
		spec := profiles[name]
		return &v1alpha1.ResourceProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}, func(name string) *v1alpha1.SeatPool {
		return &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SeatPoolSpec{LauncherConfigName: "seats"}}
	})
	var text []byte
	add := func(o any) {
		of, err := yaml.Marshal(o)
		require.NoError(t, err)
		text = append(append(text, "---\n"...), of...)
	}
	for i := range entries {
		e := &entries[i]
		require.Empty(t, e.Problem)
		if e.RunsIn.HasLauncher() {
			add(workload.Config(&m, e))
		}
		if e.Pool != "" {
			continue // its Pods are the pool's
		}
		add(workload.Deployment(&m, e, workload.Images{Requester: "example.com/requester", Fetch: "example.com/launcher"}, 2))
	}
	const golden = "testdata/objects.yaml"
	if *update {
		require.NoError(t, os.WriteFile(golden, text, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text))
}
