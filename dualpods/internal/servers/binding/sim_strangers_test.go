package binding

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const strangerPrefix = "stranger-"

// simOwner is the LauncherConfig that owns launchers; it has no name where there is none.
func simOwner(config string) metav1.OwnerReference {
	if config != "each" && config != "demand" {
		return metav1.OwnerReference{}
	}
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "LauncherConfig", Name: config, UID: types.UID("config-" + config), Controller: new(true),
	}
}

// launcherPrefix begins the names of launchers.
const launcherPrefix = "launcher-"

// simIsLauncher says that a Pod is a launcher, and not one that looks like it: a stranger, or
// a requester with the labels of a launcher.
func simIsLauncher(pod *corev1.Pod) bool {
	return dualpods.LooksLike(pod) == dualpods.KindLauncher && strings.HasPrefix(pod.Name, launcherPrefix)
}

func isSimStranger(pod *corev1.Pod) bool {
	return pod != nil && strings.HasPrefix(pod.Name, strangerPrefix)
}

// addStranger makes a Pod that looks like a launcher and runs: nothing owns it, or what it
// names as its owner has another UID. The controller must not call it.
func (s *sim) addStranger(node string, how uint64) {
	name := strangerPrefix + node
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), CreationTimestamp: metav1.Now(), Labels: map[string]string{
			podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "each", podmeta.LabelManagedBy: podmeta.ManagedBy,
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm"}}},
	}
	owner := simOwner("each")
	switch how % 5 {
	case 1:
		owner.UID = "made up"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 2:
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = "apps/v1", "DaemonSet", "each-launcher", "made up"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 3:
		owner.Controller = nil
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 4: // it is an orphan then: somebody who may write finalizers and records has forged it
		key, value, err := simForgery(node).Encode()
		if err != nil {
			panic(err)
		}
		pod.Finalizers, pod.Annotations = []string{podmeta.FinalizerProvider}, map[string]string{key: value}
	}
	runs(pod, "10.9.0.1")
	s.api.putPod(pod)
}

// isForged says that a stranger was forged as an orphan.
func isForged(pod *corev1.Pod) bool {
	return isSimStranger(pod) && slices.Contains(pod.Finalizers, podmeta.FinalizerProvider)
}

// simForgery is the record of a forged orphan, of a requester that is not there.
func simForgery(node string) podmeta.Binding {
	return podmeta.Binding{
		Instance: "lie", RequesterUID: "made-up", Namespace: "ns", Name: "made-up", GPUs: nodeGPUs(node), ServingPort: 8000, SpecHash: "h", Attempt: 1, Since: time.Now(),
	}
}

// simForeignRecord is a record on a launcher that names another namespace. An
// administrator has made it up; it counts for nothing, and the controller leaves it.
func simForeignRecord(node string) (key, value string) {
	b := simForgery(node)
	b.Instance, b.Namespace = "foreign", "elsewhere"
	key, value, err := b.Encode()
	if err != nil {
		panic(err)
	}
	return key, value
}

// watchStranger begins a stream of a stranger. Only a forged orphan may be called. It shows a
// token, and says that a model of the controller's is awake on all GPUs of its node.
func (inc *incarnation) watchStranger(key string, target nodeview.Target) {
	pod := inc.s.api.pods[key]
	switch {
	case pod == nil || inc.views[key] != nil || inc.dead:
		return
	case !isForged(pod):
		inc.s.violated("the Pod %s is called, which no LauncherConfig owns", key)
		return
	}
	gpus := nodeGPUs(pod.Spec.NodeName)
	inc.views[key] = &simView{target: target, View: nodeview.View{Connected: true, GPUs: gpus, Revision: 1, Instances: map[string]launcherapi.Instance{"lie": {
		InstanceID: "lie", State: string(launcher.Awake), GPUUUIDs: gpus, Port: 9000, Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/made-up"},
	}}}}
}

// simLiar answers all calls, and does nothing.
type simLiar struct{}

func (simLiar) SwapOnce(context.Context, string, launcherapi.SwapRequest, func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	return launcherapi.SwapResult{}, nil
}
func (simLiar) CallOff(context.Context, string) error { return nil }
func (simLiar) Sleep(context.Context, string, launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return launcherapi.Instance{Revision: 1}, nil
}
func (simLiar) Delete(context.Context, string) (launcherapi.Instance, error) {
	return launcherapi.Instance{Revision: 1}, nil
}

// strangerWritten looks at a write of the controller to a stranger.
func (s *sim) strangerWritten(pod *corev1.Pod) {
	if !isForged(pod) {
		s.violated("the controller writes the Pod %s, which no LauncherConfig owns", pod.Name)
	}
}

// checkStranger looks whether the controller has left a stranger alone.
func (s *sim) checkStranger(pod *corev1.Pod) {
	key, _, err := simForgery(pod.Spec.NodeName).Encode()
	if err != nil {
		panic(err)
	}
	if pod.Annotations[key] != "" {
		return // forged, also where an uninstallation took the finalizer: an administrator has to delete it
	}
	if len(podmeta.BoundTo(pod)) > 0 || slices.Contains(pod.Finalizers, podmeta.FinalizerProvider) {
		s.violated("at rest: the Pod %s, which no LauncherConfig owns, has a record or our finalizer", pod.Name)
	}
}

func TestPodsThatLookLikeLaunchersAreNotCalledAndHoldNobodyUp(t *testing.T) {
	for how := range uint64(5) {
		script := []simEvent{{at: time.Second, what: "stranger", arg: how}, {at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "kill controller"}}
		out := simulate(t, 1, script, decide.Tables, false)
		assert.Empty(t, out.wrong)
		assert.Equal(t, 1, out.served)
	}
}
