package form

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// communityPatch is in the shape of the llm-d community's guides.
const communityPatch = `
metadata:
  labels: {
    "model-reg": "ibm-granite",
    "model-repo": "granite-3.3-2b-instruct",
    "app": null}
spec:
  containers:
  - name: inference-server
    image: docker.io/vllm/vllm-openai:v0.26.0
    imagePullPolicy: IfNotPresent
    command:
    - vllm
    - serve
    - --port=8005
    - --model=ibm-granite/granite-3.3-2b-instruct
    - --max-model-len=32768
    resources:
      limits: {cpu: "2", memory: 6Gi}
    readinessProbe:
      httpGet: {path: /health, port: 8005}
      initialDelaySeconds: 60
`

func TestAPatchInTheCommunitysShapeBecomesAForm(t *testing.T) {
	form, problems := FromPatch(readPod(t, requesterText), communityPatch)
	assert.Empty(t, problems)
	assert.Equal(t, Form{
		Args:   []string{"--model=ibm-granite/granite-3.3-2b-instruct", "--max-model-len=32768"},
		Image:  "docker.io/vllm/vllm-openai:v0.26.0",
		Port:   8005,
		GPUs:   1,
		Labels: map[string]string{"model-reg": "ibm-granite", "model-repo": "granite-3.3-2b-instruct"},
		Ignored: []string{
			"spec.containers[inference-server].imagePullPolicy",
			"spec.containers[inference-server].readinessProbe",
			"spec.containers[inference-server].resources",
		},
	}, form)
}

func TestAPatchWithVolumesOfTheNodeIsServedByALauncherThatHasThem(t *testing.T) {
	form, problems := FromPatch(requester(t), `
spec:
  containers:
  - name: inference-server
    image: vllm:1
    command: [vllm, serve, /pvcs/local/model]
    env: [{name: VLLM_CACHE_ROOT, value: /pvcs/shared/vllm}]
    volumeMounts:
    - {name: local, readOnly: true, mountPath: /pvcs/local, subPath: vcp}
    - {name: shared, mountPath: /pvcs/shared}
    - {name: shm, mountPath: /dev/shm}
  volumes:
  - {name: local, persistentVolumeClaim: {claimName: "local-{{ .NodeName }}"}}
  - {name: shm, emptyDir: {medium: Memory}}
`)
	require.Empty(t, problems)
	require.Len(t, form.Mounts, 2)
	assert.Equal(t, "local-node-1", form.Mounts[0].Source.PersistentVolumeClaim.ClaimName)
	assert.Equal(t, map[string]string{"VLLM_CACHE_ROOT": "/pvcs/shared/vllm"}, form.Env)

	launcher := &readPod(t, `
spec:
  containers:
  - name: inference-server
    image: vllm:1
    volumeMounts: [{name: l, mountPath: /pvcs/local, subPath: vcp}, {name: s, mountPath: /pvcs/shared}]
  volumes:
  - {name: l, persistentVolumeClaim: {claimName: local-node-1}}
  - {name: s, persistentVolumeClaim: {claimName: shared-claim}}
`).Spec
	settled, problems := form.On(launcher)
	assert.Empty(t, problems)
	assert.Equal(t, form.Hash(), settled.Hash())

	launcher.Containers[0].VolumeMounts[1].ReadOnly = true
	launcher.Containers[0].VolumeMounts[0].SubPath = ""
	launcher.Containers[0].Image = "vllm:2"
	_, problems = form.On(launcher)
	assert.Equal(t, []string{
		"spec.containers[inference-server].image: is vllm:1, and the launcher's is vllm:2: name another LauncherConfig, or leave the image out",
		"spec.containers[inference-server].volumeMounts[/pvcs/local]: the launcher has not mounted that volume there: let the podTemplate of the LauncherConfig mount it",
		"spec.containers[inference-server].volumeMounts[/pvcs/shared]: the launcher has not mounted that volume there: let the podTemplate of the LauncherConfig mount it",
	}, texts(problems))
	_, problems = form.On(&corev1.PodSpec{})
	assert.Len(t, problems, 1)
}

// TestVariablesOfLeaderWorkerSetAreNoPartOfWhatRuns has Pods of two groups ask for the same server.
func TestVariablesOfLeaderWorkerSetAreNoPartOfWhatRuns(t *testing.T) {
	form := func(address, index, patch string) Form {
		pod := requester(t)
		pod.Spec.Containers[0].Env = append([]corev1.EnvVar{
			{Name: "LWS_LEADER_ADDRESS", Value: address}, {Name: "LWS_GROUP_SIZE", Value: "2"}, {Name: "LWS_WORKER_INDEX", Value: index},
		}, pod.Spec.Containers[0].Env...)
		form, problems := FromPatch(pod, patch)
		require.Empty(t, problems)
		return form
	}
	plain := serving(`image: vllm:1, command: [vllm, serve, m]`)
	one, other := form("pair-1-prefill-0.x", "0", plain), form("pair-2-prefill-0.x", "1", plain)
	assert.Empty(t, one.Env)
	assert.Equal(t, one.Hash(), other.Hash())

	named := form("lead.x", "1", serving(`image: vllm:1, command: [vllm, serve, m, $(LWS_LEADER_ADDRESS)], env: [{name: LEADER, value: $(LWS_LEADER_ADDRESS)}, {name: LWS_GROUP_SIZE, value: "3"}]`))
	assert.Equal(t, []string{"m", "lead.x"}, named.Args)
	assert.Equal(t, "3", named.Env["LWS_GROUP_SIZE"], "what the patch sets itself stays")
	assert.NotContains(t, named.Env, "LWS_WORKER_INDEX")
}

