package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InferenceServerConfig describes an inference server. Server-requesting Pods name it in
// the annotation dual-pod.llm-d.ai/inference-server-config.
//
// The controller applies a change of the labels to requesters that are served. Any other
// change takes effect at the next start: a start that is under way is cancelled and begun
// anew. A requester that is served keeps what it was bound to, and its status says so. To
// replace it, run `kubectl rollout restart` of its Deployment. Sleepers of an earlier
// version of the object are not woken again; the budgets evict them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=isc,categories=hotseat
// +kubebuilder:printcolumn:name="Launchers",type=string,JSONPath=`.spec.launcherConfigName`,description="LauncherConfig whose launchers run the server"
// +kubebuilder:printcolumn:name="Requesters",type=integer,JSONPath=`.status.requesters`,description="Pods that name the object"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`,description="Pods that name the object and are ready"
// +kubebuilder:printcolumn:name="Asleep",type=integer,JSONPath=`.status.asleep`,description="sleeping instances"
// +kubebuilder:printcolumn:name="Sleeps-On",type=string,JSONPath=`.status.sleepsOn`,description="nodes with sleeping instances"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.status=="False")].message`
type InferenceServerConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec InferenceServerConfigSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status InferenceServerConfigStatus `json:"status,omitempty"`
}

// InferenceServerConfigSpec is the desired state.
type InferenceServerConfigSpec struct {
	// How to run the model server.
	// +required
	ModelServerConfig ModelServerConfig `json:"modelServerConfig"`

	// Name of the LauncherConfig, in the same namespace, whose launchers run the server.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a LauncherConfig: lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	LauncherConfigName string `json:"launcherConfigName"`
}

// ModelServerConfig says how to run a model server.
//
// +kubebuilder:validation:XValidation:rule="has(self.options) != has(self.args)",message="give either options or args"
type ModelServerConfig struct {
	// Port on which each requester answers inference requests. Requesters on one node
	// may have the same port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Arguments of `vllm serve` as one string, split by the rules of a POSIX
	// shell. A word of JSON that begins with { or [ needs no quotes if it has no
	// blank.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Options *string `json:"options,omitempty"`

	// Arguments of `vllm serve` as a list; they are neither split nor expanded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	Args []string `json:"args,omitempty"`

	// Environment variables of the engine; they override those of its launcher.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`

	// Labels that the controller adds to a requester while it serves.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="each key should be a valid label key, such as app or example.com/model"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('^(dual-pods?[.]llm-d[.]ai|hotseat[.]dev)/'))",message="keys that begin with dual-pod.llm-d.ai/, dual-pods.llm-d.ai/ or hotseat.dev/ are reserved for the controller: choose others"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].matches('^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$'))",message="each value should be a valid label value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Annotations of the instance on its launcher. hotseat.dev/pinned: "true" keeps a
	// sleeping instance from being evicted.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// EnvVar is an environment variable.
type EnvVar struct {
	// Name of the variable: letters, digits and _, not beginning with a digit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="should be the name of an environment variable: letters, digits and '_', not beginning with a digit"
	Name string `json:"name"`

	// Value of the variable, in plain text. Put secrets into a Secret that the Pod
	// template of the LauncherConfig gives to its launchers.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Value string `json:"value,omitempty"`
}

// InferenceServerConfigStatus is the observed state.
type InferenceServerConfigStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: the spec is valid. Available: all Pods that name the object are ready. The
	// message says what is wrong or missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Pods that name the object.
	// +optional
	Requesters int32 `json:"requesters"`
	// Pods that name the object and are ready.
	// +optional
	Ready int32 `json:"ready"`
	// Sleeping instances.
	// +optional
	Asleep int32 `json:"asleep"`
	// Nodes with sleeping instances, for people; a long list is shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SleepsOn string `json:"sleepsOn,omitempty"`
}

// InferenceServerConfigList is a list of InferenceServerConfig.
//
// +kubebuilder:object:root=true
type InferenceServerConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []InferenceServerConfig `json:"items"`
}
