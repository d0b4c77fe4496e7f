package launcherpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestIdleTimeStartsAtTheLastUseOfALauncher(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	launcher := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := launcherPod("a", "hash", func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-7 * time.Minute))
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Second)),
			}}
		})
		if change != nil {
			change(pod)
		}
		return pod
	}
	unbound := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations[podmeta.AnnotationUnboundSince] = now.Add(-ago).Format(time.RFC3339)
		}
	}
	ended := func(pod *corev1.Pod) {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, RestartCount: 3, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
		}}}
	}
	with := func(states ...string) nodeview.View {
		view := nodeview.View{Instances: map[string]launcherapi.Instance{}}
		for _, s := range states {
			view.Instances[s] = launcherapi.Instance{State: s}
		}
		return view
	}
	never := time.Time{}
	for name, c := range map[string]struct {
		pod           *corev1.Pod
		view          nodeview.View
		noWaiterSince time.Time
		left          time.Duration // negative: it is removed
		idle          bool
	}{
		"it was never bound":                          {launcher(nil), with(), never, 3 * time.Minute, true},
		"its requester was unbound":                   {launcher(unbound(2 * time.Minute)), with("sleeping", "failed"), never, 8 * time.Minute, true},
		"its waiting requester is gone":               {launcher(nil), with(), now.Add(-time.Minute), 9 * time.Minute, true},
		"its annotation is older than the Pod":        {launcher(unbound(time.Hour)), with("sleeping"), never, 3 * time.Minute, true},
		"its annotation is of a clock that was ahead": {launcher(unbound(-time.Hour)), with("sleeping"), never, 3 * time.Minute, true},
		"its annotation is not a time":                {launcher(func(pod *corev1.Pod) { pod.Annotations[podmeta.AnnotationUnboundSince] = "soon" }), with(), never, 3 * time.Minute, true},
		"its timeout is over": {launcher(func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		}), with(), never, -50 * time.Minute, true},
		"its timeout is over now": {launcher(func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-10 * time.Minute))
		}), with(), never, 0, true},
		"its annotation is of a clock that is a little ahead": {launcher(unbound(-5 * time.Minute)), with("sleeping"), never, 15 * time.Minute, true},
		"it is not ready yet":                           {launcher(func(pod *corev1.Pod) { pod.Status.Conditions = nil }), with(), never, 3 * time.Minute, true},
		"its container has ended":                       {launcher(ended), with("awake"), never, 3 * time.Minute, true},
		"it has an instance that somebody woke by hand": {launcher(nil), with("sleeping", "awake"), never, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := unused{pod: c.pod, config: &v1alpha1.LauncherConfig{}, now: now, node: "node-0", timeout: &metav1.Duration{Duration: 10 * time.Minute}, noWaiterSince: c.noWaiterSince, view: c.view}
			again, reason, _ := u.verdict()
			assert.Equal(t, max(c.left, 0), again)
			assert.Equal(t, c.idle && c.left <= 0, reason == "Idle")
		})
	}
}

// pending returns a launcher that was created an hour ago for a node and that the
// scheduler cannot place.
func pending(node string) *corev1.Pod {
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "config-uid"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: Labels("vllm")}}
	template.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm:1"}}
	pod := podOn(config, template, node)
	pod.UID, pod.CreationTimestamp = types.UID("launcher-of-"+node), metav1.NewTime(time.Now().Add(-time.Hour))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "untolerated taint"}}
	return pod
}

// asking returns a requester on node-0 that names an InferenceServerConfig.
func asking(config string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web-0", UID: "web-0", Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: config},
	}}
	pod.Spec.NodeName = "node-0"
	pod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")},
	}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// needsOf reads what requesters need. A patch of these tests is the name of an image.
