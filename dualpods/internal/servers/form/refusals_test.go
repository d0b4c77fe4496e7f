package form

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

const c = "spec.containers[inference-server]."

func TestWhatALauncherCannotGiveIsNamedByItsField(t *testing.T) {
	for name, tt := range map[string]struct {
		patch string
		want  []string
	}{
		"a value from a Secret": {serving(`args: [m], env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}]`), []string{
			c + "env[HF_TOKEN].valueFrom: an engine cannot have a value from a Secret: let the podTemplate of the LauncherConfig set HF_TOKEN, which all of its engines then have, or write the value plainly"}},
		"a value from a ConfigMap": {serving(`args: [m], env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]`), []string{c + "env[A].valueFrom: an engine cannot have a value from a ConfigMap"}},
		"a value from the Pod":     {serving(`args: [m], env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`), []string{c + "env[A].valueFrom: an engine cannot have a value from a field of its Pod"}},
		"a value from resources":   {serving(`args: [m], env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]`), []string{c + "env[A].valueFrom: an engine cannot have a value from its container's resources"}},
		"a reference to such a value": {serving(`args: [m], command: [vllm, serve, $(NODE_NAME)]`), []string{
			c + "command: refers to $(NODE_NAME), which an engine does not have: write its value plainly"}},
		"all of a Secret": {serving(`args: [m], envFrom: [{secretRef: {name: s}}]`), []string{c + "envFrom: an engine cannot have variables from Secrets or ConfigMaps"}},
		"a security context, a folder, a hook, a device": {serving(`args: [m], securityContext: {privileged: true}, workingDir: /w, lifecycle: {preStop: {sleep: {seconds: 1}}}, volumeDevices: [{name: d, devicePath: /d}]`), []string{
			c + "lifecycle: an engine has what its launcher Pod has: let the podTemplate of the LauncherConfig say it, or leave it out",
			c + "securityContext: an engine has", c + "volumeDevices: an engine has", c + "workingDir: an engine has"}},
		"another container": {"spec: {containers: [{name: inference-server, args: [m]}, {name: side, image: x}]}", []string{
			"spec.containers[side]: an engine has no containers beside it"}},
		"an init container": {"spec: {initContainers: [{name: first, image: x}], containers: [{name: inference-server, args: [m]}]}", []string{
			"spec.initContainers[first]: an engine has no containers beside it"}},
		"things of the Pod": {"spec: {hostNetwork: true, runtimeClassName: r, serviceAccountName: s, nodeSelector: {a: b}, containers: [{name: inference-server, args: [m]}]}", []string{
			"spec.hostNetwork: an engine has", "spec.runtimeClassName: an engine has", "spec.serviceAccountName: an engine has"}},
		"a mount with a sub path of variables": {"spec: {containers: [{name: inference-server, args: [m], volumeMounts: [{name: shared, mountPath: /m, subPathExpr: $(A)}]}]}", []string{
			c + "volumeMounts[/m]: an engine has no mounts of its own"}},
		"the community's volume of the node": {"spec: {volumes: [{name: l, persistentVolumeClaim: {claimName: '{{.LocalVolume}}'}}]}", []string{
			"metadata.annotations[dual-pod.llm-d.ai/server-patch]: {{ .LocalVolume }} stands for a volume claim of the node"}},
		"a variable that is the launcher's": {serving(`args: [m], env: [{name: HOTSEAT_INSTANCE, value: x}]`), []string{c + "env[HOTSEAT_INSTANCE]: cannot be set"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := FromPatch(requester(t), tt.patch)
			holds(t, podmeta.LauncherCannotGive, tt.want, problems)
		})
	}
}

func holds(t *testing.T, kind podmeta.Kind, want []string, problems []podmeta.Problem) {
	t.Helper()
	require.Len(t, problems, len(want), "%v", texts(problems))
	for i := range want {
		assert.Contains(t, problems[i].String(), want[i])
		assert.Equal(t, kind, problems[i].Kind)
	}
}

