package podmeta_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

// requester makes a Pod that holds a GPU, with these annotations.
func requester(annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	err := yaml.UnmarshalStrict([]byte(`
metadata: {uid: u-1, namespace: ns, name: req, labels: {app: a, model: m}}
spec:
  nodeName: node-1
  readinessGates: [{conditionType: hotseat.dev/inference-server}]
  containers:
  - name: inference-server
    ports: [{name: probes, containerPort: 8080}, {name: spi, containerPort: 8091}]
    resources: {limits: {nvidia.com/gpu: "2"}}
`), pod)
	if err != nil {
		panic(err)
	}
	pod.Annotations = annotations
	return pod
}

func TestARequesterIsReadInBothSpellings(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        podmeta.Requester
	}{
		"a server patch": {
			map[string]string{"dual-pod.llm-d.ai/server-patch": "spec: {}"},
			podmeta.Requester{Input: podmeta.InputPatch, Patch: "spec: {}", AdminPort: 8081},
		},
		"a server patch as the community spells it": {
			map[string]string{"dual-pods.llm-d.ai/server-patch": "spec: {}", "dual-pods.llm-d.ai/admin-port": "9000"},
			podmeta.Requester{Input: podmeta.InputPatch, Patch: "spec: {}", AdminPort: 9000},
		},
		"the name of a configuration": {
			map[string]string{"dual-pod.llm-d.ai/inference-server-config": "granite", "dual-pod.llm-d.ai/admin-port": "spi"},
			podmeta.Requester{Input: podmeta.InputConfig, ConfigName: "granite", AdminPort: 8091},
		},
		"both spellings that say the same": {
			map[string]string{"dual-pod.llm-d.ai/inference-server-config": "granite", "dual-pods.llm-d.ai/inference-server-config": "granite"},
			podmeta.Requester{Input: podmeta.InputConfig, ConfigName: "granite", AdminPort: 8081},
		},
		"a launcher configuration and labels that the controller put there": {
			map[string]string{"dual-pod.llm-d.ai/server-patch": "x", "hotseat.dev/launcher-config": "lc", "hotseat.dev/relayed-labels": `["model","a","a"]`},
			podmeta.Requester{Input: podmeta.InputPatch, Patch: "x", AdminPort: 8081, LauncherConfig: "lc", RelayedLabels: []string{"a", "model"}},
		},
		"from where the model comes": {
			map[string]string{"dual-pod.llm-d.ai/server-patch": "x", "hotseat.dev/model-cache": "require"},
			podmeta.Requester{Input: podmeta.InputPatch, Patch: "x", AdminPort: 8081, ModelCache: "require"},
		},
		"what becomes of it when its instance ends": {
			map[string]string{"dual-pod.llm-d.ai/server-patch": "x", "hotseat.dev/on-exit": "Restart"},
			podmeta.Requester{Input: podmeta.InputPatch, Patch: "x", AdminPort: 8081, OnExit: podmeta.OnExitRestart},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := requester(tt.annotations)
			tt.want.UID, tt.want.Namespace, tt.want.Name, tt.want.Node = "u-1", "ns", "req", "node-1"
			tt.want.GPUs, tt.want.Gated = 2, true
			got, problems := podmeta.ReadRequester(pod)
			assert.Empty(t, problems)
			assert.Equal(t, tt.want, got)
			assert.True(t, podmeta.IsRequester(pod))
		})
	}
	assert.False(t, podmeta.IsRequester(requester(map[string]string{"dual-pod.llm-d.ai/admin-port": "1"})))
}

func TestARequesterThatIsHeldStaysOneWithoutItsInput(t *testing.T) {
	pod := requester(nil)
	assert.False(t, podmeta.IsRequester(pod))
	pod.Finalizers = []string{podmeta.FinalizerRequester}
	assert.True(t, podmeta.IsRequester(pod))
	_, problems := podmeta.ReadRequester(pod)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Message, "one of them says which inference server is wanted")
}

func TestOwnLabelsAreThoseThatTheControllerDidNotPutThere(t *testing.T) {
	pod := requester(map[string]string{"hotseat.dev/relayed-labels": `["model"]`})
	got, _ := podmeta.ReadRequester(pod)
	assert.Equal(t, map[string]string{"app": "a"}, got.OwnLabels(pod))
	assert.Equal(t, map[string]string{"app": "a", "model": "m"}, pod.Labels)
}

