package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ModelCacheNodeGroup says which nodes keep models, in which folder, and how many bytes. The
// launchers whose LauncherConfigs name it in spec.modelCache fetch the models.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mcng,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits and '-', because launchers carry it as the value of a label"
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.spec.storageLimit`
// +kubebuilder:printcolumn:name="At-Once",type=integer,JSONPath=`.spec.maxConcurrentNodes`,description="nodes that fetch at the same time"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModelCacheNodeGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec ModelCacheNodeGroupSpec `json:"spec"`
}

// ModelCacheNodeGroupSpec is the desired state.
type ModelCacheNodeGroupSpec struct {
	// Labels of the nodes. Without them the group has all nodes with launchers that name it.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that the launchers of the group tolerate, beside those of their
	// LauncherConfigs. Use them if a taint keeps other Pods off the nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Folder of the models on each node. It is created if it is missing.
	// +optional
	// +kubebuilder:default="/var/lib/hotseat/models"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]*[^:/]$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another ModelCacheNodeGroup with the other path, and name it instead"
	Path string `json:"path,omitempty"`

	// How many bytes the models of a node may take together, such as 500Gi. Without it they
	// may fill the disk. A launcher that needs room for a model evicts unused copies with
	// retention LRU, the least recently used first.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 500Gi"
	StorageLimit *resource.Quantity `json:"storageLimit,omitempty"`

	// How many nodes may fetch at the same time. Without it all may.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentNodes *int32 `json:"maxConcurrentNodes,omitempty"`

	// Limits of the fetches of one node.
	// +optional
	PerNode NodeFetchLimits `json:"perNode,omitempty"`

	// The namespaces whose LauncherConfigs may name the group, and whose launchers get the
	// credentials of the group's caches. Without it the LauncherConfigs of all namespaces
	// may name the group, and no launcher gets credentials.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`
}

// Admits reports whether LauncherConfigs of a namespace may name the group.
func (g *ModelCacheNodeGroup) Admits(namespace string) bool {
	return len(g.Spec.Namespaces) == 0 || g.Trusts(namespace)
}

// Trusts reports whether launchers of a namespace may have the credentials of the group's
// caches.
func (g *ModelCacheNodeGroup) Trusts(namespace string) bool {
	return slices.Contains(g.Spec.Namespaces, namespace)
}

// NodeFetchLimits limit the fetches of one node.
type NodeFetchLimits struct {
	// How many files of a model are fetched at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Streams *int32 `json:"streams,omitempty"`
	// Limit of the bytes of a model that are fetched in a second, such as 100Mi.
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
