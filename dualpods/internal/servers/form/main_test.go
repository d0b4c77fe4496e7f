package form

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requesterText is a requester in the shape that the llm-d community's guides
// give it, as an API server fills it in.
const requesterText = `
metadata:
  namespace: ns
  name: my-request-x
  uid: u-1
  labels: {app: dp-example, pod-template-hash: abc}
spec:
  nodeName: node-1
  serviceAccountName: testreq
  restartPolicy: Always
  volumes:
  - name: kube-api-access-x7k2p
    projected: {sources: [{serviceAccountToken: {path: token}}]}
  - name: shared
    persistentVolumeClaim: {claimName: shared-claim}
  containers:
  - name: inference-server
    image: hotseat/requester:1
    env:
    - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: HOTSEAT_LOG_LEVEL, value: debug}
    ports:
    - {name: probes, containerPort: 8080, protocol: TCP}
    - {name: spi, containerPort: 8081, protocol: TCP}
    readinessProbe: {httpGet: {path: /ready, port: 8080}}
    resources: {limits: {nvidia.com/gpu: "1", cpu: 200m, memory: 250Mi}}
    volumeMounts: [{name: kube-api-access-x7k2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]
`

func readPod(tb testing.TB, text string) *corev1.Pod {
	tb.Helper()
	pod := &corev1.Pod{}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(text), pod))
	return pod
}

// requester returns the usual requester, asking for launchers called vllm.
func requester(tb testing.TB) *corev1.Pod {
	tb.Helper()
	pod := readPod(tb, requesterText)
	pod.Annotations = map[string]string{podmeta.AnnotationLauncherConfig: "vllm"}
	return pod
}

// serving makes a patch of what it says of the serving container.
func serving(container string) string {
	return "spec: {containers: [{name: inference-server, " + container + "}]}"
}

func texts(problems []podmeta.Problem) []string {
	list := []string{}
	for _, p := range problems {
		list = append(list, p.String())
	}
	return list
}
