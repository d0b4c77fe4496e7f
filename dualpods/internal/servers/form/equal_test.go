package form

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func readConfig(tb testing.TB, text string) *v1alpha1.InferenceServerConfig {
	tb.Helper()
	config := &v1alpha1.InferenceServerConfig{}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(text), config))
	return config
}

func TestAPatchAndTheEquivalentConfigurationGiveTheSameForm(t *testing.T) {
	for name, tt := range map[string]struct{ patch, config string }{
		"arguments by options": {
			serving(`command: [vllm, serve], args: [org/m, --port=8005, --hf-overrides, '{"a":"b"}', --max-model-len, "10"]`),
			`spec: {launcherConfigName: vllm, modelServerConfig: {port: 8005, options: 'org/m --hf-overrides {"a":"b"} --max-model-len 10'}}`,
		},
		"arguments by a list, and the image": {
			serving(`image: "vllm:1", command: [sh, -c, "exec vllm serve 'org/m' --host 0.0.0.0 --seed 1"]`),
			`spec: {launcherConfigName: vllm, modelServerConfig: {port: 8000, args: [org/m, --seed, "1"]}}`,
		},
		"environment, labels and annotations": {
			`metadata: {labels: {model: m, app: other}, annotations: {hotseat.dev/pinned: "true"}}
spec: {containers: [{name: inference-server, args: [m], ports: [{containerPort: 9000}], env: [{name: B, value: ""}, {name: A, value: x}]}]}`,
			`spec:
  launcherConfigName: vllm
  modelServerConfig:
    port: 9000
    options: m
    env: [{name: A, value: x}, {name: B}]
    labels: {model: m, app: other}
    annotations: {hotseat.dev/pinned: "true"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			launcher := &corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm:1"}}}
			pod := requester(t)
			pod.Annotations[podmeta.AnnotationModelCache] = "require"
			fromPatch, problems := FromPatch(pod, tt.patch)
			assert.Empty(t, problems)
			fromPatch, problems = fromPatch.On(launcher)
			assert.Empty(t, problems)
			fromConfig, problems := FromConfig(pod, readConfig(t, tt.config))
			assert.Empty(t, problems)
			fromConfig, problems = fromConfig.On(launcher)
			assert.Empty(t, problems)
			assert.Equal(t, fromConfig, fromPatch)
			assert.Equal(t, fromConfig.Hash(), fromPatch.Hash())
			assert.Equal(t, "require", fromPatch.ModelCache)
			fromConfig.ModelCache = "off"
			assert.NotEqual(t, fromConfig.Hash(), fromPatch.Hash(), "from where the model comes is part of what runs")
		})
	}
}

func TestVariablesThatTheLauncherDecidesArePassedOver(t *testing.T) {
	form, problems := FromConfig(requester(t), readConfig(t, `spec: {launcherConfigName: vllm, modelServerConfig: {port: 8000, options: m, env: [
		{name: VLLM_SERVER_DEV_MODE, value: "1"}, {name: CUDA_VISIBLE_DEVICES, value: "0"}, {name: A, value: $(B)}]}}`))
	assert.Empty(t, problems)
	assert.Equal(t, map[string]string{"A": "$(B)"}, form.Env, "nothing is expanded in a configuration")
	assert.Equal(t, []string{"spec.modelServerConfig.env[CUDA_VISIBLE_DEVICES]", "spec.modelServerConfig.env[VLLM_SERVER_DEV_MODE]"}, form.Ignored)
}

func TestWhatIsWrongWithAConfigurationIsSaidWithWhatWouldBeRight(t *testing.T) {
	const m = "spec.modelServerConfig"
	for name, tt := range map[string]struct {
		server string
		want   []string
	}{
		"both":                       {`port: 8000, options: m, args: [m]`, []string{m + ": give either options or args"}},
		"neither":                    {`port: 8000`, []string{m + ": give either options or args"}},
		"an open quote":              {`port: 8000, options: "m 'x"`, []string{m + ".options: cannot be split into words: "}},
		"another port in options":    {`port: 8000, options: "m --port 9000"`, []string{m + ".options: --port 9000 is another than spec.modelServerConfig.port, which is 8000: leave --port out"}},
		"the same port in arguments": {`port: 8000, args: [m, --port=8000]`, nil},
		"no port":                    {`options: m`, []string{m + ".port: 0 is no port: it should be a number from 1 to 65535"}},
		"the admin port":             {`port: 8081, options: m`, []string{m + ".port: 8081 is the requester's admin port"}},
		"a variable twice":           {`port: 8000, options: m, env: [{name: A, value: x}, {name: A, value: y}]`, []string{m + ".env[A]: stands there twice: keep one"}},
		"a label by no key":          {`port: 8000, options: m, labels: {-a: x}`, []string{m + ".labels[-a]: is no key of a label"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := FromConfig(requester(t), readConfig(t, "spec: {launcherConfigName: vllm, modelServerConfig: {"+tt.server+"}}"))
			holds(t, podmeta.Invalid, tt.want, problems)
		})
	}
	_, problems := FromConfig(requester(t), readConfig(t, "spec: {launcherConfigName: other, modelServerConfig: {port: 8000, options: m}}"))
	holds(t, podmeta.Invalid, []string{"spec.launcherConfigName: other is another than the requester's annotation hotseat.dev/launcher-config, which is vllm: keep one of the two"}, problems)
}

// FuzzFromPatch wants an answer to whatever a patch says, the same each time,
// and from a form without problems that no address is left in the arguments.
func FuzzFromPatch(f *testing.F) {
	f.Add(communityPatch)
	for _, container := range []string{
		`args: [m, --port]`, `command: [sh, -c, "exec vllm serve $(A) '{\"a\": 1}' \\* {a,b}"]`, `env: [{name: A, value: "$(A)$$(B)$("}]`,
		`volumeMounts: [{name: shared, mountPath: /m}], ports: [{containerPort: 1}, {containerPort: 2}]`, `$patch: delete`,
		`$setElementOrder/env: [{name: A}], $retainKeys: [name]`, `resources: {limits: {nvidia.com/gpu: 1e9}}`, `readinessProbe: {httpGet: {port: spi}}`,
	} {
		f.Add(serving(container))
	}
	f.Add("{$patch: replace}")
	f.Add("metadata: {labels: {a: null, b: c}, $deleteFromPrimitiveList/finalizers: [x]}")
	pod := requester(f)
	f.Fuzz(func(t *testing.T, patch string) {
		form, problems := FromPatch(pod, patch)
		again, _ := FromPatch(pod, patch)
		assert.Equal(t, form, again)
		assert.Equal(t, requester(t), pod, "the requester stays as it is")
		for _, p := range problems {
			assert.NotEmpty(t, p.Field)
			assert.NotEmpty(t, p.Message)
		}
		if len(problems) > 0 {
			return
		}
		assert.NotEmpty(t, form.Hash())
		assert.Positive(t, form.Port)
		for _, arg := range form.Args {
			if arg == "--" {
				break
			}
			assert.False(t, strings.HasPrefix(arg, "--port=") || strings.HasPrefix(arg, "--host="), "%q", form.Args)
		}
	})
}
