package launcherpool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// objectName is the name of a LauncherConfig's DaemonSet, and what the names of
// its Pods and Secrets begin with.
func objectName(config string) string { return config + "-launcher" }

// podName is the name of the launcher of a LauncherConfig on a node: one name,
// one Pod, however often it is made.
func podName(config, node string) string {
	sum := sha256.Sum256([]byte(node))
	return objectName(config) + "-" + hex.EncodeToString(sum[:5])
}

// podOn is the launcher that a LauncherConfig of mode OnDemand has on a node.
// The scheduler puts it there, so that taints and resources count.
func podOn(config *v1alpha1.LauncherConfig, template corev1.PodTemplateSpec, node string) *corev1.Pod {
	pod := &corev1.Pod{Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = config.Namespace, podName(config.Name, node)
	pod.Labels, pod.Annotations = template.Labels, template.Annotations
	pod.OwnerReferences = []metav1.OwnerReference{ownedBy(config)}
	affinity := pod.Spec.Affinity
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for n := range required.NodeSelectorTerms { // one of them must hold
		term := &required.NodeSelectorTerms[n]
		term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	pod.Spec.Affinity = affinity
	return pod
}

func ownedBy(config *v1alpha1.LauncherConfig) metav1.OwnerReference {
	return *metav1.NewControllerRef(config, v1alpha1.GroupVersion.WithKind("LauncherConfig"))
}

// NodeOf is the node that a launcher Pod is on, or is meant for while the
// scheduler has not placed it: DaemonSets name it as this package does. Empty
// where it is not known.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// bound says that a launcher has a record of a requester, readable or not.
func bound(pod *corev1.Pod) bool {
	bindings, problems := podmeta.ReadBindings(pod)
	return len(bindings)+len(problems) > 0
}

// why says what a launcher Pod that is not ready waits for.
func why(pod *corev1.Pod) string {
	why, _ := podmeta.Waits(pod)
	return cmp.Or(why, "is starting")
}