func TestWhatIsWrongWithARequesterIsSaidByFieldAndCure(t *testing.T) {
	const patch, config, port = "dual-pod.llm-d.ai/server-patch", "dual-pod.llm-d.ai/inference-server-config", "dual-pod.llm-d.ai/admin-port"
	for name, tt := range map[string]struct {
		annotations map[string]string
		change      func(*corev1.Pod)
		want        []string
	}{
		"neither input": {nil, nil, []string{
			"metadata.annotations: neither dual-pod.llm-d.ai/server-patch nor dual-pod.llm-d.ai/inference-server-config is there: one of them says which inference server is wanted",
		}},
		"a word that says not what becomes of it": {map[string]string{patch: "x", "hotseat.dev/on-exit": "restart"}, nil, []string{
			`metadata.annotations[hotseat.dev/on-exit]: "restart" is none of Delete (the Pod is deleted when its instance ends), Restart (the instance is started again) and Keep (nothing is started again)`,
		}},
		"a word that says not from where the model comes": {map[string]string{patch: "x", "hotseat.dev/model-cache": "yes"}, nil, []string{
			`metadata.annotations[hotseat.dev/model-cache]: "yes" is none of auto (the launcher's copy of the model where it has one), require (nothing but that) and off (the engine finds its model by itself)`,
		}},
		"both inputs": {map[string]string{patch: "x", "dual-pods.llm-d.ai/inference-server-config": "c"}, nil, []string{
			"metadata.annotations[dual-pod.llm-d.ai/server-patch]: stands beside dual-pods.llm-d.ai/inference-server-config: keep one of the two",
		}},
		"an empty patch": {map[string]string{patch: " \n"}, nil, []string{
			"metadata.annotations[dual-pod.llm-d.ai/server-patch]: is empty: it should be a patch that makes this Pod the one that serves",
		}},
		"two spellings that differ": {map[string]string{config: "a", "dual-pods.llm-d.ai/inference-server-config": "b"}, nil, []string{
			"metadata.annotations[dual-pod.llm-d.ai/inference-server-config]: has another value than dual-pods.llm-d.ai/inference-server-config, which means the same: keep one of the two",
		}},
		"a name that is none": {map[string]string{"dual-pods.llm-d.ai/inference-server-config": "Gra nite"}, nil, []string{
			`metadata.annotations[dual-pods.llm-d.ai/inference-server-config]: "Gra nite" cannot be the name of an object`,
		}},
		"an empty launcher configuration": {map[string]string{config: "a", "hotseat.dev/launcher-config": ""}, nil, []string{
			`metadata.annotations[hotseat.dev/launcher-config]: "" cannot be the name of an object`,
		}},
		"an admin port out of range": {map[string]string{config: "a", port: "65536"}, nil, []string{
			`metadata.annotations[dual-pod.llm-d.ai/admin-port]: "65536" is no port: it should be a number from 1 to 65535, or the name of a port of container inference-server`,
		}},
		"an admin port that is negative":                    {map[string]string{config: "a", port: "-1"}, nil, []string{`"-1" is no port`}},
		"an admin port that is empty":                       {map[string]string{config: "a", port: ""}, nil, []string{`"" is no port`}},
		"an admin port by a name that nobody has":           {map[string]string{config: "a", port: "admin"}, nil, []string{`"admin" is no port`}},
		"an admin port beyond what a number of 64 bits has": {map[string]string{config: "a", port: "99999999999999999999"}, nil, []string{`is no port`}},
		"no container of the name": {map[string]string{config: "a"}, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "main" }, []string{
			"spec.containers: none is named inference-server: the container of that name runs the requester program and holds the GPUs",
		}},
		"no containers, and a named port": {map[string]string{config: "a", port: "spi"}, func(p *corev1.Pod) { p.Spec.Containers = nil }, []string{
			"spec.containers: none is named", "is no port",
		}},
		"no GPU": {map[string]string{config: "a"}, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }, []string{
			"spec.containers[inference-server].resources.limits[nvidia.com/gpu]: is not there: it says how many GPUs the inference server runs on, 1 or more",
		}},
		"zero GPUs":        {map[string]string{config: "a"}, gpus("0"), []string{"0 is no number of GPUs: it should be a whole number from 1 to 64"}},
		"half a GPU":       {map[string]string{config: "a"}, gpus("1500m"), []string{"1500m is no number of GPUs"}},
		"more than 64":     {map[string]string{config: "a"}, gpus("65"), []string{"65 is no number of GPUs"}},
		"a negative count": {map[string]string{config: "a"}, gpus("-1"), []string{"-1 is no number of GPUs"}},
		"more than counts": {map[string]string{config: "a"}, gpus("1e30"), []string{"is no number of GPUs"}},
		"damaged relayed labels": {map[string]string{config: "a", "hotseat.dev/relayed-labels": "model"}, nil, []string{
			"metadata.annotations[hotseat.dev/relayed-labels]: is no JSON list of label keys",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := requester(tt.annotations)
			if tt.change != nil {
				tt.change(pod)
			}
			_, problems := podmeta.ReadRequester(pod)
			require.Len(t, problems, len(tt.want), "%v", problems)
			for i, want := range tt.want {
				assert.Contains(t, problems[i].String(), want)
				assert.Equal(t, podmeta.Invalid, problems[i].Kind)
			}
		})
	}
}

