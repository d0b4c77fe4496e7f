// Package podcache makes Pods small for the controller's cache. Thousands of Pods
// differ in little more than names and times, so a part that Pods have in common is
// held once for all of them.
package podcache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Compact makes a Pod small that was just decoded and that nobody else has yet.
//
// The Pod keeps its metadata and its spec, because a server patch may name any field of
// them. The Pod shares parts of both with other Pods: nobody may write to a part, and a
// caller who changes a Pod changes a DeepCopy of it. The Pod loses the fields of its
// status that no controller reads.
func Compact(pod *corev1.Pod) {
	pod.Namespace, pod.GenerateName = text(pod.Namespace), text(pod.GenerateName)
	pod.Labels = Texts(pod.Labels)
	pod.Annotations = annotations(pod.Annotations)
	pod.OwnerReferences = owners.list(pod.OwnerReferences, &metav1.ObjectMeta{OwnerReferences: pod.OwnerReferences})
	pod.Finalizers = finalizers.list(pod.Finalizers, &metav1.ObjectMeta{Finalizers: pod.Finalizers})
	compactSpec(&pod.Spec)
	pod.Status = readStatus(&pod.Status)
}

// The parts that Pods have in common.
var (
	owners         pool[metav1.OwnerReference]
	finalizers     pool[string]
	containers     pool[corev1.Container]
	volumes        pool[corev1.Volume]
	tolerations    pool[corev1.Toleration]
	pullSecrets    pool[corev1.LocalObjectReference]
	readinessGates pool[corev1.PodReadinessGate]
	spread         pool[corev1.TopologySpreadConstraint]
	affinities     pool[corev1.Affinity]
	contexts       pool[corev1.PodSecurityContext]
)

// compactSpec has a spec share its parts.
func compactSpec(s *corev1.PodSpec) {
	token := tokenVolume(s.Volumes)
	s.Containers, s.InitContainers = compactContainers(s.Containers, token), compactContainers(s.InitContainers, token)
	s.Volumes = compactVolumes(s.Volumes, token)
	s.Tolerations = tolerations.list(s.Tolerations, &corev1.PodSpec{Tolerations: s.Tolerations})
	s.ImagePullSecrets = pullSecrets.list(s.ImagePullSecrets, &corev1.PodSpec{ImagePullSecrets: s.ImagePullSecrets})
	s.ReadinessGates = readinessGates.list(s.ReadinessGates, &corev1.PodSpec{ReadinessGates: s.ReadinessGates})
	s.TopologySpreadConstraints = spread.list(s.TopologySpreadConstraints, &corev1.PodSpec{TopologySpreadConstraints: s.TopologySpreadConstraints})
	s.Affinity = affinities.one(s.Affinity, &corev1.PodSpec{Affinity: s.Affinity})
	s.SecurityContext = contexts.one(s.SecurityContext, &corev1.PodSpec{SecurityContext: s.SecurityContext})
	s.NodeSelector = Texts(s.NodeSelector)
	s.RestartPolicy, s.DNSPolicy = text(s.RestartPolicy), text(s.DNSPolicy)
	s.ServiceAccountName, s.DeprecatedServiceAccount = text(s.ServiceAccountName), text(s.DeprecatedServiceAccount)
	s.SchedulerName, s.PriorityClassName = text(s.SchedulerName), text(s.PriorityClassName)
}

// compactContainers returns containers that share their parts. The API server draws the name
// of the volume with the Pod's token. Without that name, the containers of the Pods of one
// Deployment are the same; with it, a Pod has a list of containers of its own, which share
// everything but their lists of mounts.
func compactContainers(all []corev1.Container, token string) []corev1.Container {
	if token == "" {
		return containers.list(all, &corev1.PodSpec{Containers: all})
	}
	all = renameMounts(all, token, tokenPrefix)
	shared := containers.list(all, &corev1.PodSpec{Containers: all})
	return keepAlive(renameMounts(shared, tokenPrefix, token), shared)
}