func TestWhatIsWrongWithAPatchIsSaidWithWhatWouldBeRight(t *testing.T) {
	const patchAt = "metadata.annotations[dual-pod.llm-d.ai/server-patch]: "
	line := func(script string) string { return serving(`command: [sh, -c, ` + script + `]`) }
	for name, tt := range map[string]struct {
		patch string
		want  []string
	}{
		"no YAML":               {"spec: {", []string{patchAt + "is no YAML: "}},
		"a key twice":           {"spec: {}\nspec: {}", []string{patchAt + "is no YAML: "}},
		"a text":                {"vllm serve m", []string{patchAt + "is no patch: it should have the shape of a Pod"}},
		"nothing":               {"", []string{patchAt + "is no patch"}},
		"a list":                {"[1]", []string{patchAt + "is no patch"}},
		"an unknown field":      {serving(`args: [m], imag: x`), []string{patchAt + `makes no Pod: unknown field "spec.containers[0].imag"`}},
		"containers as a map":   {"spec: {containers: {a: b}}", []string{patchAt}},
		"a container unnamed":   {"spec: {containers: [{args: [m]}]}", []string{patchAt + "cannot be applied to this Pod as a strategic merge patch: "}},
		"an argument as number": {serving(`args: [m, -tp, 2]`), []string{patchAt + "makes no Pod: "}},
		"no container left":     {"spec: {containers: [{$patch: delete, name: inference-server}]}", []string{"spec.containers: neither the requester nor the patch has one named inference-server"}},
		"neither command nor args": {serving(`image: x`), []string{
			c + "command: neither command nor args say what to serve; it should be vllm serve …, python3 -m vllm.entrypoints.openai.api_server …, sh -c with one of these, or no command at all, so that args are those of vllm serve"}},
		"another program":        {serving(`command: [/ko-app/test-server, --startup-delay=22]`), []string{c + `command: "/ko-app/test-server --startup-delay=22" does not start vLLM in a way that is known here; it should be vllm serve`}},
		"vllm without serve":     {serving(`command: [vllm, bench]`), []string{c + `command: "vllm bench" does not start vLLM`}},
		"another module":         {serving(`command: [python3, -m, http.server]`), []string{c + `command: "python3 -m http.server" does not start vLLM`}},
		"two commands":           {line(`"cd /; vllm serve m"`), []string{c + "command: sh -c: holds 2 commands: it should be one plain command with nothing for a shell to do"}},
		"no command":             {line(`""`), []string{c + "command: sh -c: holds 0 commands"}},
		"and":                    {line(`"true && vllm serve m"`), []string{c + "command: sh -c: is more than one plain command"}},
		"a pipe":                 {line(`"vllm serve m | tee /log"`), []string{c + "command: sh -c: is more than one plain command"}},
		"a redirection":          {line(`"vllm serve m >/log"`), []string{c + "command: sh -c: is more than one plain command"}},
		"a subshell":             {line(`"(vllm serve m)"`), []string{c + "command: sh -c: is more than one plain command"}},
		"in the background":      {line(`"vllm serve m &"`), []string{c + "command: sh -c: is more than one plain command"}},
		"a variable of a shell":  {line(`"vllm serve $MODEL"`), []string{c + "command: sh -c: the shell would replace something in $MODEL: it should be one plain command with nothing for a shell to do; quote it, and write variables as $(NAME), which Kubernetes expands from env"}},
		"one in double quotes":   {line(`"vllm serve \"a ${MODEL}\""`), []string{"the shell would replace something in"}},
		"a command's output":     {line(`"vllm serve $(hostname)"`), []string{"the shell would replace something in $(hostname)"}},
		"names of files":         {line(`"vllm serve /models/*"`), []string{"the shell would replace something in /models/*"}},
		"a home folder":          {line(`"vllm serve ~/m"`), []string{"the shell would replace something in ~/m"}},
		"alternatives in braces": {line(`"vllm serve m --x {\"a\":1,\"b\":2}"`), []string{"the shell would replace something in {"}},
		"a variable set":         {line(`"A=1 vllm serve m"`), []string{c + "command: sh -c: sets a variable: env is the place for that"}},
		"an open quote":          {line(`"vllm serve 'm"`), []string{c + "command: sh -c: cannot be read as a shell's command line: "}},
		"a shell in a shell":     {line(`"bash -c 'vllm serve m'"`), []string{`does not start vLLM`}},
		"exec alone":             {line(`"exec"`), []string{`does not start vLLM`}},
		"a port that is none":    {serving(`args: [m, --port, http]`), []string{c + `args: --port "http" is no port: it should be a number from 1 to 65535`}},
		"a port out of range":    {serving(`args: [m, --port=65536]`), []string{c + `args: --port "65536" is no port`}},
		"port 0":                 {serving(`args: [m, --port=0]`), []string{c + `args: --port "0" is no port: it should be a number from 1 to 65535`}},
		"a zero byte":            {serving(`args: [m, "--seed=\0"]`), []string{c + "args: argument 2 holds a zero byte, which no program can be given"}},
		"one in a command":       {serving(`command: [vllm, serve, "m\0"]`), []string{c + "command: argument 1 holds a zero byte"}},
		"a port without a value": {serving(`args: [m, --port]`), []string{c + "args: --port has no value behind it"}},
		"two ports":              {serving(`args: [m], ports: [{containerPort: 9000}, {containerPort: 9001}]`), []string{c + "ports: 9000, 9001 could each be where the server answers: name one of them http, or say --port in its arguments"}},
		"the admin port":         {serving(`args: [m, --port=8081]`), []string{c + "ports: 8081 is the requester's admin port: inference requests need another port"}},
		"the port of the probes": {serving(`args: [m, --port=8080]`), []string{c + "ports: 8080 is what the requester's own probes ask: inference requests need another port"}},
		"more GPUs":              {serving(`args: [m], resources: {limits: {nvidia.com/gpu: 2}}`), []string{c + "resources.limits[nvidia.com/gpu]: 2 in the patch, and 1 on the requester, which holds them: leave it out of the patch"}},
		"a volume that is none":  {serving(`args: [m], volumeMounts: [{name: x, mountPath: /m}]`), []string{c + `volumeMounts[/m]: names the volume "x", which spec.volumes does not have`}},
		"labels that are none or the controller's": {"metadata: {labels: {a b: x, m: a/b, hotseat.dev/x: z}}\n" + serving(`args: [m]`), []string{
			"metadata.labels[a b]: is no key of a label: ", "metadata.labels[hotseat.dev/x]: is the controller's own: choose a key with another prefix", `metadata.labels[m]: "a/b" is no value of a label: `}},
		"another LauncherConfig":       {"metadata: {annotations: {hotseat.dev/launcher-config: other}}\n" + serving(`args: [m]`), []string{"metadata.annotations[hotseat.dev/launcher-config]: is other in the patch and vllm on the requester: keep one of the two"}},
		"a LauncherConfig by no name":  {"metadata: {annotations: {hotseat.dev/launcher-config: A B}}\n" + serving(`args: [m]`), []string{`metadata.annotations[hotseat.dev/launcher-config]: "A B" in the patch cannot be the name of an object`}},
		"a variable without a name":    {serving(`args: [m], env: [{name: "", value: x}]`), []string{c + `env[]: "" cannot be the name of an environment variable`}},
		"a variable with a zero byte":  {serving(`args: [m], env: [{name: A, value: "a\0b"}]`), []string{c + "env[A]: its value holds a zero byte"}},
		"everything of the Pod is out": {"$patch: replace\nspec: {}", []string{"spec.containers: neither the requester nor the patch has one"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := FromPatch(requester(t), tt.patch)
			holds(t, podmeta.Invalid, tt.want, problems)
		})
	}
}

