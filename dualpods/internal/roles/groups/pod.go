package groups

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// templates are the Pod templates of a role.
type templates struct {
	entry, worker corev1.PodTemplateSpec // worker: only of a role with workers
	size          int                    // how many Pods a replica has
}

// templatesOf returns the Pod templates of a role, or what is wrong with them. image has the
// requester program.
func templatesOf(role *v1alpha1.ServingRole, image string) (t templates, problems []podmeta.Problem) {
	t.size = role.Size()
	if role.EntryTemplate == nil {
		t.entry = requesterTemplate(role, image)
		t.worker = t.entry
		return t, nil
	}
	t.entry, problems = role.EntryPodTemplate()
	if role.WorkerTemplate != nil {
		worker, wrong := role.WorkerPodTemplate()
		t.worker, problems = worker, append(problems, wrong...)
	}
	return t, problems
}

// of returns the template of a Pod.
func (t *templates) of(p place) *corev1.PodTemplateSpec {
	if p.isEntry() {
		return &t.entry
	}
	return &t.worker
}

// haveRanks reports whether the Pods of a replica are the ranks of one server.
func (t *templates) haveRanks() bool {
	return t.size > 1 && isRequester(&t.entry) && isRequester(&t.worker)
}

func isRequester(template *corev1.PodTemplateSpec) bool {
	return podmeta.IsRequester(&corev1.Pod{ObjectMeta: template.ObjectMeta})
}

// rankOf returns which rank of a server a Pod is.
func (t *templates) rankOf(p place) podmeta.Rank {
	if !t.haveRanks() {
		return podmeta.Rank{}
	}
	return podmeta.Rank{Index: p.pod, Size: t.size}
}

// requesterTemplate returns the Pod template of a requester that asks for the
// InferenceServerConfig of a role.
func requesterTemplate(role *v1alpha1.ServingRole, image string) corev1.PodTemplateSpec {
	gpus := int64(1)
	if role.GPUs != nil {
		gpus = int64(*role.GPUs)
	}
	return dualpods.RequesterTemplate(image, role.InferenceServerConfig, corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(gpus, resource.DecimalSI)})
}

// newPod returns the Pod of a place.
func (w *World) newPod(p place) *corev1.Pod { return w.podOf(w.planOf(p), p) }

// podOf returns the Pod of a place as a plan has it.
func (w *World) podOf(of *plan, p place) *corev1.Pod {
	role, made := &of.template.Roles[p.order], &of.templates[p.order]
	template := made.of(p).DeepCopy()
	pod := &corev1.Pod{Spec: template.Spec}
	pod.Namespace, pod.Name, pod.OwnerReferences = w.Serving.Namespace, p.name(), owners(w.Serving)
	pod.Annotations, pod.Labels = template.Annotations, map[string]string{}
	maps.Copy(pod.Labels, template.Labels)
	maps.Copy(pod.Labels, p.labels())
	pod.Labels[podmeta.LabelServingRevision], pod.Labels[podmeta.LabelRoleTemplateHash] = of.revision, roleHash(role)
	if podmeta.IsRequester(pod) {
		pod.Annotations[podmeta.AnnotationOnExit] = w.onExit() // a requester has annotations
	}
	if rank := made.rankOf(p); rank.IsOne() {
		pod.Annotations[podmeta.AnnotationRank] = rank.String()
	}
	w.scheduledBy(p, pod)
	env := []corev1.EnvVar{
		{Name: podmeta.EnvGroupSize, Value: strconv.Itoa(made.size)}, {Name: podmeta.EnvEntryAddress, Value: p.entry().address(pod.Namespace)}, {Name: podmeta.EnvWorkerIndex, Value: strconv.Itoa(p.pod)},
	}
	for _, c := range tellContainers(pod) {
		c.Env = append(slices.Clone(env), slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return podmeta.IsServingEnv(e.Name) })...)
	}
	w.subgroupsOf(p).Apply(pod, p.pod, w.domainOf(p), func(other int) string {
		p.pod = other
		return p.address(pod.Namespace)
	})
	return pod
}

// tellContainers returns the containers that get the environment of the group: in a requester
// that of the requester program, in another Pod all.
func tellContainers(pod *corev1.Pod) (all []*corev1.Container) {
	if program := podmeta.ProgramOf(pod).Container; podmeta.IsRequester(pod) && program != nil {
		return []*corev1.Container{program}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			all = append(all, &containers[i])
		}
	}
	return all
}

// newService returns the Service of an entry. It publishes addresses that are not ready, because
// the Pods of a group look each other up while they start.
func (w *World) newService(p place) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Serving.Namespace, Name: p.name(), Labels: p.labels(), OwnerReferences: owners(w.Serving)},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true},
	}
}