func needsOf(api client.Reader) func(context.Context, *corev1.Pod) (*dualpods.LauncherNeed, error) {
	return func(ctx context.Context, pod *corev1.Pod) (*dualpods.LauncherNeed, error) {
		read, problems := podmeta.ReadRequester(pod)
		need := &dualpods.LauncherNeed{Namespace: pod.Namespace, Config: read.LauncherConfig, Node: pod.Spec.NodeName}
		if len(problems) > 0 {
			return nil, nil
		}
		if read.Input == podmeta.InputPatch {
			need.Image = read.Patch
			return need, nil
		}
		var server v1alpha1.InferenceServerConfig
		if err := api.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: read.ConfigName}, &server); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		need.Config = server.Spec.LauncherConfigName
		return need, nil
	}
}

func serverOf(name, launcherConfig string) *v1alpha1.InferenceServerConfig {
	return &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: launcherConfig},
	}
}

// idlePool returns a Pool of mode OnDemand. look makes it check for idle launchers, and
// left lists the nodes whose launchers are still there.
func idlePool(t *testing.T, timeout time.Duration, there ...client.Object) (p *Pool, look func() time.Duration, left func() []string, told *events.FakeRecorder) {
	t.Helper()
	p, config, told := poolOf(t, v1alpha1.OnDemand, append(there, serverOf("llama", "vllm"), serverOf("qwen", "other"))...)
	if timeout > 0 {
		config.Spec.Population.IdleTimeout = &metav1.Duration{Duration: timeout}
	}
	list := func() []*corev1.Pod {
		pods, err := p.launchers(t.Context(), config)
		require.NoError(t, err)
		return pods
	}
	look = func() time.Duration {
		again, err := p.removeUnwanted(t.Context(), &observation{config: config, launchers: list()})
		require.NoError(t, err)
		return again
	}
	left = func() (names []string) {
		for _, pod := range list() {
			names = append(names, NodeOf(pod))
		}
		return names
	}
	return p, look, left, told
}

func TestUnreadyLauncherIsRemovedUnlessARequesterWaits(t *testing.T) {
	leaving := func(pod *corev1.Pod) {
		pod.Finalizers, pod.DeletionTimestamp = []string{podmeta.FinalizerRequester}, &metav1.Time{Time: time.Now()}
	}
	patch := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{podmeta.AnnotationServerPatch: "vllm:1"}
	}
	named := func(name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { patch(pod); pod.Annotations[podmeta.AnnotationLauncherConfig] = name }
	}
	elsewhere := func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }
	for name, c := range map[string]struct {
		there []client.Object
		stays bool
	}{
		"no requester is there":                            {nil, false},
		"the requester names its LauncherConfig":           {[]client.Object{asking("llama")}, true},
		"the requester names another LauncherConfig":       {[]client.Object{asking("qwen")}, false},
		"the requester's InferenceServerConfig is missing": {[]client.Object{asking("none")}, false},
		"a patch names its LauncherConfig":                 {[]client.Object{asking("", named("vllm"))}, true},
		"a patch names another LauncherConfig":             {[]client.Object{asking("", named("other"))}, false},
		"a patch names the image of the launcher":          {[]client.Object{asking("", patch)}, true},
		"a patch names another image": {[]client.Object{asking("", func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{podmeta.AnnotationServerPatch: "vllm:2"}
		})}, false},
		"the requester is on another node": {[]client.Object{asking("llama", elsewhere)}, false},
		"the requester is being deleted":   {[]client.Object{asking("llama", leaving)}, false},
		"the requester has ended":          {[]client.Object{asking("llama", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })}, false},
		"the kubelet ends the requester": {[]client.Object{asking("llama", func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}}
		})}, false},
		"another launcher has the annotations of a requester": {[]client.Object{asking("llama", func(pod *corev1.Pod) {
			pod.Labels, pod.Finalizers = Labels("other"), []string{podmeta.FinalizerProvider}
		})}, false},
		"the requester's input is invalid": {[]client.Object{asking("llama", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Limits = nil })}, false},
		"another launcher serves the requester": {[]client.Object{asking("llama"), launcherPod("other-launcher", "", func(pod *corev1.Pod) {
			pod.Namespace, pod.Labels, pod.Spec.NodeName = "ns", Labels("other"), "node-0"
			pod.Finalizers = []string{podmeta.FinalizerProvider}
			pod.Annotations[podmeta.AnnotationBindingPrefix+"x"] = `{"requesterUID":"web-0","namespace":"ns","name":"web-0","gpus":["GPU-0"],"servingPort":8000,"specHash":"h","attempt":1,"since":"2026-11-22T12:00:00Z"}`
		})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, look, left, told := idlePool(t, 10*time.Minute, append(c.there, pending("node-0"))...)
			again := look()
			if c.stays {
				assert.Equal(t, []string{"node-0"}, left())
				assert.Equal(t, waiterRecheck, again, "no event reports that it stopped waiting")
				return
			}
			assert.Empty(t, left())
			require.Len(t, told.Events, 1)
			assert.Equal(t, "Normal Idle launcher "+podName("vllm", "node-0")+" of node node-0 has had no requester for 10m0s", <-told.Events)
		})
	}
}