// compactVolumes does the same for volumes.
func compactVolumes(all []corev1.Volume, token string) []corev1.Volume {
	if token == "" {
		return volumes.list(all, &corev1.PodSpec{Volumes: all})
	}
	all = renameVolume(all, token, tokenPrefix)
	shared := volumes.list(all, &corev1.PodSpec{Volumes: all})
	return keepAlive(renameVolume(shared, tokenPrefix, token), shared)
}

// tokenPrefix begins the name of the volume with the token of a Pod's ServiceAccount. Five
// characters follow. The prefix alone is not a valid name: it ends in a hyphen.
const tokenPrefix = "kube-api-access-"

// tokenVolume returns the name of the volume that the API server added with the token;
// empty: there is none.
func tokenVolume(volumes []corev1.Volume) string {
	for _, v := range volumes {
		if strings.HasPrefix(v.Name, tokenPrefix) && v.Name != tokenPrefix && v.Projected != nil {
			return v.Name
		}
	}
	return ""
}

// renameMounts returns containers whose mounts of a volume have another name for it. It
// writes to no container and no mount that it was given.
func renameMounts(all []corev1.Container, from, to string) []corev1.Container {
	is := func(m corev1.VolumeMount) bool { return m.Name == from }
	if !slices.ContainsFunc(all, func(c corev1.Container) bool { return slices.ContainsFunc(c.VolumeMounts, is) }) {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		if !slices.ContainsFunc(all[i].VolumeMounts, is) {
			continue
		}
		mounts := slices.Clone(all[i].VolumeMounts)
		for m := range mounts {
			if is(mounts[m]) {
				mounts[m].Name = to
			}
		}
		all[i].VolumeMounts = mounts
	}
	return all
}

// renameVolume returns volumes in which one has another name.
func renameVolume(all []corev1.Volume, from, to string) []corev1.Volume {
	all = slices.Clone(all)
	for i := range all {
		if all[i].Name == from {
			all[i].Name = to
		}
	}
	return all
}

// annotations holds the keys of annotations once, and those values that Pods have in common.
func annotations(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	held := make(map[string]string, len(all))
	for key, value := range all {
		if !differs(key) {
			value = text(value)
		}
		held[text(key)] = value
	}
	return held
}

// differs reports whether the controller writes an annotation with another value for each
// Pod. To hold such a value once would take memory.
func differs(key string) bool {
	switch key {
	case podmeta.AnnotationStatus, podmeta.AnnotationPlacement, podmeta.AnnotationUnboundSince:
		return true
	default:
		return strings.HasPrefix(key, podmeta.AnnotationBindingPrefix) || strings.HasPrefix(key, podmeta.AnnotationFailuresPrefix)
	}
}

// readStatus returns the fields of a status that the controllers read.
func readStatus(s *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: text(s.Phase), PodIP: s.PodIP, PodIPs: addresses(s.PodIPs), StartTime: s.StartTime, Conditions: conditions(s.Conditions),
		InitContainerStatuses: states(s.InitContainerStatuses), ContainerStatuses: states(s.ContainerStatuses),
	}
}

// addresses returns the addresses of a Pod that has more than one, which is PodIP.
func addresses(all []corev1.PodIP) []corev1.PodIP {
	if len(all) < 2 {
		return nil
	}
	return slices.Clone(all)
}

func conditions(all []corev1.PodCondition) []corev1.PodCondition {
	held := slices.Clone(all) // a decoder leaves room for more
	for i := range held {
		c := &held[i]
		c.Type, c.Status, c.Reason = text(c.Type), text(c.Status), text(c.Reason)
	}
	return held
}

func states(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(all) == 0 {
		return nil
	}
	held := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		held[i] = corev1.ContainerStatus{Name: text(s.Name), Ready: s.Ready, State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount}
	}
	return held
}