func TestWhatTheRequesterItselfRunsIsNotTakenForTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		patch  string
		want   []string
	}{
		"its command": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/app/requester"} }, serving(`args: [m]`),
			[]string{c + "command: is the requester's own: the patch should set another, or null; it should be vllm serve"}},
		"its arguments": {func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"--log"} }, serving(`command: [vllm, serve, m]`),
			[]string{c + "args: are the requester's own: the patch should set others, or null"}},
		"its image": {func(p *corev1.Pod) { p.Annotations = nil }, serving(`args: [m]`),
			[]string{c + "image: is the requester's own: the patch should name the image with vLLM, or annotation hotseat.dev/launcher-config the LauncherConfig"}},
		"its command and arguments, taken away": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = []string{"/app/requester"}, []string{"--log"}
		}, serving(`command: null, args: [m]`), nil},
		"its arguments, emptied": {func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"--log"} }, serving(`command: [vllm, serve, m], args: []`), nil},
		"its security context and its sidecar": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Image: "p"})
			p.Spec.HostNetwork = true
		}, serving(`args: [m]`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := requester(t)
			tt.change(pod)
			form, problems := FromPatch(pod, tt.patch)
			holds(t, podmeta.Invalid, tt.want, problems)
			if tt.want == nil {
				assert.Equal(t, []string{"m"}, form.Args)
			}
		})
	}
}
