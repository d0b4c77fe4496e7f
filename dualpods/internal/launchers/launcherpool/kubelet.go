package launcherpool

import (
	"cmp"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const (
	// kubeletDir is the kubelet's root directory unless a LauncherConfig names another.
	// podResourcesDir is the directory in it with the socket of the PodResources API
	// (https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources).
	kubeletDir      = "/var/lib/kubelet"
	podResourcesDir = "pod-resources"
)

// addPodResources adds the container that asks the kubelet which Pod has which GPUs. Only
// the root user of the host may open the kubelet's socket.
func (w *templateBuilder) addPodResources() {
	check := w.config.Spec.AllocationCheck
	if check.Mode == v1alpha1.AllocationCheckNone {
		return
	}
	root, no := int64(0), false
	const at = kubeletDir + "/" + podResourcesDir
	w.pod.Volumes = append(w.pod.Volumes, corev1.Volume{Name: kubeletVolume, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path.Join(cmp.Or(check.KubeletDir, kubeletDir), podResourcesDir)},
	}})
	w.pod.Containers = append(w.pod.Containers, corev1.Container{
		Name: podmeta.PodResourcesContainer, Image: w.image.Name, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/podresources"},
		Args:    append([]string{fmt.Sprintf("--listen=0.0.0.0:%d", podresourcesapi.DefaultPort), "--socket=" + at + "/kubelet.sock"}, trustFlags...),
		Env:     []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "2"}}, // more threads cost memory on nodes with many cores
		Ports:   []corev1.ContainerPort{{Name: podmeta.PodResourcesContainer, ContainerPort: podresourcesapi.DefaultPort}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: trustVolume, MountPath: trustDir, ReadOnly: true}, {Name: kubeletVolume, MountPath: at, ReadOnly: true},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, RunAsNonRoot: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	})
}
