package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ModelCacheNodeGroup says which nodes keep models, where, and how many bytes of
// them. The launchers of LauncherConfigs that name it in spec.modelCache do the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mcng,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits and '-': launchers have it as the value of a label"
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.spec.storageLimit`
// +kubebuilder:printcolumn:name="At-Once",type=integer,JSONPath=`.spec.maxConcurrentNodes`,description="nodes that fetch at the same time"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModelCacheNodeGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for.
	// +required
	Spec ModelCacheNodeGroupSpec `json:"spec"`
}

// ModelCacheNodeGroupSpec is what an administrator wants.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gcHighThresholdPercent) || self.gcHighThresholdPercent == 100 || (has(self.gcLowThresholdPercent) ? self.gcLowThresholdPercent : 80) < self.gcHighThresholdPercent",message="gcLowThresholdPercent (80 where it is not given) should be below gcHighThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.gcLowThresholdPercent) || has(self.gcHighThresholdPercent)",message="gcLowThresholdPercent means nothing without gcHighThresholdPercent"
type ModelCacheNodeGroupSpec struct {
	// Labels of the nodes; without any it is all nodes that have such launchers.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// What the launchers of the group tolerate, beside what their LauncherConfigs say:
	// nodes that are kept for models have a taint that keeps other Pods away.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Folder of the nodes that has the models. It is made where it is missing.
	// +optional
	// +kubebuilder:default="/var/lib/hotseat/models"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]*[^:/]$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another ModelCacheNodeGroup with the other path, and name that one"
	Path string `json:"path,omitempty"`

	// What the models of a node may take together, such as 500Gi; without it they may
	// fill the disk.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 500Gi"
	StorageLimit *resource.Quantity `json:"storageLimit,omitempty"`

	// How full a node's store may be, in percent of the limit and of its disk: above that,
	// once a model was fetched, copies with retention LRU go that nobody uses, the one
	// that was used longest ago first. Without it, or with 100, they go only where
	// another model needs the room.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	GCHighThresholdPercent *int32 `json:"gcHighThresholdPercent,omitempty"`
	// How full it is then at most; 80 where it is not given. Copies with retention LRU are
	// not fetched beyond it, so that they do not come to go again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	GCLowThresholdPercent *int32 `json:"gcLowThresholdPercent,omitempty"`

	// How many of the nodes fetch at the same time; without it all do.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentNodes *int32 `json:"maxConcurrentNodes,omitempty"`

	// Bounds of what one node fetches.
	// +optional
	PerNode NodeFetchLimits `json:"perNode,omitempty"`
}

// NodeFetchLimits bound what one node fetches.
type NodeFetchLimits struct {
	// Files of a model that are fetched at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Streams *int32 `json:"streams,omitempty"`
	// What one model is fetched with in a second at most, such as 100Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 100Mi"
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`
}

// ModelCacheNodeGroupList is a list of ModelCacheNodeGroup.
//
// +kubebuilder:object:root=true
type ModelCacheNodeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModelCacheNodeGroup `json:"items"`
}
