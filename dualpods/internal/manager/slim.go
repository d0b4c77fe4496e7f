package manager

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/binding"
	"hotseat.dev/hotseat/spec/podmeta"
)

// slim leaves in an object for the cache what the controllers read: of a cluster
// of ten thousand Pods little else than names. What is left of an object can
// still be patched: a patch has the differences alone.
func slim(in any) (any, error) {
	switch o := in.(type) {
	case *corev1.Pod:
		slimPod(o)
	case *corev1.Node:
		o.Spec = corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints}
		o.Status, o.Annotations = corev1.NodeStatus{Conditions: readiness(o)}, nil
	case *metav1.PartialObjectMetadata: // of a namespace
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != podmeta.AnnotationModelCache })
		o.Labels, o.OwnerReferences, o.Finalizers = nil, nil, nil
	}
	if o, err := meta.Accessor(in); err == nil { // else the last that is known of what is gone
		o.SetManagedFields(nil)
	}
	return in, nil
}

// readiness is a node's condition Ready, but for times.
func readiness(node *corev1.Node) []corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// slimPod leaves requesters, launchers and Pods that wait for their placement as they
// are: a server patch may speak of any field of its requester. Of others it leaves, where
// they mount a model, which one, and whether they have finished.
func slimPod(pod *corev1.Pod) {
	if binding.IsLauncher(pod) || podmeta.IsRequester(pod) || podmeta.AwaitsPlacement(pod) {
		return
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	models, phase := slimVolumes(pod.Spec.Volumes), corev1.PodPhase("")
	if len(models) > 0 {
		phase = pod.Status.Phase
	}
	pod.Spec, pod.Status = corev1.PodSpec{NodeName: pod.Spec.NodeName, Volumes: models}, corev1.PodStatus{Phase: phase}
}
