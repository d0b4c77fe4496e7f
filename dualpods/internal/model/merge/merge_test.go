package merge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// profiles are the ResourceProfiles of the tests.
func profiles(name string) *v1alpha1.ResourceProfile {
	of := map[string]v1alpha1.ResourceProfileSpec{
		"l4":      {LauncherConfigName: "vllm", Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
		"tpu":     {Limits: corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}, Images: map[string]v1alpha1.ImageName{"VLLM": "example.com/vllm-tpu"}},
		"cpu":     {Limits: corev1.ResourceList{"cpu": resource.MustParse("2"), "hugepages-2Mi": resource.MustParse("1Gi")}, Images: map[string]v1alpha1.ImageName{"LlamaCpp": "example.com/llama"}},
		"claimed": {LauncherConfigName: "vllm", Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, ResourceClaims: []corev1.PodResourceClaim{{Name: "device"}}},
		"mixed":   {Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("1")}},
		"bare":    {Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}
	spec, ok := of[name]
	if !ok {
		return nil
	}
	return &v1alpha1.ResourceProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// pools are the SeatPools of the tests.
func pools(name string) *v1alpha1.SeatPool {
	if name != "pool" {
		return nil
	}
	return &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SeatPoolSpec{GPUs: 2, LauncherConfigName: "seats"}}
}

func read(t *testing.T, text string) []merge.Entry {
	t.Helper()
	m := v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Name: "llama"}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &m))
	return merge.Entries(&m, profiles, pools)
}

func TestModelWithoutSpecsHasOneEntry(t *testing.T) {
	all := read(t, `spec: {url: 'hf://org/m', resourceProfile: 'l4:2', aliases: [gpt]}`)
	require.Len(t, all, 1)
	e := all[0]
	assert.Equal(t, "default", e.Name)
	assert.Equal(t, "llama-default", e.ObjectName("llama"))
	assert.Empty(t, e.Problem)
	assert.Equal(t, v1alpha1.RunsInLauncher, e.RunsIn)
	assert.Equal(t, v1alpha1.EngineVLLM, e.Settings.Engine)
	assert.Equal(t, "vllm", e.Settings.LauncherConfigName)
	assert.Equal(t, []string{"llama", "gpt"}, e.Names)
	assert.Equal(t, []int{0, 0, 100}, []int{e.Min, e.Max, e.Target})
	assert.Equal(t, []time.Duration{300 * time.Second, 600 * time.Second, 30 * time.Second}, []time.Duration{e.ScaleDownDelay, e.ScaleUpTimeout, e.UnschedulableTime})
	gpus, cpu := e.Limits()["nvidia.com/gpu"], e.Requests()["cpu"]
	assert.Equal(t, []string{"2", "1"}, []string{gpus.String(), cpu.String()})
}

func TestEntryReplacesWhatItSets(t *testing.T) {
	all := read(t, `
spec:
  url: hf://org/m
  resourceProfile: l4
  args: [--a, --b]
  env: {FOO: bar, GONE: x}
  minReplicas: 1
  maxReplicas: 9
  targetRequests: 7
  scaleDownDelaySeconds: 5
  scaleUpTimeoutSeconds: 6
  unschedulableSeconds: 7
  priorityClassName: low
  modelCache: require
specs:
- name: inherits
- name: replaces
  url: hf://org/n
  args: [--c]
  env: {FOO: baz, MORE: z}
  unsetEnv: [GONE]
  minReplicas: 0
  maxReplicas: 3
  targetRequests: 0
  scaleDownDelaySeconds: 0
  priorityClassName: high
  modelCache: "off"
- name: empties
  args: []
`)
	require.Len(t, all, 3)
	first, second, third := all[0], all[1], all[2]
	assert.Equal(t, []string{"--a", "--b"}, first.Settings.Args)
	assert.Equal(t, map[string]v1alpha1.EnvValue{"FOO": "bar", "GONE": "x"}, first.Settings.Env)
	assert.Equal(t, []int{1, 9, 7}, []int{first.Min, first.Max, first.Target})
	assert.Equal(t, []time.Duration{5 * time.Second, 6 * time.Second, 7 * time.Second}, []time.Duration{first.ScaleDownDelay, first.ScaleUpTimeout, first.UnschedulableTime})
	assert.Equal(t, []string{"low", "require"}, []string{first.Settings.PriorityClassName, first.Settings.ModelCache})

	assert.Equal(t, []string{"--c"}, second.Settings.Args, "a list replaces the whole list")
	assert.Equal(t, map[string]v1alpha1.EnvValue{"FOO": "baz", "MORE": "z"}, second.Settings.Env)
	assert.Equal(t, []int{0, 3, 0}, []int{second.Min, second.Max, second.Target}, "zero is not absent")
	assert.True(t, second.IsStandby())
	assert.Zero(t, second.ScaleDownDelay)
	assert.Equal(t, []string{"hf://org/n", "high", "off"}, []string{second.Settings.URL, second.Settings.PriorityClassName, second.Settings.ModelCache})

	assert.Empty(t, third.Settings.Args)
}

