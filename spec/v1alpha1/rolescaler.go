package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RoleScaler has the number of replicas of a role of a ModelServing whose scaling.mode is External.
// The controller creates it with the name MODELSERVING-ROLE, and deletes it when the mode is Static
// again. Autoscalers and kubectl scale change its number. A new template does not. If somebody
// deletes it, the controller creates it again with the number in the role.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=rsc,categories=hotseat
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.spec.replicas`,description="replicas that each group is to have"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`,description="replicas that the first group has"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RoleScaler struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec RoleScalerSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status RoleScalerStatus `json:"status,omitempty"`
}

// RoleScalerSpec is the desired state.
type RoleScalerSpec struct {
	// How many replicas of the role each group is to have.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas"`
}

// RoleScalerStatus is the observed state. It is that of the first group: an autoscaler computes the
// number that each group is to have from the Pods that the selector selects.
type RoleScalerStatus struct {
	// Replicas of the role that the first group has.
	// +optional
	Replicas int32 `json:"replicas"`
	// Label selector of the entry Pods of the role in the first group.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// RoleScalerList is a list of RoleScaler.
//
// +kubebuilder:object:root=true
type RoleScalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RoleScaler `json:"items"`
}
