package binding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// publishedPod is a requester Pod that is shown as one that serves.
func publishedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid", Labels: map[string]string{"app": "x", "model": "m"},
			Annotations: map[string]string{
				podmeta.AnnotationServerPatch: "{}", podmeta.AnnotationRelayedLabels: `["model"]`, podmeta.AnnotationStatus: `{"state":"Serving"}`,
			},
		},
		Spec:   corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: podmeta.ReadinessGate, Status: corev1.ConditionTrue}}},
	}
}

func TestLabelsGoBeforeTheGateShutsThoughAnotherControllerShutsIt(t *testing.T) {
	pod := publishedPod()
	api := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	retract := func() *corev1.Pod { // by a controller that knows what stands in the API alone
		c := New(t.Context(), Options{API: api, Recorder: silentRecorder{}, Now: time.Now}, logr.Discard())
		defer c.Close()
		pod := &corev1.Pod{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, pod))
		w := &world{pods: map[types.UID]*corev1.Pod{}, spi: map[types.UID]*decide.SPI{}, asked: map[types.UID]requester{}, silent: map[types.UID]time.Time{}}
		n := c.work("node")
		w.wrote(n, pod)
		o := with("sleeping")
		o.SPI, o.Requester.UID = nil, pod.UID
		c.observePod(t.Context(), &o, n, w, pod)
		o.Requester.Finalizer, o.Requester.Running, o.Problems = true, true, nil
		step := decide.Decide(o)
		require.Equal(t, "not awake, shown", step.Rule)
		require.NoError(t, c.act(t.Context(), n, w, o, step))
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return pod
	}
	first := retract()
	assert.Equal(t, map[string]string{"app": "x"}, first.Labels)
	assert.Equal(t, decide.StateWaiting, podmeta.ReadStatus(first).State)
	assert.True(t, podmeta.GateOpen(first), "the gate is shut by the next step")
	assert.False(t, podmeta.GateOpen(retract()))
}

func TestARequesterThatWasServedWhenItsLauncherFellSilentIsReplacedOnceThatSaysThatTheEngineDied(t *testing.T) {
	script := []simEvent{
		{at: time.Millisecond, what: "create", arg: 56246},
		{at: 4 * time.Second, what: "break input"},       // so that there are no labels to put on
		{at: 20 * time.Second, what: "silence launcher"}, // for long
		{at: 21 * time.Second, what: "kill engine"},
	}
	several(t, script)
	told := func(line string) bool { return strings.Contains(line, "'state':'Serving','reason':'LauncherSilent'") }
	assert.True(t, slices.ContainsFunc(simulate(t, 1, script, decide.Tables, true).lines, told), "it serves, as far as is known")
}

func TestTheGateOfAnotherPodOfTheSameNameIsLeftAlone(t *testing.T) {
	old := publishedPod()
	changed := old.DeepCopy()
	changed.Status.Conditions[0].Status = corev1.ConditionFalse
	patch, err := ofThisPod(old, client.StrategicMergeFrom(old), changed)
	require.NoError(t, err)
	data, err := patch.Data(changed)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"metadata":{"uid":"uid"}`)
	assert.Contains(t, string(data), `"status":"False"`)
}
