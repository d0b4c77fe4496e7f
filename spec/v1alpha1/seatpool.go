package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SeatPool keeps Pods that hold GPUs and have no model: seats. The entries of Models that name it in seatPool
// take turns on its seats. To take a seat, an entry needs a swap in the launcher of its node, and no new Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.seats.total
// +kubebuilder:resource:shortName=seats,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?$')",message="metadata.name should be at most 54 lower-case letters, digits and '-', because seats are named NAME-NUMBER and carry it as the value of a label"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="seats that there should be"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.seats.total`,description="seats that there are"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.seats.idle`,description="seats without a model"
// +kubebuilder:printcolumn:name="Taken",type=integer,JSONPath=`.status.seats.taken`,description="seats that have a model"
// +kubebuilder:printcolumn:name="Models",type=string,JSONPath=`.status.serving`,description="Models that have seats, with their numbers"
// +kubebuilder:printcolumn:name="Waiting",type=string,JSONPath=`.status.waiting`,description="Models that wait for a seat"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.status=="False")].message`
type SeatPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec SeatPoolSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status SeatPoolStatus `json:"status,omitempty,omitzero"`
}

// SeatPoolSpec is the desired state.
type SeatPoolSpec struct {
	// How many seats there should be. If it falls, seats without a model go first, and others once their Model has no
	// request. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// How many GPUs a seat has. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another SeatPool for seats of another size"
	GPUs int32 `json:"gpus,omitempty"`

	// Name of the LauncherConfig, in the same namespace, whose launchers run the models.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a LauncherConfig: lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	LauncherConfigName string `json:"launcherConfigName"`

	// For how long a seat keeps its model at least while the model has requests, counted from the time when
	// the model became ready. Default: 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinResidencySeconds *int32 `json:"minResidencySeconds,omitempty"`

	// For how long a seat may go on with its requests when another Model is to get the seat. Default: 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`

	// Pod template of the seats: labels, annotations, and where the Pods may run. The controller adds the
	// container inference-server with the requester program and its GPUs. Default: empty.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// SeatPoolStatus is the observed state.
type SeatPoolStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: the template can be used. Available: there are as many seats as there should be, and their
	// Pods run.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// How many seats there are.
	// +optional
	Seats SeatNumbers `json:"seats"`

	// Models that have seats, with their numbers, for people; a long list is shortened.
	// +optional
	Serving string `json:"serving,omitempty"`
	// Models that wait for a seat, for people; a long list is shortened.
	// +optional
	Waiting string `json:"waiting,omitempty"`

	// The entries that take seats, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Models []SeatModel `json:"models,omitempty"`
}

// SeatNumbers are the numbers of a pool's seats.
type SeatNumbers struct {
	// Seats whose Pods are not being deleted.
	Total int32 `json:"total"`
	// Seats without a model.
	Idle int32 `json:"idle"`
	// Seats with a model.
	Taken int32 `json:"taken"`
}

// SeatModel says which seats an entry of a Model has.
type SeatModel struct {
	// Name of the Model.
	Model string `json:"model"`
	// Name of the entry.
	Entry string `json:"entry"`
	// Seats that it asks for.
	Wants int32 `json:"wants"`
	// Seats that it has, by name; at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Seats []string `json:"seats,omitempty"`
	// How many seats it has.
	Has int32 `json:"has"`
}

// SeatPoolList is a list of SeatPool.
//
// +kubebuilder:object:root=true
type SeatPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SeatPool `json:"items"`
}