func gpus(n string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		limits := corev1.ResourceList{}
		if err := yaml.Unmarshal([]byte("nvidia.com/gpu: \""+n+"\""), &limits); err != nil {
			panic(err)
		}
		pod.Spec.Containers[0].Resources.Limits = limits
	}
}

func TestAPodWithNothingInItIsReadWithoutHarm(t *testing.T) {
	_, problems := podmeta.ReadRequester(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{}})
	assert.Len(t, problems, 2)
	bindings, problems := podmeta.ReadBindings(&corev1.Pod{})
	assert.Empty(t, bindings)
	assert.Empty(t, problems)
}

func TestARequesterThatMountsTheAuthoritiesTakesOrdersByTLS(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"as the examples":                    {func(*corev1.Pod) {}, true},
		"with a slash at the end":            {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath += "/" }, true},
		"elsewhere":                          {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc/other" }, false},
		"one file, which would never change": {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].SubPath = "ca.crt" }, false},
		"another ConfigMap":                  {func(p *corev1.Pod) { p.Spec.Volumes[0].ConfigMap.Name = "mine" }, false},
		"a Secret":                           {func(p *corev1.Pod) { p.Spec.Volumes[0].ConfigMap = nil }, false},
		"in another container":               {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "sidecar" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := requester(nil)
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: "/etc/hotseat"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hotseat-ca"}}}}}
			tt.change(pod)
			read, _ := podmeta.ReadRequester(pod)
			assert.Equal(t, tt.want, read.TLS)
		})
	}
}

func TestAMountOfTheAuthoritiesThatMayLackThemIsToldByItsField(t *testing.T) {
	items := func(all ...corev1.KeyToPath) func(*corev1.ConfigMapVolumeSource) {
		return func(c *corev1.ConfigMapVolumeSource) { c.Items = all }
	}
	optional := func(is bool) func(*corev1.ConfigMapVolumeSource) {
		return func(c *corev1.ConfigMapVolumeSource) { c.Optional = &is }
	}
	for name, tt := range map[string]struct {
		change func(*corev1.ConfigMapVolumeSource)
		want   string // how the problem begins; empty: there is none
	}{
		"optional":                     {optional(true), "spec.volumes[ca].configMap.optional: is true, so that the Pod may start before ConfigMap hotseat-ca is there"},
		"not optional, said":           {optional(false), ""},
		"items that have it":           {items(corev1.KeyToPath{Key: "other", Path: "other"}, corev1.KeyToPath{Key: "ca.crt", Path: "ca.crt"}), ""},
		"items that leave it out":      {items(corev1.KeyToPath{Key: "other", Path: "other"}), "spec.volumes[ca].configMap.items: do not put ca.crt at the path ca.crt"},
		"items that rename it":         {items(corev1.KeyToPath{Key: "ca.crt", Path: "root.crt"}), "spec.volumes[ca].configMap.items: do not put ca.crt at the path ca.crt"},
		"items that put another there": {items(corev1.KeyToPath{Key: "other", Path: "ca.crt"}), "spec.volumes[ca].configMap.items: do not put ca.crt at the path ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := requester(map[string]string{"dual-pod.llm-d.ai/inference-server-config": "granite"})
			of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hotseat-ca"}}
			tt.change(of)
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: "/etc/hotseat"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
			read, problems := podmeta.ReadRequester(pod)
			assert.True(t, read.TLS, "its program, if it started, serves by TLS")
			if tt.want == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0].String(), tt.want)
			pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc/other"
			_, problems = podmeta.ReadRequester(pod)
			assert.Empty(t, problems, "what is mounted elsewhere is nobody's concern")
		})
	}
}
