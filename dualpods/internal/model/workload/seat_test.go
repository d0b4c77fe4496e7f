package workload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// seat returns the first seat of a pool.
func seat(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pool := v1alpha1.SeatPool{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("{metadata: {name: pool, namespace: team, uid: u-1}, spec: "+spec+"}"), &pool))
	_, problems := pool.PodTemplate()
	require.Empty(t, problems)
	template, err := workload.SeatTemplate(&pool, "example.com/requester")
	require.NoError(t, err)
	return workload.Seat(&pool, &template, 3)
}

func TestSeatIsARequesterWithoutAModel(t *testing.T) {
	pod := seat(t, `{gpus: 2, launcherConfigName: vllm, template: {metadata: {labels: {team: a}}, spec: {nodeSelector: {zone: b}, containers: [{name: inference-server, env: [{name: A, value: b}]}]}}}`)
	assert.Equal(t, "pool-3", pod.Name)
	assert.Equal(t, map[string]string{"team": "a", podmeta.LabelSeat: "pool", podmeta.LabelManagedBy: podmeta.ManagedBy}, pod.Labels)
	assert.Equal(t, map[string]string{"zone": "b"}, pod.Spec.NodeSelector)
	require.Len(t, pod.Spec.Containers, 1, "the template adds to the container of the requester program")
	assert.Equal(t, "A", pod.Spec.Containers[0].Env[0].Name)
	assert.NotNil(t, pod.Spec.Containers[0].ReadinessProbe)
	read, problems := podmeta.ReadRequester(pod)
	assert.Empty(t, problems)
	assert.True(t, podmeta.IsRequester(pod))
	assert.Equal(t, []any{podmeta.InputNone, 2, "vllm"}, []any{read.Input, read.GPUs, read.LauncherConfig})
	pod.Labels[podmeta.LabelSeat] = ""
	_, problems = podmeta.ReadRequester(pod)
	assert.NotEmpty(t, problems, "any other requester has to say what it wants")
}

func TestSeatTakesAndGivesBackItsModel(t *testing.T) {
	pod := seat(t, `{launcherConfigName: vllm}`)
	pod.Annotations[podmeta.AnnotationStatus] = podmeta.Status{State: "Serving", Launcher: "l", GPUs: []string{"GPU-1"}, Seat: "earlier"}.Encode()
	pod.Labels[podmeta.LabelServes] = "other"
	empty := pod.DeepCopy()
	of := podmeta.Assignment{Model: "llama", Entry: "seats", Config: "llama-seats", Generation: 2, Hash: "h", Since: now}
	workload.Take(pod, of, "require")
	assert.Equal(t, of, podmeta.ReadAssignment(pod))
	assert.Equal(t, "llama", pod.Labels[podmeta.LabelModel])
	assert.Equal(t, "seats", pod.Labels[podmeta.LabelModelEntry])
	assert.NotContains(t, pod.Labels, podmeta.LabelServes, "it does not serve yet")
	read, problems := podmeta.ReadRequester(pod)
	assert.Empty(t, problems)
	assert.Equal(t, []any{podmeta.InputConfig, "llama-seats", "require"}, []any{read.Input, read.ConfigName, read.ModelCache})
	status := podmeta.ReadStatus(pod)
	assert.Equal(t, []any{"Waiting", of.ID(), "l", []string{"GPU-1"}}, []any{status.State, status.Seat, status.Launcher, status.GPUs}, "what is known of the seat stays")

	workload.Leave(pod, now.Add(time.Second))
	left := podmeta.ReadAssignment(pod)
	assert.Equal(t, of.ID(), left.ID(), "it keeps its model until its requests have ended")
	assert.Equal(t, now.Add(time.Second), left.Leaves)
	workload.Stay(pod)
	assert.Equal(t, of, podmeta.ReadAssignment(pod))

	workload.Give(pod, now)
	assert.Empty(t, podmeta.ReadAssignment(pod).ID())
	empty.Annotations[podmeta.AnnotationStatus] = pod.Annotations[podmeta.AnnotationStatus]
	delete(empty.Labels, podmeta.LabelServes)
	assert.Equal(t, empty, pod, "nothing of the model is left")
	assert.Equal(t, []string{"GPU-1"}, podmeta.ReadStatus(pod).GPUs)
}

func TestTemplateOfSeatsIsChecked(t *testing.T) {
	for template, want := range map[string]string{
		`{metadata: {labels: {hotseat.dev/serves: a}}}`:                               "spec.template.metadata.labels[hotseat.dev/serves]: is the controller's to write",
		`{metadata: {annotations: {hotseat.dev/launcher-config: a}}}`:                 "spec.template.metadata.annotations[hotseat.dev/launcher-config]: is the controller's to write",
		`{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}`: "say in spec.gpus how many a seat has",
		`{spec: {schedulingGates: [{name: a}]}}`:                                      "spec.template.spec.schedulingGates: are not opened by the controller",
		`{spec: {nodeselector: {}}}`:                                                  "is not a valid Pod template",
		`{metadata: {annotations: {dual-pod.llm-d.ai/inference-server-config: a}}}`:   "is the controller's to write",
		`{metadata: {annotations: {hotseat.dev/seat-model: '{}'}}}`:                   "is the controller's to write",
	} {
		pool := v1alpha1.SeatPool{}
		require.NoError(t, yaml.Unmarshal([]byte("{spec: {launcherConfigName: vllm, template: "+template+"}}"), &pool))
		_, problems := pool.PodTemplate()
		assert.Contains(t, podmeta.Join(problems), want, template)
	}
}
