package simulation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// putPool makes the LauncherConfig of a group's launchers, which has the group's name.
func (w *world) putPool(group string) {
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: group, UID: types.UID("pool-" + group)}}
	config.Spec.ModelCache = &v1alpha1.LauncherModelCache{NodeGroup: group}
	config.Spec.Population.NodeSelector = map[string]string{simLabel: "yes"}
	w.api.put(config)
}

// putStranger makes a Pod that looks like a launcher of a group, and that the pool has not
// made: nothing owns it, or what it names as its owner has another UID. A controller
// that asks its program believes it.
func (w *world) putStranger(node string, n uint64) {
	group := groupNames[n%uint64(len(groupNames))]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stranger-" + node, Labels: map[string]string{
			podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: group, podmeta.LabelModelNodeGroup: group,
			podmeta.LabelManagedBy: podmeta.ManagedBy,
		}},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: simImage}},
			Volumes: []corev1.Volume{{Name: podmeta.VolumeModels, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: w.pathOf(group)}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LauncherConfig", Name: group, UID: "made up", Controller: new(true)}
	switch n % 4 {
	case 1:
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 2:
		owner.APIVersion, owner.Kind, owner.Name = "apps/v1", "DaemonSet", group+"-launcher"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	case 3: // it names the right one, which does not control it
		owner.UID, owner.Controller = w.api.objects[pools][group].GetUID(), nil
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
	pod.UID = types.UID(fmt.Sprint("stranger-", node))
	w.strangers[string(pod.UID)] = true
	w.api.put(pod)
}

func (w *world) isStranger(pod *corev1.Pod) bool { return w.strangers[string(pod.UID)] }

// believed notes that a controller asks for what a Pod says, or calls it.
func (w *world) believed(key string) {
	if w.strangers[key] {
		w.violated("a stranger is believed", "%s", key)
	}
}