func TestCommandsThatStartVLLMGiveItsArguments(t *testing.T) {
	for name, tt := range map[string]struct {
		container string
		want      []string
	}{
		"vllm serve":                           {`command: [vllm, serve, m, --seed, "1"]`, []string{"m", "--seed", "1"}},
		"vllm by its path, arguments in args":  {`command: [/opt/venv/bin/vllm, serve], args: [m]`, []string{"m"}},
		"the module":                           {`command: [python3, -m, vllm.entrypoints.openai.api_server], args: [--model, m]`, []string{"--model", "m"}},
		"the module by a path, without buffer": {`command: [/usr/bin/python3.12, -u, -m, vllm.entrypoints.openai.api_server, --model=m]`, []string{"--model=m"}},
		"the image's own entrypoint":           {`args: [m, --seed=1]`, []string{"m", "--seed=1"}},
		"a shell":                              {`command: [sh, -c, "vllm serve m --x='a b' \"c d\" e\\ f"]`, []string{"m", "--x=a b", "c d", "e f"}},
		"a shell with exec over lines": {`command: [/bin/bash, -ec], args: ["exec vllm serve m \\\n  --hf-overrides '{\"a\": \"*\"}' # as said\n"]`,
			[]string{"m", "--hf-overrides", `{"a": "*"}`}},
		"a shell that starts the module":    {`command: [bash, -lc, "python -m vllm.entrypoints.openai.api_server --model m"]`, []string{"--model", "m"}},
		"a shell with escaped stars":        {`command: [sh, -c, "vllm serve m \\* \"*\" [\\\"\\*\\\"]"]`, nil},
		"a shell with quoted JSON":          {`command: [sh, -c, "vllm serve m --origins '[\"*\"]' x={} a~"]`, []string{"m", "--origins", `["*"]`, "x={}", "a~"}},
		"port and host are taken out":       {`command: [vllm, serve, --host, 0.0.0.0, m, --port, "9000", --host=::1, --port=9001, --seed=1]`, []string{"m", "--seed=1"}},
		"what stands behind -- is not read": {`command: [vllm, serve, m, --, --port, x]`, []string{"m", "--", "--port", "x"}},
		"references to variables": {`env: [{name: A, value: "1"}, {name: B, value: "$(A)2"}], command: [vllm, serve, $(B), $$(A), $(NOBODY), a$b, $], args: ["$(A)$(B"]`,
			[]string{"12", "$(A)", "$(NOBODY)", "a$b", "$", "1$(B"}},
		"references within a shell's line": {`env: [{name: A, value: m}], command: [sh, -c, "vllm serve $(A)"]`, []string{"m"}},
		"an argument that is empty":        {`args: [m, ""]`, []string{"m", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			form, problems := FromPatch(requester(t), serving(tt.container))
			if tt.want == nil {
				assert.Len(t, problems, 1)
				return
			}
			assert.Empty(t, problems)
			assert.Equal(t, tt.want, form.Args)
		})
	}
}

func TestPatchInJSONMayHaveEscapedSurrogates(t *testing.T) {
	patch := func(args string) string {
		return ` {"metadata": {"annotations": {"note": "\ud83d\ude00"}}, "spec": {"containers": [{"name": "inference-server", "args": [` + args + `]}]}}` + "\n"
	}
	form, problems := FromPatch(requester(t), patch(`"m", "--chat-template=\ud83d\ude00 \u00e9"`))
	require.Empty(t, problems)
	assert.Equal(t, []string{"m", "--chat-template=😀 é"}, form.Args)
	assert.Equal(t, map[string]string{"note": "😀"}, form.Annotations)
	_, problems = FromPatch(requester(t), `{"spec": {}, "spec": {}}`)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].String(), "is no YAML: duplicate field \"spec\"")
	form, problems = FromPatch(requester(t), `{spec: {containers: [{name: inference-server, args: [m]}]}}`)
	assert.Empty(t, problems, "YAML in braces")
	assert.Equal(t, []string{"m"}, form.Args)
}

