package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceProfile says what a replica of a Model needs, by a name that Models use. An entry of a Model has a
// number of its units.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rp,categories=hotseat
// +kubebuilder:printcolumn:name="Launchers",type=string,JSONPath=`.spec.launcherConfigName`,description="LauncherConfig whose launchers run entries with the profile"
// +kubebuilder:printcolumn:name="Limits",type=string,JSONPath=`.spec.limits`,description="of a unit"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceProfile struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Needs of a replica.
	// +required
	Spec ResourceProfileSpec `json:"spec"`
}

// ResourceProfileSpec says what a replica needs.
type ResourceProfileSpec struct {
	// Name of the LauncherConfig, in the namespace of the Model, whose launchers run entries with this
	// profile.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a LauncherConfig: lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	LauncherConfigName string `json:"launcherConfigName,omitempty"`

	// Limits of a unit. With nvidia.com/gpu, launchers run the entry. With another accelerator, or none,
	// its Pods run the engine themselves.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Requests of a unit.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Claims of devices that dynamic resource allocation gives to each Pod, as in spec.resourceClaims of a
	// Pod; the engine's container uses all of them. They are not multiplied by the units. Only entries that
	// run in Pods of their own may use them: launchers get their GPUs by nvidia.com/gpu.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty"`

	// Labels that a node must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Taints that a node may have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity of the Pods.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Images of the engines in Pods of their own, by engine: VLLM, LlamaCpp, SGLang, OLlama.
	// +optional
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(engine, engine in ['VLLM', 'LlamaCpp', 'SGLang', 'OLlama'])",message="each key should be an engine: VLLM, LlamaCpp, SGLang or OLlama"
	Images map[string]ImageName `json:"images,omitempty"`
}

// ImageName is the name of an image.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
type ImageName string

// ResourceProfileList is a list of ResourceProfile.
//
// +kubebuilder:object:root=true
type ResourceProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceProfile `json:"items"`
}
