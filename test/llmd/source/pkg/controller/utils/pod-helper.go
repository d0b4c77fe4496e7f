/*
Copyright 2026 The llm-d Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

	http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package utils

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/llm-d-incubation/llm-d-fast-model-actuation/api/fma/v1alpha1"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/api"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/common"
)

var apiAccessRE = regexp.MustCompile(`^kube-api-access-[a-z0-9]+$`)

// PodIsInTrouble is both (a) some container restarts and (b) Pod not ready
func PodIsInTrouble(pod *corev1.Pod) bool {
	var sumRestarts int32
	for _, ctrStat := range pod.Status.ContainerStatuses {
		sumRestarts += ctrStat.RestartCount
	}
	if sumRestarts == 0 {
		return false
	}
	return !IsPodReady(pod)
}

// DeIndividualize removes the parts of a PodSpec that are specific to an individual.
// This func side-effects the given `*PodSpec` and returns it.
func DeIndividualize(podSpec *corev1.PodSpec) *corev1.PodSpec {
	podSpec.EphemeralContainers = nil // these may not be given in Create
	// The api-access Volume is individualized
	volIdx := slices.IndexFunc(podSpec.Volumes, func(vol corev1.Volume) bool {
		return apiAccessRE.MatchString(vol.Name)
	})
	if volIdx >= 0 {
		volName := podSpec.Volumes[volIdx].Name
		podSpec.Volumes = slices.Delete(podSpec.Volumes, volIdx, volIdx+1)
		for ctrIdx := range podSpec.Containers {
			removeVolumeMount(&podSpec.Containers[ctrIdx], volName)
		}
		for ctrIdx := range podSpec.InitContainers {
			removeVolumeMount(&podSpec.InitContainers[ctrIdx], volName)
		}
	}
	return podSpec
}

func VolumeMountName(vmnt *corev1.VolumeMount) string { return vmnt.Name }

func removeVolumeMount(ctr *corev1.Container, volumeName string) {
	if mntIdx := SliceIndexFeature(ctr.VolumeMounts, VolumeMountName, volumeName); mntIdx >= 0 {
		ctr.VolumeMounts = slices.Delete(ctr.VolumeMounts, mntIdx, mntIdx+1)
	}
}

// GetInferenceServerContainerIndexAndPort returns the index of the inference server container
// and the port for a server-providing Pod.
// This function is for direct (non-launcher-based) server-providing Pods.
// The port is identified from the readinessProbe.
// Returns (containerIndex int, inferenceServerPort int32, err error).
func GetInferenceServerContainerIndexAndPort(pod *corev1.Pod) (int, int32, error) {
	cIdx, err := GetInferenceServerContainerIndex(pod)
	if err != nil {
		return 0, 0, err
	}

	isCtr := &pod.Spec.Containers[cIdx]
	if isCtr.ReadinessProbe == nil {
		return 0, 0, errors.New("the inference server container has no readinessProbe")
	} else if isCtr.ReadinessProbe.HTTPGet == nil {
		return 0, 0, fmt.Errorf("the readinessProbe is not an HTTPGet")
	}
	portIOS := isCtr.ReadinessProbe.HTTPGet.Port
	switch portIOS.Type {
	case intstr.Int:
		return cIdx, portIOS.IntVal, nil
	case intstr.String:
		if portIOS.StrVal == "http" || portIOS.StrVal == "HTTP" {
			return cIdx, 80, nil
		} else {
			return 0, 0, fmt.Errorf("unsupported readinessProbe port %q", portIOS.StrVal)
		}
	default:
		return 0, 0, fmt.Errorf("the readinessProbe port has unexpected type %q", portIOS.Type)
	}
}

// GetInferenceServerContainerIndex returns the index of the inference server container
// in the given Pod's container list.
// This function is for both direct (non-launcher-based) and launcher-based server-providing Pods.
func GetInferenceServerContainerIndex(pod *corev1.Pod) (int, error) {
	cIdx := SliceIndexFeature(pod.Spec.Containers,
		func(ctr *corev1.Container) string { return ctr.Name },
		api.InferenceServerContainerName)
	if cIdx == -1 {
		return 0, fmt.Errorf("container %q not found", api.InferenceServerContainerName)
	}
	return cIdx, nil
}

func GetPodCondition(pod *corev1.Pod, condType corev1.PodConditionType) *corev1.PodCondition {
	return SliceGetByFeature(pod.Status.Conditions,
		func(pc *corev1.PodCondition) corev1.PodConditionType { return pc.Type },
		condType)
}

func IsPodReady(pod *corev1.Pod) bool {
	if cond := GetPodCondition(pod, corev1.PodReady); cond != nil {
		return cond.Status == corev1.ConditionTrue
	}
	return false
}

// canonicalizeTemplateForHash returns a deep-copied template with order-independent slices sorted, suitable for stable serialization.
func canonicalizeTemplateForHash(template v1alpha1.EmbeddedPodTemplateSpec) v1alpha1.EmbeddedPodTemplateSpec {
	out := v1alpha1.EmbeddedPodTemplateSpec{
		Metadata: *template.Metadata.DeepCopy(),
		Spec:     *DeIndividualize(template.Spec.DeepCopy()),
	}
	for i := range out.Spec.Containers {
		canonicalizeContainer(&out.Spec.Containers[i])
	}
	for i := range out.Spec.InitContainers {
		canonicalizeContainer(&out.Spec.InitContainers[i])
	}
	slices.SortStableFunc(out.Spec.Volumes, func(a, b corev1.Volume) int {
		return strings.Compare(a.Name, b.Name)
	})
	slices.SortStableFunc(out.Spec.Tolerations, func(a, b corev1.Toleration) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		if c := strings.Compare(string(a.Operator), string(b.Operator)); c != 0 {
			return c
		}
		if c := strings.Compare(a.Value, b.Value); c != 0 {
			return c
		}
		return strings.Compare(string(a.Effect), string(b.Effect))
	})
	slices.SortStableFunc(out.Spec.ImagePullSecrets, func(a, b corev1.LocalObjectReference) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

func canonicalizeContainer(c *corev1.Container) {
	slices.SortStableFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int {
		if cmp := strings.Compare(a.Name, b.Name); cmp != 0 {
			return cmp
		}
		return strings.Compare(a.MountPath, b.MountPath)
	})
	slices.SortStableFunc(c.Ports, func(a, b corev1.ContainerPort) int {
		if cmp := strings.Compare(a.Name, b.Name); cmp != 0 {
			return cmp
		}
		if a.ContainerPort != b.ContainerPort {
			if a.ContainerPort < b.ContainerPort {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.Protocol), string(b.Protocol))
	})
	slices.SortStableFunc(c.EnvFrom, func(a, b corev1.EnvFromSource) int {
		return strings.Compare(a.Prefix, b.Prefix)
	})
}

// BuildNodeIndependentLauncherTemplate does most of the work of building a Pod
// template for a launcher from a LauncherConfig.
// The omitted work is specializing it to a particular Node. Pass the result
// and the Node's name to SpecializeLauncherTemplateToNode to accomplish that.
// A hash of this template is recorded under LauncherTemplateHashAnnotationKey
// for spec-drift detection, and also returned.
func BuildNodeIndependentLauncherTemplate(lc *v1alpha1.LauncherConfig) (*corev1.Pod, string, error) {
	template := canonicalizeTemplateForHash(lc.Spec.PodTemplate)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:       maps.Clone(template.Metadata.Labels),
			Annotations:  maps.Clone(template.Metadata.Annotations),
			Namespace:    lc.Namespace,
			GenerateName: fmt.Sprintf("launcher-%s-", lc.Name),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         v1alpha1.SchemeGroupVersion.String(),
				Kind:               "LauncherConfig",
				Name:               lc.Name,
				UID:                lc.UID,
				Controller:         ptr.To(false),
				BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: template.Spec,
	}
	// Ensure labels are set
	if pod.Labels == nil {
		pod.Labels = make(map[string]string)
	}
	pod.Labels[common.ComponentLabelKey] = common.LauncherComponentLabelValue
	pod.Labels[common.LauncherConfigNameLabelKey] = lc.Name
	pod.Labels[api.SleepingLabelName] = "true"

	hasher := sha256.New()
	modifiedJSON, err := json.Marshal(pod)
	if err != nil {
		return nil, "", fmt.Errorf("failed to marshal template for hashing: %w", err)
	}
	hasher.Write(modifiedJSON)
	var modifiedHash [sha256.Size]byte
	modifiedHashSl := hasher.Sum(modifiedHash[:0])
	templateHash := base64.RawStdEncoding.EncodeToString(modifiedHashSl)

	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	// Node-independent template fingerprint for spec-drift detection; empty value is recorded as-is.
	pod.Annotations[string(common.LauncherTemplateHashAnnotationKey)] = templateHash

	cIdx, err := GetInferenceServerContainerIndex(pod)
	if err != nil {
		return nil, "", err
	}
	container := &pod.Spec.Containers[cIdx]

	// Configure required environment variables
	configureRequiredEnvVars(container)

	// Set fixed liveness probe
	container.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{
				Path:   "/health",
				Port:   intstr.FromInt(common.LauncherServicePort),
				Scheme: corev1.URISchemeHTTP,
			},
		},
		InitialDelaySeconds: 10,
		PeriodSeconds:       20,
		TimeoutSeconds:      1,
		SuccessThreshold:    1,
		FailureThreshold:    3,
	}

	// Set readiness probe to check if launcher can list instances.
	// This is necessary because otherwise the dual-pods controller will be confused when
	// the launcher Pod is said to be ready but got refused when listing its vLLM instances.
	container.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{
				Path:   "/v2/vllm/instances",
				Port:   intstr.FromInt(common.LauncherServicePort),
				Scheme: corev1.URISchemeHTTP,
			},
		},
		InitialDelaySeconds: 2,
		PeriodSeconds:       5,
		TimeoutSeconds:      2,
		SuccessThreshold:    1,
		FailureThreshold:    3,
	}

	// Remove nvidia.com/gpu from resource limits
	removeGPUResourceLimits(container)

	// Remove nvidia.com/gpu from Pod-level resource overhead
	if pod.Spec.Overhead != nil {
		delete(pod.Spec.Overhead, corev1.ResourceName("nvidia.com/gpu"))
	}
	addLauncherNotifierSidecar(pod, container.Image, container.ImagePullPolicy)
	return pod, templateHash, nil
}

// alongside the legacy node-aware LauncherConfigHashAnnotationKey used by the dual-pods indexer.
func SpecializeLauncherTemplateToNode(nodeIndependent *corev1.Pod, nodeName string) *corev1.Pod {
	nodeDependent := nodeIndependent.DeepCopy()
	nodeDependent.Labels[common.NodeNameLabelKey] = nodeName
	if nodeDependent.Spec.NodeSelector == nil {
		nodeDependent.Spec.NodeSelector = make(map[string]string)
	}
	nodeDependent.Spec.NodeSelector["kubernetes.io/hostname"] = nodeName

	hasher := sha256.New()
	hasher.Write([]byte(nodeDependent.Annotations[string(common.LauncherTemplateHashAnnotationKey)]))
	hasher.Write([]byte(";node="))
	hasher.Write([]byte(nodeName))
	var modifiedHash [sha256.Size]byte
	modifiedHashSl := hasher.Sum(modifiedHash[:0])
	nominalHash := base64.RawStdEncoding.EncodeToString(modifiedHashSl)

	// Legacy Pod hash for the dual-pods indexer (takes Node name into account).
	nodeDependent.Annotations[string(common.LauncherConfigHashAnnotationKey)] = nominalHash
	return nodeDependent
}

var requiredEnvVars = []corev1.EnvVar{
	{Name: "PYTHONPATH", Value: "/app"},
	{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"},
	{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "compute,utility"},
	{Name: "VLLM_SERVER_DEV_MODE", Value: "1"},
}

// configureRequiredEnvVars adds or updates required environment variables.
func configureRequiredEnvVars(container *corev1.Container) {
	for _, r := range requiredEnvVars {
		if i := SliceIndexFeature(container.Env, EnvVarName, r.Name); i >= 0 {
			container.Env[i] = r
		} else {
			container.Env = append(container.Env, r)
		}
	}
}

func EnvVarName(ev *corev1.EnvVar) string { return ev.Name }

// removeGPUResourceLimits removes nvidia.com/gpu from container resource limits and requests
func removeGPUResourceLimits(container *corev1.Container) {
	if container.Resources.Limits != nil {
		container.Resources.Limits[corev1.ResourceName("nvidia.com/gpu")] = resource.MustParse("0")
	}
	if container.Resources.Requests != nil {
		container.Resources.Requests[corev1.ResourceName("nvidia.com/gpu")] = resource.MustParse("0")
	}
}

func ContainerName(ctr *corev1.Container) string { return ctr.Name }

func addLauncherNotifierSidecar(pod *corev1.Pod, launcherImage string, pullPolicy corev1.PullPolicy) {
	const sidecarName = "state-change-reflector"
	ctrP := SliceGetByFeature(pod.Spec.Containers, ContainerName, sidecarName)

	notifier := corev1.Container{
		Name:            sidecarName,
		Image:           launcherImage,
		ImagePullPolicy: pullPolicy,
		Command:         []string{"python3", "/app/launcher_pod_notifier.py"},
		Env: []corev1.EnvVar{
			{
				Name:  "LAUNCHER_BASE_URL",
				Value: fmt.Sprintf("http://127.0.0.1:%d", common.LauncherServicePort),
			},
			{
				Name: "POD_NAME",
				ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
				},
			},
			{
				Name: "NAMESPACE",
				ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"},
				},
			},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10m"),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("128Mi"),
			},
		},
	}

	if ctrP != nil {
		*ctrP = notifier
		return
	}
	pod.Spec.Containers = append(pod.Spec.Containers, notifier)
}