func TestIdleTimeRestartsWhenTheLastWaitingRequesterGoes(t *testing.T) {
	requester := asking("llama")
	p, look, left, _ := idlePool(t, 10*time.Minute, requester, pending("node-0"))
	assert.Equal(t, waiterRecheck, look())
	require.NoError(t, p.opts.API.Delete(t.Context(), requester))
	assert.InDelta(t, 10*time.Minute, look(), float64(time.Minute), "a requester waited until now")
	assert.Equal(t, []string{"node-0"}, left())
	p.noWaiterSince["launcher-of-node-0"] = time.Now().Add(-10 * time.Minute)
	look()
	assert.Empty(t, left())
	p.trackLaunchers(client.ObjectKey{Namespace: "ns", Name: "vllm"}, nil)
	assert.Empty(t, p.noWaiterSince, "a deleted launcher is forgotten")
}

func TestUnscheduledLauncherIsRemovedWithItsNode(t *testing.T) {
	placed := pending("node-2")
	placed.Spec.NodeName = "node-2" // the garbage collector deletes it
	_, look, left, told := idlePool(t, 0, pending("node-0"), pending("node-1"), placed)
	assert.Zero(t, look())
	assert.ElementsMatch(t, []string{"node-0", "node-2"}, left())
	require.Len(t, told.Events, 1)
	assert.Equal(t, "Normal NodeGone node node-1 of launcher "+podName("vllm", "node-1")+" is gone", <-told.Events)
}

func TestMisplacedLauncherIsRemovedWhoeverWaits(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	pod := launcherPod("a", "hash", func(pod *corev1.Pod) { pod.CreationTimestamp, pod.Spec.NodeName = metav1.NewTime(now), "" })
	timeout := &metav1.Duration{Duration: 10 * time.Second}
	for name, c := range map[string]struct {
		u      unused
		again  time.Duration
		reason string
	}{
		"its node is gone, and it was never scheduled": {unused{nodeGone: true, awaited: true}, 0, "NodeGone"},
		"its node is not selected any more":            {unused{deselected: true, awaited: true, timeout: timeout}, 0, "NodeNotSelected"},
		"a requester waits, and the timeout is short":  {unused{awaited: true, timeout: timeout}, 10 * time.Second, ""},
		"a requester waits":                            {unused{awaited: true, timeout: &metav1.Duration{Duration: time.Hour}}, waiterRecheck, ""},
		"it has no timeout":                            {unused{}, 0, ""},
		"nobody waits for it":                          {unused{timeout: timeout}, 10 * time.Second, ""},
	} {
		c.u.pod, c.u.config, c.u.now, c.u.node = pod, &v1alpha1.LauncherConfig{}, now, "node-0"
		again, reason, why := c.u.verdict()
		assert.Equal(t, c.again, again, name)
		assert.Equal(t, c.reason, reason, name)
		assert.Equal(t, c.reason != "", why != "", name)
	}
	scheduled := unused{nodeGone: true, now: now, config: &v1alpha1.LauncherConfig{}, pod: pod.DeepCopy()}
	scheduled.pod.Spec.NodeName = "node-0"
	_, reason, _ := scheduled.verdict()
	assert.Empty(t, reason, "Kubernetes deletes it")
}