func TestThePortIsFoundWhereItStands(t *testing.T) {
	for name, tt := range map[string]struct {
		container string
		want      int32
	}{
		"the arguments say it, the last counts":              {`args: [m, --port=1, --port, "9000"], ports: [{containerPort: 9100}]`, 9000},
		"the patch adds a port":                              {`args: [m], ports: [{containerPort: 9100}], readinessProbe: {httpGet: {port: 9200}}`, 9100},
		"of several the one named http":                      {`args: [m], ports: [{containerPort: 9100}, {name: http, containerPort: 9101}]`, 9101},
		"ports that are not TCP do not count":                {`args: [m], ports: [{containerPort: 9100, protocol: UDP}]`, 8000},
		"the readiness probe of the patch asks it":           {`args: [m], readinessProbe: {httpGet: {path: /health, port: 9200}}`, 9200},
		"nobody says it":                                     {`args: [m]`, 8000},
		"a readiness probe that keeps the requester's port":  {`args: [m], readinessProbe: {httpGet: {path: /health}}`, 8000},
		"the requester's own port that the patch names also": {`args: [m], ports: [{name: spi, containerPort: 8081}]`, 8000},
	} {
		t.Run(name, func(t *testing.T) {
			form, problems := FromPatch(requester(t), serving(tt.container))
			assert.Empty(t, problems)
			assert.Equal(t, tt.want, form.Port)
		})
	}
	pod := requester(t)
	pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "http", ContainerPort: 9300, Protocol: corev1.ProtocolTCP})
	form, problems := FromPatch(pod, serving(`args: [m]`))
	assert.Empty(t, problems)
	assert.EqualValues(t, 9300, form.Port, "the requester's port named http")
}

func TestLabelsThatTheRequesterDoesNotHaveAreRelayed(t *testing.T) {
	pod := requester(t)
	pod.Labels["role"], pod.Labels["model"] = "decode", "m"
	pod.Annotations[podmeta.AnnotationRelayedLabels] = `["model"]`
	form, problems := FromPatch(pod, `
metadata:
  labels: {model: m, role: prefill, app: dp-example, pod-template-hash: null, tier: ""}
  annotations: {hotseat.dev/pinned: "true", note: text, dual-pods.llm-d.ai/accelerators: x}
`+serving(`args: [m]`))
	assert.Empty(t, problems)
	assert.Equal(t, map[string]string{"model": "m", "tier": ""}, form.Labels, "a label that was relayed before stays one to relay")
	assert.Equal(t, []string{"role"}, form.LeftAlone)
	assert.Equal(t, map[string]string{"hotseat.dev/pinned": "true", "note": "text"}, form.Annotations)
	assert.Equal(t, []string{"metadata.annotations[dual-pods.llm-d.ai/accelerators]"}, form.Ignored)
}

func TestTheLauncherConfigIsNamedByRequesterOrPatch(t *testing.T) {
	pod := readPod(t, requesterText)
	form, problems := FromPatch(pod, "metadata: {annotations: {hotseat.dev/launcher-config: other}}\n"+serving(`args: [m]`))
	assert.Empty(t, problems)
	assert.Equal(t, "other", form.LauncherConfig)
	form, problems = FromPatch(requester(t), serving(`args: [m]`))
	assert.Empty(t, problems)
	assert.Equal(t, "vllm", form.LauncherConfig)
}

func TestTheHashIsThatOfWhatRuns(t *testing.T) {
	base := Form{Args: []string{"m"}, Env: map[string]string{"A": "1", "B": "2"}, Image: "x", Port: 1, GPUs: 1}
	same := base
	same.Port, same.GPUs, same.Labels, same.Annotations, same.LauncherConfig = 2, 2, map[string]string{"a": "b"}, map[string]string{"a": "b"}, "lc"
	assert.Equal(t, base.Hash(), same.Hash())
	assert.Len(t, base.Hash(), 32)
	hashes := map[string]bool{base.Hash(): true}
	for _, change := range []func(*Form){
		func(f *Form) { f.Args = []string{"m", ""} },
		func(f *Form) { f.Args = []string{"", "m"} },
		func(f *Form) { f.Env = map[string]string{"A": "1"} },
		func(f *Form) { f.Env = map[string]string{"A": "1", "B": "3"} },
		func(f *Form) { f.Env = map[string]string{"A": "1", "B2": ""} },
		func(f *Form) { f.Image = "y" },
		func(f *Form) { f.Args = nil },
	} {
		other := base
		change(&other)
		assert.False(t, hashes[other.Hash()], "%+v", other)
		hashes[other.Hash()] = true
	}
	none, empty := base, base
	none.Env, empty.Env = nil, map[string]string{}
	assert.Equal(t, none.Hash(), empty.Hash())
}

func TestVariablesOfAModelServingAreNoPartOfWhatRuns(t *testing.T) {
	patch := serving(`image: vllm:1, command: [vllm, serve], args: [org/m, "--peer=$(ENTRY_ADDRESS)"]`)
	pod := requester(t)
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: podmeta.EnvEntryAddress, Value: "a"})
	theirs, problems := FromPatch(pod, patch)
	assert.Empty(t, problems)
	assert.Equal(t, []string{"org/m", "--peer=a"}, theirs.Args, "a variable of a Pod that a user made is an ordinary one")

	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hotseat.dev/v1alpha1", Kind: podmeta.KindServing, Name: "llama", UID: "s", Controller: new(true)}}
	form, problems := FromPatch(pod, patch)
	assert.Empty(t, problems)
	assert.Equal(t, []string{"org/m", "--peer=$(ENTRY_ADDRESS)"}, form.Args)
	assert.Empty(t, form.Env)
}
