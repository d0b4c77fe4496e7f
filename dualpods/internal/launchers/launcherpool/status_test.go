package launcherpool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// launcherPod returns a launcher of the plain LauncherConfig, made from the template with
// that hash.
func launcherPod(name, hash string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{podmeta.AnnotationTemplateHash: hash},
	}}
	pod.Spec.NodeName = "node-of-" + name
	if change != nil {
		change(pod)
	}
	return pod
}

func isReady(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestStatusCountsLaunchersAndExplainsTheWait(t *testing.T) {
	pool := New(Options{Views: nodeview.New(nodeview.Options{})})
	config := configOf(t, plain)
	made, _ := Template(config, image, "token", nil, "")
	hash := made.Annotations[podmeta.AnnotationTemplateHash]
	pulling := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "inference-server", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"},
		}}}
	}
	creating := func(pod *corev1.Pod) {
		pulling(pod)
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	set := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}}
	for name, c := range map[string]struct {
		mode      v1alpha1.PopulationMode
		launchers []*corev1.Pod
		failure   string
		ready     int32
		outdated  int32
		reason    string
		says      string
	}{
		"all are ready":               {v1alpha1.PerNode, []*corev1.Pod{launcherPod("a", hash, isReady), launcherPod("b", hash, isReady)}, "", 2, 0, v1alpha1.ReasonAllReady, ""},
		"one has an earlier template": {v1alpha1.PerNode, []*corev1.Pod{launcherPod("a", hash, isReady), launcherPod("b", "old", isReady)}, "", 2, 1, v1alpha1.ReasonAllReady, ""},
		"one cannot pull its image":   {v1alpha1.PerNode, []*corev1.Pod{launcherPod("a", hash, isReady), launcherPod("b", hash, pulling)}, "", 1, 0, v1alpha1.ReasonNotReady, "1 of 2 launchers are ready; b on node node-of-b waits in its container inference-server: ImagePullBackOff no such image"},
		"one is being created":        {v1alpha1.PerNode, []*corev1.Pod{launcherPod("a", hash, isReady), launcherPod("b", hash, creating)}, "", 1, 0, v1alpha1.ReasonNotReady, "1 of 2 launchers are ready; b on node node-of-b is starting"},
		"one has ended":               {v1alpha1.OnDemand, []*corev1.Pod{launcherPod("a", hash, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, "", 0, 0, v1alpha1.ReasonNoneNeeded, "no requester needs a launcher yet"},
		"none is needed":              {v1alpha1.OnDemand, nil, "", 0, 0, v1alpha1.ReasonNoneNeeded, "no requester needs a launcher yet"},
		"the pass failed":             {v1alpha1.PerNode, nil, "cannot make DaemonSet x", 0, 0, v1alpha1.ReasonNotReady, "cannot make DaemonSet x"},
	} {
		t.Run(name, func(t *testing.T) {
			config.Spec.Population.Mode = c.mode
			f := &observation{config: config, template: made, launchers: c.launchers, failure: c.failure}
			if c.mode == v1alpha1.PerNode {
				f.daemonSet = set
			}
			var s v1alpha1.LauncherConfigStatus
			pool.countLaunchers(f, &s)
			assert.Equal(t, c.ready, s.Ready)
			assert.Equal(t, c.outdated, s.Outdated)
			got := availableCondition(f, &s)
			assert.Equal(t, c.reason, got.Reason)
			assert.Equal(t, c.says, got.Message)
		})
	}
}

func TestNoNodesNamesTheMissingLabels(t *testing.T) {
	f := &observation{config: configOf(t, plain)}
	f.config.Spec.Population.Mode = v1alpha1.PerNode
	f.template.Spec.NodeSelector = map[string]string{"gpu": "h100", "zone": "a"}
	is := availableCondition(f, &v1alpha1.LauncherConfigStatus{})
	assert.Equal(t, v1alpha1.ReasonNoNodes, is.Reason)
	assert.Contains(t, is.Message, "has the labels gpu=h100,zone=a, which spec.population.nodeSelector and spec.podTemplate ask for")
	f.template.Spec.NodeSelector = nil
	assert.NotContains(t, availableCondition(f, &v1alpha1.LauncherConfigStatus{}).Message, "labels")
}

func TestLauncherWithUnreadableRecordIsBound(t *testing.T) {
	assert.False(t, isBound(launcherPod("a", "", nil)))
	assert.True(t, isBound(launcherPod("a", "", func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationBindingPrefix+"x"] = "damaged" })))
}

