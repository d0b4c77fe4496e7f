package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Model is one name under which clients find a model, whatever runs it. Its entries are the ways to run it,
// in order of preference: another engine, other hardware, other arguments. The controller scales the entries
// by demand. The front door holds requests while no entry runs.
//
// Each entry becomes an InferenceServerConfig and a Deployment of Pods, both named MODEL-ENTRY.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=mdl,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name should be at most 63 characters, because it is the value of a label"
// +kubebuilder:validation:XValidation:rule="has(self.specs) || self.metadata.name.size() <= 55",message="metadata.name should be at most 55 characters, because the Deployment of a Model without specs is named NAME-default, at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.specs) || self.specs.all(s, self.metadata.name.size() + 1 + s.name.size() <= 63)",message="metadata.name and each name of specs should be at most 62 characters together, because each Deployment is named MODEL-ENTRY, at most 63 characters: shorten one"
// +kubebuilder:validation:XValidation:rule="has(self.spec) || has(self.specs)",message="give spec or specs: how to run the model"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.replicas`,description="replicas that there are to be"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="replicas that answer requests"
// +kubebuilder:printcolumn:name="Serving",type=string,JSONPath=`.status.serving`,description="entries that answer requests, with their numbers of replicas"
// +kubebuilder:printcolumn:name="Asleep-On",type=string,JSONPath=`.status.sleepsOn`,description="nodes on which the model sleeps"
// +kubebuilder:printcolumn:name="Backing-Off",type=string,JSONPath=`.status.backingOff`,description="entries that have failed and are tried again later"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
type Model struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Settings of the whole model, and those that its entries inherit. Without specs there is one entry, default.
	// +optional
	Spec ModelSpec `json:"spec,omitempty,omitzero"`

	// The entries, in order of preference. A field that an entry sets replaces the one of spec; env is
	// merged by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].all(i, i >= self.size() || !has(self[i].simultaneousScaleUpGroup) || has(self[i-1].simultaneousScaleUpGroup) && self[i-1].simultaneousScaleUpGroup == self[i].simultaneousScaleUpGroup || [0,1,2,3,4,5,6,7,8,9,10,11,12,13].all(j, j >= i - 1 || !has(self[j].simultaneousScaleUpGroup) || self[j].simultaneousScaleUpGroup != self[i].simultaneousScaleUpGroup))",message="entries of one simultaneousScaleUpGroup should stand together: move them next to each other"
	Specs []ModelEntry `json:"specs,omitempty"`

	// Observed state, written by the controller.
	// +optional
	Status ModelStatus `json:"status,omitempty,omitzero"`
}

// ModelSpec is what a model is, and what its entries inherit.
//
// +kubebuilder:validation:XValidation:rule="!has(self.totalMinReplicas) || !has(self.totalMaxReplicas) || self.totalMinReplicas <= self.totalMaxReplicas",message="totalMinReplicas should be at most totalMaxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || has(oldSelf.replicas) && self.replicas == oldSelf.replicas || has(self.autoscaling) && has(self.autoscaling.mode) && self.autoscaling.mode == 'External'",fieldPath=".replicas",message="means something only in the mode External: set autoscaling.mode to External, or set minReplicas"
type ModelSpec struct {
	ServerSettings `json:",inline"`
	ModelSettings  `json:",inline"`
}

// ModelEntry is one way to run a model.
//
// +kubebuilder:validation:XValidation:rule="!has(self.features)",fieldPath=".features",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancing)",fieldPath=".loadBalancing",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters)",fieldPath=".adapters",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.aliases)",fieldPath=".aliases",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.owner)",fieldPath=".owner",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling)",fieldPath=".autoscaling",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas)",fieldPath=".replicas",message="belongs to the whole model: set it in spec; the controller decides how many replicas each entry has, within minReplicas and maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.totalMinReplicas)",fieldPath=".totalMinReplicas",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.totalMaxReplicas)",fieldPath=".totalMaxReplicas",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.hold)",fieldPath=".hold",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway)",fieldPath=".gateway",message="belongs to the whole model: set it in spec"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.resourceProfile)",fieldPath=".resourceProfile",message="a seat has the GPUs of its SeatPool: remove resourceProfile, or seatPool"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.launcherConfigName)",fieldPath=".launcherConfigName",message="a seat has the launchers of its SeatPool: remove launcherConfigName, or seatPool"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.image)",fieldPath=".image",message="a seat has the image of its launchers: remove image, or seatPool"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.priorityClassName)",fieldPath=".priorityClassName",message="seats have the priority that the template of their SeatPool says: remove priorityClassName, or seatPool"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.simultaneousScaleUpGroup)",fieldPath=".simultaneousScaleUpGroup",message="the members of a group race with Pods of their own: remove simultaneousScaleUpGroup, or seatPool"
// +kubebuilder:validation:XValidation:rule="!has(self.seatPool) || !has(self.engine) || self.engine == 'VLLM'",fieldPath=".engine",message="launchers run VLLM alone in seats: set engine to VLLM, or remove seatPool"
type ModelEntry struct {
	// Name of the entry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=61
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	Name string `json:"name"`

	ServerSettings `json:",inline"`

	// Names of variables of spec.env that this entry does not have.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	UnsetEnv []string `json:"unsetEnv,omitempty"`

	// Entries with the same value are scaled up together. The controller keeps the replicas that are ready first, and takes
	// the rest back.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SimultaneousScaleUpGroup string `json:"simultaneousScaleUpGroup,omitempty"`

	// Name of a SeatPool, in the same namespace. The entry has no Pods of its own: each replica takes a seat of
	// the pool, whose launchers and GPUs it has.
	// +optional
	// +kubebuilder:validation:MaxLength=54
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a SeatPool: lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	SeatPool string `json:"seatPool,omitempty"`

	// An entry has these fields only so that the API server refuses them by name.
	ModelSettings `json:",inline"`
}

// ModelList is a list of Model.
//
// +kubebuilder:object:root=true
type ModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Model `json:"items"`
}
