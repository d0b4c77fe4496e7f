package workload

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Labels returns the labels of the objects and Pods of an entry. They select its Pods.
func Labels(model, entry string) map[string]string {
	return map[string]string{podmeta.LabelModel: model, podmeta.LabelModelEntry: entry}
}

// Config returns the InferenceServerConfig of an entry that launchers run.
func Config(m *v1alpha1.Model, e *merge.Entry) *v1alpha1.InferenceServerConfig {
	o := meta(m, e)
	if e.Pool != "" {
		o.Labels[podmeta.LabelSeat] = e.Pool
	}
	return &v1alpha1.InferenceServerConfig{
		ObjectMeta: o,
		Spec: v1alpha1.InferenceServerConfigSpec{
			LauncherConfigName: e.Settings.LauncherConfigName,
			ModelServerConfig:  v1alpha1.ModelServerConfig{Port: podmeta.PortModel, Args: vllmArgs(e), Env: configEnv(e.Settings.Env)},
		},
	}
}

// Images are those of the project's own programs in Pods.
type Images struct {
	Requester string // has the requester program
	Fetch     string // has modelfetch
}

// Deployment returns the Deployment of an entry.
func Deployment(m *v1alpha1.Model, e *merge.Entry, images Images, replicas int32) *appsv1.Deployment {
	labels := Labels(m.Name, e.Name)
	template := enginePod(e, images.Fetch)
	surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	if e.RunsIn == v1alpha1.RunsInLauncher {
		template = requesterPod(m, e, images.Requester)
		// With a surge, the new requester would wait for ever if all GPUs are taken.
		surge, unavailable = unavailable, surge
	}
	template.Labels = labels
	schedule(e, &template)
	return &appsv1.Deployment{
		ObjectMeta: meta(m, e),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
			RevisionHistoryLimit: new(int32(2)),
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}},
		},
	}
}

func meta(m *v1alpha1.Model, e *merge.Entry) metav1.ObjectMeta {
	labels := Labels(m.Name, e.Name)
	labels[podmeta.LabelManagedBy] = podmeta.ManagedBy
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: e.ObjectName(m.Name), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind("Model"))},
	}
}

// requesterPod returns the template of a requester of the entry. It requests accelerators alone: the
// launcher has the processor time and the memory.
func requesterPod(m *v1alpha1.Model, e *merge.Entry, image string) corev1.PodTemplateSpec {
	limits := e.Accelerators()
	if e.Settings.ResourceProfile == "" {
		limits = corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(1, resource.DecimalSI)}
	}
	template := dualpods.RequesterTemplate(image, e.ObjectName(m.Name), limits)
	template.Annotations[podmeta.AnnotationTemplateHash] = e.Hash // a changed InferenceServerConfig replaces no requester
	if e.Settings.ModelCache != "" {
		template.Annotations[podmeta.AnnotationModelCache] = e.Settings.ModelCache
	}
	template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: podmeta.PortModel}}
	template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
	return template
}

// configEnv returns environment variables, sorted by name.
func configEnv(env map[string]v1alpha1.EnvValue) (all []v1alpha1.EnvVar) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, v1alpha1.EnvVar{Name: name, Value: string(env[name])})
	}
	return all
}

// schedule says on which nodes the Pods of an entry may run.
func schedule(e *merge.Entry, template *corev1.PodTemplateSpec) {
	spec := &template.Spec
	spec.NodeSelector, spec.Tolerations, spec.Affinity = e.Profile.NodeSelector, e.Profile.Tolerations, e.Profile.Affinity
	spec.PriorityClassName = e.Settings.PriorityClassName
}
