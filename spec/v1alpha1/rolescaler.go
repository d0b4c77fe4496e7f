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
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="replicas that each group is to have"
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

// RatioConstraint has the replicas of two roles stay near numerator : denominator. With prefill and
// decode as 1 : 2, a min of 50 and a max of 200, a group with 2 prefill replicas has at most 8
// decode replicas, and one with 4 decode replicas at most 4 prefill replicas.
type RatioConstraint struct {
	// Name of a role.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	NumeratorRole string `json:"numeratorRole"`
	// Name of another role.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	DenominatorRole string `json:"denominatorRole"`

	// How many replicas of numeratorRole there should be for denominator replicas of
	// denominatorRole.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Numerator int32 `json:"numerator,omitempty"`
	// See numerator.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Denominator int32 `json:"denominator,omitempty"`

	// How small the ratio may be, in percent of numerator / denominator. It bounds denominatorRole.
	// 0: there is no such bound.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Min *int32 `json:"min,omitempty"`
	// How large the ratio may be, in percent of numerator / denominator. It bounds numeratorRole.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=100000
	Max *int32 `json:"max,omitempty"`
}

// RoleScaling says where the number of replicas of a role comes from.
type RoleScaling struct {
	// Static: from the role. External: from the RoleScaler MODELSERVING-ROLE, which the controller
	// creates with the number in the role.
	// +optional
	// +kubebuilder:default=Static
	// +kubebuilder:validation:Enum=Static;External
	Mode string `json:"mode,omitempty"`
}

// ScalingExternal is the mode of a role whose number of replicas a RoleScaler has.
const ScalingExternal = "External"

// IsExternal reports whether a RoleScaler has the number of replicas of the role.
func (r *ServingRole) IsExternal() bool { return r.Scaling != nil && r.Scaling.Mode == ScalingExternal }
