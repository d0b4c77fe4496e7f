package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestProbesOfTheControlPortUseTLS(t *testing.T) {
	config := configOf(t, `
podTemplate:
  spec:
    containers:
    - name: inference-server
      image: vllm
      ports: [{name: api, containerPort: 8001}, {name: other, containerPort: 9000}]
      readinessProbe: {httpGet: {path: /readyz, port: 8001}, periodSeconds: 7}
      livenessProbe: {httpGet: {path: /health, port: api, scheme: HTTP}}
      startupProbe: {httpGet: {path: /anything, port: other}}
    - name: sidecar
      image: example/sidecar
      readinessProbe: {httpGet: {path: /readyz, port: 8001}}
      livenessProbe: {httpGet: {path: /, port: 8001, host: 192.0.2.1}}
      startupProbe: {grpc: {port: 9000}}
    initContainers:
    - name: beside
      image: example/sidecar
      restartPolicy: Always
      startupProbe: {httpGet: {path: /health, port: 8001}}
`)
	made, problems := Template(config, image, secretName(config), nil, "")
	require.Empty(t, problems)
	scheme := func(p *corev1.Probe) corev1.URIScheme { return p.HTTPGet.Scheme }
	main, sidecar := podmeta.Container(&made.Spec, podmeta.ServingContainer), podmeta.Container(&made.Spec, "sidecar")
	assert.Equal(t, corev1.URISchemeHTTPS, scheme(main.ReadinessProbe))
	assert.EqualValues(t, 7, main.ReadinessProbe.PeriodSeconds, "other fields stay")
	assert.Equal(t, corev1.URISchemeHTTPS, scheme(main.LivenessProbe), "the probe names the port")
	assert.Empty(t, scheme(main.StartupProbe), "the probe is of another port")
	assert.Equal(t, corev1.URISchemeHTTPS, scheme(sidecar.ReadinessProbe))
	assert.Empty(t, scheme(sidecar.LivenessProbe), "the probe is of another host")
	beside := made.Spec.InitContainers[len(made.Spec.InitContainers)-1]
	require.Equal(t, "beside", beside.Name)
	assert.Equal(t, corev1.URISchemeHTTPS, scheme(beside.StartupProbe))
}

func TestProbesThatTheControlPortRefusesAreProblems(t *testing.T) {
	const container = "spec.podTemplate.spec.containers[inference-server]."
	for name, c := range map[string]struct{ probe, field, says string }{
		"the path needs a client certificate": {"livenessProbe: {httpGet: {path: /v2/vllm/instances, port: 8001}}", "livenessProbe.httpGet.path", "use /readyz (ready for work) or /health (alive)"},
		"the probe uses TLS already":          {"readinessProbe: {httpGet: {path: /v2/gpus, port: 8001, scheme: HTTPS}}", "readinessProbe.httpGet.path", `is "/v2/gpus", for which port 8001 of a launcher asks for a client certificate`},
		"the probe has no path":               {"startupProbe: {httpGet: {port: 8001}}", "startupProbe.httpGet.path", `is ""`},
		"the probe uses gRPC":                 {"livenessProbe: {grpc: {port: 8001}}", "livenessProbe.grpc", "use httpGet with path /readyz"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Template(configOf(t, plain+"      "+c.probe+"\n"), image, "tls", nil, "")
			require.Len(t, problems, 1)
			assert.Equal(t, container+c.field, problems[0].Field)
			assert.Contains(t, problems[0].Message, c.says)
		})
	}
}
