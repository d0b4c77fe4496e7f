package dualpods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

// probesPort is where the requester program answers probes unless it is told otherwise.
const probesPort = 8080

// RequesterTemplate returns the Pod template of a requester that asks for an
// InferenceServerConfig. image has the requester program. The probe waits for up to 5 s until the
// model answers, so that the Pod is ready at once.
func RequesterTemplate(image, config string, limits corev1.ResourceList) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: config}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: podmeta.ServingContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready?wait=5s", Port: intstr.FromInt32(probesPort)}},
					TimeoutSeconds: 10, PeriodSeconds: 1, FailureThreshold: 1,
				},
				Resources:    corev1.ResourceRequirements{Limits: limits},
				VolumeMounts: []corev1.VolumeMount{{Name: mtls.ConfigMap, MountPath: mtls.Dir, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: mtls.ConfigMap, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: mtls.ConfigMap},
			}}}},
		},
	}
}
