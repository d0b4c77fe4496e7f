package launcherpool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// podName returns the name of a LauncherConfig's launcher on a node. It is always the
// same, so that a repeated create makes no second Pod.
func podName(config, node string) string {
	sum := sha256.Sum256([]byte(node))
	return dualpods.LauncherSet(config) + "-" + hex.EncodeToString(sum[:5])
}

// podOn returns the launcher that a LauncherConfig of mode OnDemand has on a node.
// The scheduler binds it to the node, so that taints and resources count.
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
	for n := range required.NodeSelectorTerms { // the terms are alternatives
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

// NodeOf returns the node of a launcher Pod. Before the Pod is scheduled, that is the
// node that its affinity names, which DaemonSets set as this package does. It is empty
// when the node is not known.
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

// isBound reports whether a launcher has a record of a requester, readable or not.
func isBound(pod *corev1.Pod) bool { return records(pod) > 0 }

// records counts the records of requesters on a launcher, readable or not.
func records(pod *corev1.Pod) int {
	bindings, problems := podmeta.ReadBindings(pod)
	return len(bindings) + len(problems)
}

// waitReason returns what a launcher Pod that is not ready waits for.
func waitReason(pod *corev1.Pod) string {
	why, _ := podmeta.Waits(pod)
	return cmp.Or(why, "is starting")
}
