package manager

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/podcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/endpoints"
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
		o.Status, o.Annotations = corev1.NodeStatus{Conditions: readiness(o), Allocatable: allocatableGPUs(o)}, nil
		o.Labels = podcache.Texts(o.Labels) // a thousand nodes have one for each of the same hundred models
	case *corev1.Service:
		if !endpoints.Concerns(o) && podmeta.ServingOf(o) == nil {
			o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
			o.Spec, o.Status = corev1.ServiceSpec{}, corev1.ServiceStatus{}
		}
	case *corev1.ServiceAccount:
		o.Annotations, o.Labels, o.OwnerReferences = nil, nil, nil
	case *metav1.PartialObjectMetadata: // of a namespace
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != podmeta.AnnotationModelCache })
		o.Labels, o.OwnerReferences, o.Finalizers = nil, nil, nil
	}
	if o, err := meta.Accessor(in); err == nil { // else the last that is known of what is gone
		o.SetManagedFields(nil)
	}
	return in, nil
}

// requesting returns a container with nothing but a request for GPUs.
func requesting(gpus int64) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}}}
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

// allocatableGPUs is how many GPUs of a node Pods may have.
func allocatableGPUs(node *corev1.Node) corev1.ResourceList {
	gpus, has := node.Status.Allocatable[podmeta.ResourceGPU]
	if !has {
		return nil
	}
	return corev1.ResourceList{podmeta.ResourceGPU: gpus}
}

// slimPod makes the controller's own Pods compact: requesters, launchers, agents, Pods that wait
// for their placement or their gang, those of ModelServings and those that fetch a model. It keeps
// the names of other Pods. If they mount a claim or have GPUs, it also keeps which claim, how many
// GPUs, where, and whether they have ended.
func slimPod(pod *corev1.Pod) {
	if dualpods.LooksLike(pod) != dualpods.KindOther || podmeta.IsAgent(pod) || podmeta.AwaitsPlacement(pod) || podmeta.AwaitsGang(pod) || podmeta.ServingOf(pod) != nil || pod.Labels[podmeta.LabelModelCacheUID] != "" ||
		pod.Labels[podmeta.LabelModel] != "" || pod.Labels[podmeta.LabelComponent] == podmeta.ComponentFrontDoor {
		podcache.Compact(pod)
		return
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	claims := slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil })
	phase, gpus := pod.Status.Phase, podmeta.ReservedGPUs(&pod.Spec)
	pod.Spec, pod.Status = corev1.PodSpec{NodeName: pod.Spec.NodeName}, corev1.PodStatus{}
	if len(claims) > 0 {
		pod.Spec.Volumes, pod.Status.Phase = slices.Clone(claims), phase
	}
	if gpus > 0 {
		pod.Spec.Containers, pod.Status.Phase = []corev1.Container{requesting(gpus)}, phase
	}
}
