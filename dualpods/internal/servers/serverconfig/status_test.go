package serverconfig

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requester is a Pod that asks for a configuration.
func requester(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: "llama"}}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func isReady(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func isPending(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no GPU is free"}}
}

func isPulling(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
	}}}
}

func isTold(status string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationStatus] = status }
}

func isLeaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func hasEnded(p *corev1.Pod)  { p.Status.Phase = corev1.PodFailed }

// isEnded has the kubelet end a Pod.
func isEnded(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}}
}

func TestTheStatusSaysWhetherAConfigurationServesAndWhatItsPodsWaitFor(t *testing.T) {
	for name, c := range map[string]struct {
		requesters        []*corev1.Pod
		asking            int32
		ready             int32
		available, reason string
		says              string
	}{
		"nobody asks": {nil, 0, 0, "True", v1alpha1.ReasonNoneNeeded, "no Pod asks for it"},
		"all ready":   {[]*corev1.Pod{requester("a", isReady), requester("b", isReady)}, 2, 2, "True", v1alpha1.ReasonAllReady, ""},
		"one has no node": {[]*corev1.Pod{requester("a", isReady), requester("b", isPending)}, 2, 1, "False", v1alpha1.ReasonNotReady,
			"1 of 2 Pods are ready; b has not been placed: no GPU is free"},
		"one cannot start": {[]*corev1.Pod{requester("b", isTold(`{"state":"Waiting","message":"launcher x does not answer"}`), isPulling)}, 1, 0, "False", v1alpha1.ReasonNotReady,
			"0 of 1 Pods are ready; b waits in its container inference-server: ErrImagePull no such image"},
		"one was told": {[]*corev1.Pod{requester("b", isTold(`{"state":"Waiting","message":"launcher x does not answer"}`))}, 1, 0, "False", v1alpha1.ReasonNotReady,
			"0 of 1 Pods are ready; b is waiting: launcher x does not answer"},
		"one is served": {[]*corev1.Pod{requester("b", isTold(`{"state":"Serving","launcher":"x","instance":"llama-1"}`))}, 1, 0, "False", v1alpha1.ReasonNotReady,
			"0 of 1 Pods are ready; b is serving: instance llama-1 on launcher x"},
		"the first by name is told of": {[]*corev1.Pod{requester("z"), requester("b")}, 2, 0, "False", v1alpha1.ReasonNotReady,
			"0 of 2 Pods are ready; b is starting"},
		"those that go do not count": {[]*corev1.Pod{requester("a", isLeaving), requester("b", hasEnded), requester("c", isEnded)}, 0, 0, "True", v1alpha1.ReasonNoneNeeded, "no Pod asks for it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := finding{generation: 3, there: true, requesters: c.requesters, asleep: map[string]int{"node-2": 1, "node-1": 2}}
			var s v1alpha1.InferenceServerConfigStatus
			f.tell(&s)
			assert.EqualValues(t, 3, s.ObservedGeneration)
			assert.Equal(t, c.asking, s.Requesters)
			assert.Equal(t, c.ready, s.Ready)
			assert.EqualValues(t, 3, s.Asleep)
			assert.Equal(t, "node-1, node-2", s.SleepsOn)
			assert.True(t, meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAccepted))
			got := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable)
			assert.Equal(t, []string{c.available, c.reason, c.says}, []string{string(got.Status), got.Reason, got.Message})
		})
	}
}

func TestAConfigurationThatCannotBeUsedSaysWhatWouldBeRight(t *testing.T) {
	accepted := func(f finding) *metav1.Condition {
		var s v1alpha1.InferenceServerConfigStatus
		f.tell(&s)
		return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
	}
	missing := accepted(finding{namespace: "ns", launcherConfig: "vllm"})
	assert.Equal(t, v1alpha1.ReasonLauncherConfigMissing, missing.Reason)
	assert.Equal(t, "spec.launcherConfigName: there is no LauncherConfig vllm in namespace ns: create it, or name another one", missing.Message)
	byHand := accepted(finding{namespace: "ns", launcherConfig: "vllm", launchers: 1})
	assert.Equal(t, metav1.ConditionTrue, byHand.Status)

	options := "model --port 1 'open"
	_, problems := form.CheckConfig(&v1alpha1.InferenceServerConfig{Spec: v1alpha1.InferenceServerConfigSpec{
		ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Options: &options}, LauncherConfigName: "vllm",
	}})
	invalid := accepted(finding{there: true, problems: problems})
	assert.Equal(t, v1alpha1.ReasonInvalid, invalid.Reason)
	assert.Contains(t, invalid.Message, "spec.modelServerConfig.options")
}

func TestLauncherWithTheAnnotationOfARequesterIsNotCounted(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama"}, Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: "vllm"}}
	launcherConfig := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "vllm"}}
	in := func(p *corev1.Pod) { p.Namespace = "ns" }
	labels := func(p *corev1.Pod) { p.Labels = launcherpool.Labels("vllm") }
	owned := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "any/v1", Kind: "LauncherConfig", Name: "vllm", UID: "vllm", Controller: new(true)}}
	}
	gated := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
	}
	index := func(of func(*corev1.Pod) []string) client.IndexerFunc {
		return func(o client.Object) []string { return of(o.(*corev1.Pod)) }
	}
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, IndexConfig, index(IndexedConfig)).WithIndex(&corev1.Pod{}, launcherpool.IndexConfig, index(launcherpool.IndexedConfig)).
		WithObjects(config, launcherConfig, requester("asks", in), requester("gated", in, gated), requester("stranger", in, labels), requester("launcher", in, labels, owned)).Build()
	f, err := New(Options{API: api, Views: said{}}).look(t.Context(), config)
	require.NoError(t, err)
	var names []string
	for _, pod := range f.requesters {
		names = append(names, pod.Name)
	}
	assert.ElementsMatch(t, []string{"asks", "gated", "stranger"}, names)
	assert.Equal(t, 1, f.launchers)
}

// said are what launchers say, by the UID of their Pods.
type said map[string]nodeview.View

func (s said) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := s[key]
	return view.Pick(keep)
}

func TestTheInstancesOfAConfigurationAreToldFromOthers(t *testing.T) {
	config := &v1alpha1.InferenceServerConfig{Spec: v1alpha1.InferenceServerConfigSpec{
		ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Args: []string{"org/llama"}}, LauncherConfigName: "vllm",
	}}
	wanted, problems := form.CheckConfig(config)
	require.Empty(t, problems)
	launcherOn := func(node string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(node)}}
		pod.Spec.NodeName = node
		pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm:1"}}
		return pod
	}
	pod := launcherOn("node-1")
	on, _ := wanted.On(&pod.Spec)
	ids := form.InstanceIDs(on)
	other := on
	other.Args = []string{"org/llama", "--seed=2"}
	views := said{"node-1": {Instances: map[string]launcherapi.Instance{
		ids([]string{"GPU-0"}):                    {State: "sleeping", GPUUUIDs: []string{"GPU-0"}},
		ids([]string{"GPU-1"}):                    {State: "awake", GPUUUIDs: []string{"GPU-1"}},
		form.InstanceID(other, []string{"GPU-0"}): {State: "sleeping", GPUUUIDs: []string{"GPU-0"}},
		"by-hand": {State: "sleeping", GPUUUIDs: []string{"GPU-0"}},
	}}}
	got := New(Options{Views: views}).asleep(wanted, []*corev1.Pod{pod, launcherOn("node-2")})
	assert.Equal(t, map[string]int{"node-1": 1}, got)
}
