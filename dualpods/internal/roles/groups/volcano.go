package groups

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// scheduledBy has a Pod scheduled as its ModelServing says. A Pod that Volcano schedules names its
// PodGroup, and its task in it: the replica of its role. With a gang policy, a counted Pod that
// Kubernetes schedules names its PodGroup, and every other Pod has a gate.
func (w *World) scheduledBy(p place, pod *corev1.Pod) {
	if name := w.Serving.Spec.SchedulerName; name != "" {
		pod.Spec.SchedulerName = name
	}
	if w.Serving.Spec.UsesVolcano() {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, volcano.KubeGroupNameAnnotationKey, p.groupName())
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batch.TaskSpecKey, p.roleID())
	}
	switch {
	case !w.Serving.Spec.UsesGates():
	case w.Kubernetes && IsCounted(w.Serving, &w.planOf(p).template.Roles[p.order], p.replica):
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(p.groupName())}
	default:
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: podmeta.GateGang})
	}
}

// IsCounted reports whether a replica of a role is one of those that get nodes together where
// Kubernetes' own scheduler places the group: one of the first. A Pod says when it is created
// whether it is counted, so the numbers decide.
func IsCounted(serving *v1alpha1.ModelServing, role *v1alpha1.ServingRole, replica int) bool {
	policy := serving.Spec.Template.Gang()
	return policy != nil && replica < policy.Counted(role)
}

// Requests returns the resources that a Pod of a role requests; pod 0 is the entry. A template that
// is not valid requests nothing.
func Requests(role *v1alpha1.ServingRole, pod int) corev1.ResourceList {
	made, problems := templatesOf(role, "")
	if len(problems) > 0 {
		return nil
	}
	is := &corev1.Pod{Spec: *made.of(place{pod: pod}).Spec.DeepCopy()}
	for _, containers := range [][]corev1.Container{is.Spec.InitContainers, is.Spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	return resourcehelpers.PodRequests(is, resourcehelpers.PodResourcesOptions{})
}

// PriorityClass returns the priority class of the entries of a role; empty: they have none, or their
// template is not valid.
func PriorityClass(role *v1alpha1.ServingRole) string {
	made, problems := templatesOf(role, "")
	if len(problems) > 0 {
		return ""
	}
	return made.entry.Spec.PriorityClassName
}

// requestLimits requests what is limited and not requested, as the API server does.
func requestLimits(r *corev1.ResourceRequirements) {
	requests := corev1.ResourceList{}
	maps.Copy(requests, r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}