// foreignRecord is a readable record of a requester of namespace elsewhere.
const foreignRecord = `{"requesterUID":"u","namespace":"elsewhere","name":"web-0","gpus":["GPU-0"],"servingPort":8000,"specHash":"h","attempt":1,"since":"2026-11-22T12:00:00Z"}`

func TestRecordOfAnotherNamespaceBindsNoLauncher(t *testing.T) {
	pool := New(Options{Views: said{"a": view("a-1")}})
	pod := launcherPod("a", "", func(p *corev1.Pod) {
		p.Namespace, p.UID = "ns", "a"
		p.Annotations[podmeta.AnnotationBindingPrefix+"a-1"] = foreignRecord
	})
	assert.False(t, isBound(pod), "it has no finalizer, and can be replaced")
	var s v1alpha1.LauncherConfigStatus
	pool.countLaunchers(&observation{config: configOf(t, plain), launchers: []*corev1.Pod{pod}}, &s)
	assert.Zero(t, s.Requesters)
	assert.Empty(t, s.Instances[0].Requester)
}

func TestStatusListsABoundedNumberOfInstances(t *testing.T) {
	pool := New(Options{Views: said{"a": view("b-1", "a-1"), "z": view(many(v1alpha1.MaxListedInstances)...)}})
	bound := launcherPod("a", "", func(p *corev1.Pod) {
		p.Namespace, p.UID = "ns", "a"
		p.Annotations[podmeta.AnnotationBindingPrefix+"b-1"] = "damaged"
		p.Annotations[podmeta.AnnotationBindingPrefix+"a-1"] = `{"requesterUID":"u","namespace":"ns","name":"web-0","gpus":["GPU-0"],"servingPort":8000,"specHash":"h","attempt":1,"since":"2026-11-22T12:00:00Z"}`
	})
	var s v1alpha1.LauncherConfigStatus
	pool.countLaunchers(&observation{config: configOf(t, plain), launchers: []*corev1.Pod{launcherPod("z", "", func(p *corev1.Pod) { p.UID = "z" }), bound}}, &s)
	assert.Len(t, s.Instances, v1alpha1.MaxListedInstances)
	assert.EqualValues(t, 2, s.InstancesLeftOut)
	assert.EqualValues(t, 2, s.Requesters, "one of the two records cannot be read")
	assert.Equal(t, v1alpha1.LauncherInstance{
		Node: "node-of-a", Name: "a-1", State: "sleeping", Since: metav1.NewTime(since), Requester: "web-0", GPUs: []string{"GPU-0"},
	}, s.Instances[0])
	assert.Equal(t, "b-1", s.Instances[1].Name)
	assert.Empty(t, s.Instances[1].Requester)
	assert.Equal(t, "node-of-z", s.Instances[2].Node)
}

var since = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// said are the views of launchers, by the UID of their Pods.
type said map[string]nodeview.View

func (s said) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := s[key]
	return view.Pick(keep)
}

// view returns the view of a launcher whose instances all sleep.
func view(ids ...string) nodeview.View {
	v := nodeview.View{Instances: map[string]launcherapi.Instance{}}
	for _, id := range ids {
		v.Instances[id] = launcherapi.Instance{InstanceID: id, State: "sleeping", StateSince: since, GPUUUIDs: []string{"GPU-0"}}
	}
	return v
}

func many(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("model-%03d", i))
	}
	return ids
}

func TestStatusSaysWhoseWordCountsForGPUs(t *testing.T) {
	for spec, want := range map[string]struct {
		status metav1.ConditionStatus
		says   string
	}{
		"": {metav1.ConditionTrue, ""},
		"allocationCheck: {kubeletDir: /var/lib/kubelet}\n": {metav1.ConditionTrue, ""}, // by an earlier default
		"allocationCheck: {kubeletDir: /var/lib/k0s}\n":     {metav1.ConditionTrue, "spec.allocationCheck.kubeletDir is not used: the agents of nodes read the folder of the chart's value agent.kubeletDir"},
		"allocationCheck: {mode: None}\n":                   {metav1.ConditionFalse, "spec.allocationCheck.mode is None"},
	} {
		c := allocationsCheckedCondition(configOf(t, spec+plain))
		assert.Equal(t, want.status, c.Status, spec)
		if want.says == "" {
			assert.Empty(t, c.Message, spec)
		}
		assert.Contains(t, c.Message, want.says, spec)
	}
}