func TestHashIsOfWhatRuns(t *testing.T) {
	const base = `spec: {url: 'hf://org/m', resourceProfile: l4}`
	hash := read(t, base)[0].Hash
	assert.Len(t, hash, 12)
	for name, text := range map[string]string{
		"a number of replicas": `spec: {url: 'hf://org/m', resourceProfile: l4, minReplicas: 3, maxReplicas: 4, targetRequests: 5, scaleDownDelaySeconds: 6}`,
		"a bound of the whole": `spec: {url: 'hf://org/m', resourceProfile: l4, totalMaxReplicas: 3, features: [TextGeneration]}`,
	} {
		assert.Equal(t, hash, read(t, text)[0].Hash, name)
	}
	for name, text := range map[string]string{
		"an argument":    `spec: {url: 'hf://org/m', resourceProfile: l4, args: [--a]}`,
		"a variable":     `spec: {url: 'hf://org/m', resourceProfile: l4, env: {A: b}}`,
		"more units":     `spec: {url: 'hf://org/m', resourceProfile: 'l4:2'}`,
		"another alias":  `spec: {url: 'hf://org/m', resourceProfile: l4, aliases: [a]}`,
		"another source": `spec: {url: 'hf://org/n', resourceProfile: l4}`,
	} {
		assert.NotEqual(t, hash, read(t, text)[0].Hash, name)
	}
}

func TestEntryRunsWhereItCan(t *testing.T) {
	for name, tt := range map[string]struct {
		entry string
		want  v1alpha1.ModelRunsIn
	}{
		"vLLM on GPUs of NVIDIA":      {`url: 'hf://o/m', resourceProfile: l4`, v1alpha1.RunsInLauncher},
		"vLLM of launchers by name":   {`url: 'hf://o/m', launcherConfigName: vllm`, v1alpha1.RunsInLauncher},
		"vLLM on another accelerator": {`url: 'hf://o/m', resourceProfile: tpu`, v1alpha1.RunsInPods},
		"vLLM on two accelerators":    {`url: 'hf://o/m', resourceProfile: mixed, image: i`, v1alpha1.RunsInPods},
		"vLLM on a processor":         {`url: 'hf://o/m', resourceProfile: cpu, image: i`, v1alpha1.RunsInPods},
		"another engine on GPUs":      {`url: 'hf://o/m', engine: SGLang, resourceProfile: l4, image: i`, v1alpha1.RunsInPods},
		"Ollama from its registry":    {`url: 'ollama://llama3.2:1b', engine: OLlama, resourceProfile: cpu, image: i`, v1alpha1.RunsInPods},
		"llama-server on a processor": {`url: 'pvc://c/a/m.gguf', engine: LlamaCpp, resourceProfile: cpu`, v1alpha1.RunsInPods},
	} {
		t.Run(name, func(t *testing.T) {
			e := read(t, "spec: {"+tt.entry+"}")[0]
			assert.Equal(t, tt.want, e.RunsIn)
			assert.Empty(t, e.Problem)
		})
	}
}

