package binding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
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

// simIsLauncher says that a Pod is a launcher, and not one that looks like it.
func simIsLauncher(pod *corev1.Pod) bool {
	return dualpods.MayBeLauncher(pod) && !isSimStranger(pod)
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
	switch how % 4 {
	case 1:
		owner.UID = "made up"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 2:
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = "apps/v1", "DaemonSet", "each-launcher", "made up"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 3:
		owner.Controller = nil
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
	runs(pod, "10.9.0.1")
	s.api.putPod(pod)
}

// checkStranger looks whether the controller has left a stranger alone.
func (s *sim) checkStranger(pod *corev1.Pod) {
	if len(podmeta.BoundTo(pod)) > 0 || slices.Contains(pod.Finalizers, podmeta.FinalizerProvider) {
		s.violated("at rest: the Pod %s, which no LauncherConfig owns, has a record or our finalizer", pod.Name)
	}
}

func TestPodsThatLookLikeLaunchersAreNotCalledAndHoldNobodyUp(t *testing.T) {
	for how := range uint64(4) {
		script := []simEvent{{at: time.Second, what: "stranger", arg: how}, {at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "kill controller"}}
		out := simulate(t, 1, script, rules, false)
		assert.Empty(t, out.wrong)
		assert.Equal(t, 1, out.served)
	}
}
