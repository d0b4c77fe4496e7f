package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InferenceServerConfig says what an inference server is. Server-requesting
// Pods name it in the annotation dual-pod.llm-d.ai/inference-server-config.
//
// An edit of its labels is applied to the requesters that are served, where they
// are. Any other edit is for those that are not: a start that is under way is
// cancelled, and the new one begun. A requester that is served goes on with what
// it has and says so in its status, until it is replaced: `kubectl rollout
// restart` of its Deployment does that at the Deployment's pace. What sleeps of an
// earlier edition is not woken for a later one, and goes by the budgets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=isc,categories=hotseat
// +kubebuilder:printcolumn:name="Launchers",type=string,JSONPath=`.spec.launcherConfigName`,description="LauncherConfig whose launchers run it"
// +kubebuilder:printcolumn:name="Requesters",type=integer,JSONPath=`.status.requesters`,description="Pods that ask for it"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`,description="Pods that ask for it and are ready"
// +kubebuilder:printcolumn:name="Asleep",type=integer,JSONPath=`.status.asleep`,description="instances of it that sleep"
// +kubebuilder:printcolumn:name="Sleeps-On",type=string,JSONPath=`.status.sleepsOn`,description="nodes where they sleep"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.status=="False")].message`
type InferenceServerConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for.
	// +required
	Spec InferenceServerConfigSpec `json:"spec"`
	// What the controller tells.
	// +optional
	Status InferenceServerConfigStatus `json:"status,omitempty"`
}

// InferenceServerConfigSpec is what a user wants.
type InferenceServerConfigSpec struct {
	// How the model server is run.
	// +required
	ModelServerConfig ModelServerConfig `json:"modelServerConfig"`

	// Name of the LauncherConfig, in the same namespace, whose launchers run it.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a LauncherConfig: lower-case letters, digits and '-', with a letter or a digit at either end"
	LauncherConfigName string `json:"launcherConfigName"`
}

// ModelServerConfig says how a model server is run.
//
// +kubebuilder:validation:XValidation:rule="has(self.options) != has(self.args)",message="one of options and args should be given, and not both"
type ModelServerConfig struct {
	// Port on which the requesters of this configuration answer inference
	// requests. Several on one node may have the same.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Arguments of `vllm serve` as one string, split by the rules of a POSIX
	// shell; a word of JSON that begins with { or [ needs no quotes where no
	// blank is in it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Options *string `json:"options,omitempty"`

	// Arguments of `vllm serve` as a list; nothing is split and nothing expanded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	Args []string `json:"args,omitempty"`

	// Environment of the engine, over that of its launcher.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`

	// Labels that a requester has while it is ready, besides its own.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="each key should be that of a label, such as app or example.com/model"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('^(dual-pods?[.]llm-d[.]ai|hotseat[.]dev)/'))",message="keys that begin with dual-pod.llm-d.ai/, dual-pods.llm-d.ai/ or hotseat.dev/ are the controller's: choose others"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].matches('^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$'))",message="each value should be that of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or a digit at either end"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Annotations of the instance on its launcher. hotseat.dev/pinned: "true"
	// keeps it from being evicted while it sleeps.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// EnvVar is a variable of an environment.
type EnvVar struct {
	// Name of the variable: letters, digits and _, and no digit first.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="should be the name of an environment variable: letters, digits and '_', and no digit first"
	Name string `json:"name"`

	// Plain text: what is secret belongs into a Secret that the Pod template of
	// the LauncherConfig gives to its launchers.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Value string `json:"value,omitempty"`
}

// InferenceServerConfigStatus is what the controller tells.
type InferenceServerConfigStatus struct {
	// Generation of the object that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted, and why not; Available, and what is waited for.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Pods that ask for it.
	// +optional
	Requesters int32 `json:"requesters"`
	// Pods that ask for it and are ready.
	// +optional
	Ready int32 `json:"ready"`
	// Instances of it that sleep.
	// +optional
	Asleep int32 `json:"asleep"`
	// Nodes where they sleep, in words; the end is left out where they are many.
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