func TestMistakeOfAnEntryIsItsOwn(t *testing.T) {
	all := read(t, `
spec: {url: 'hf://org/m'}
specs:
- {name: a, resourceProfile: none}
- {name: b, resourceProfile: l4}
`)
	assert.Equal(t, "there is no ResourceProfile none: create it, or name another one in resourceProfile", all[0].Problem)
	assert.Empty(t, all[1].Problem)
	for name, tt := range map[string]struct{ entry, want string }{
		"no source":                 {`resourceProfile: l4`, "there is no url"},
		"a claim for launchers":     {`url: 'pvc://c/m', resourceProfile: l4`, "url: an entry that launchers run takes models of hf://, not pvc://"},
		"vLLM from Ollama":          {`url: 'ollama://m', resourceProfile: cpu, image: i`, "url: VLLM takes models of hf:// and pvc://, not ollama://"},
		"no name of Ollama":         {`url: 'ollama://a:b:c', engine: OLlama, resourceProfile: cpu, image: i`, "names no model of Ollama's registry"},
		"a claim without a path":    {`url: 'pvc://c', resourceProfile: cpu, image: i`, "names no file or folder of a claim"},
		"a path out of the claim":   {`url: 'pvc://c/../x', resourceProfile: cpu, image: i`, "names no file or folder of a claim"},
		"no launchers":              {`url: 'hf://o/m', resourceProfile: bare`, "no launchers run it: name a LauncherConfig"},
		"neither profile nor image": {`url: 'hf://o/m'`, "no launchers run it"},
		"no image":                  {`url: 'hf://o/m', engine: SGLang, resourceProfile: cpu`, "set image, or images.SGLang in the ResourceProfile"},
		"adapters of another":       {`url: 'hf://o/m', engine: LlamaCpp, resourceProfile: cpu, adapters: [{name: x, url: 'hf://o/x'}]`, "adapters: LlamaCpp serves none"},
		"claims for launchers":      {`url: 'hf://o/m', resourceProfile: claimed`, "launchers get their GPUs by nvidia.com/gpu"},
		"a flag of ours":            {`url: 'hf://o/m', resourceProfile: l4, args: ['--served-model-name=x']`, "args: --served-model-name is decided by the controller: remove it"},
	} {
		t.Run(name, func(t *testing.T) { assert.Contains(t, read(t, "spec: {"+tt.entry+"}")[0].Problem, tt.want) })
	}
}

func TestEntryWithSeatsHasThoseOfItsPool(t *testing.T) {
	all := read(t, `
spec: {url: 'hf://org/m', resourceProfile: l4, launcherConfigName: vllm, priorityClassName: low}
specs:
- {name: seats, seatPool: pool}
- {name: missing, seatPool: gone}
- {name: pods}
`)
	seats, missing, pods := all[0], all[1], all[2]
	assert.Equal(t, []string{"pool", "seats", ""}, []string{seats.Pool, seats.Settings.LauncherConfigName, seats.Settings.PriorityClassName}, "what spec says of Pods is not for seats")
	assert.Empty(t, seats.Problem)
	assert.Equal(t, v1alpha1.RunsInSeats, seats.RunsIn)
	assert.Empty(t, seats.Accelerators(), "a seat holds them")
	assert.Equal(t, "there is no SeatPool gone: create it, or name another one in seatPool", missing.Problem)
	assert.Empty(t, pods.Problem, "its Pods are its own")
	assert.NotEqual(t, seats.Hash, pods.Hash)

	other := read(t, `{spec: {url: 'hf://org/m', engine: SGLang}, specs: [{name: a, seatPool: pool}]}`)[0]
	assert.Contains(t, other.Problem, "the launchers of seats run VLLM, not SGLang")
}
