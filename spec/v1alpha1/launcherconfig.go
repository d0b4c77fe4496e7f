package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// LauncherConfig says what launchers there are: from which Pod template, on
// which nodes, and what they may keep asleep.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lcfg,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits and '-': the launchers have it as the value of a label"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.population.mode`
// +kubebuilder:printcolumn:name="Launchers",type=integer,JSONPath=`.status.launchers`,description="launchers that there should be"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`,description="launchers that are ready"
// +kubebuilder:printcolumn:name="Outdated",type=integer,JSONPath=`.status.outdated`,description="launchers of an earlier template"
// +kubebuilder:printcolumn:name="Awake",type=integer,JSONPath=`.status.awake`,description="instances that are awake"
// +kubebuilder:printcolumn:name="Asleep",type=integer,JSONPath=`.status.asleep`,description="instances that sleep"
// +kubebuilder:printcolumn:name="Sleeps-On",type=string,priority=1,JSONPath=`.status.sleepsOn`,description="nodes where they sleep"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.status=="False")].message`
type LauncherConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for.
	// +required
	Spec LauncherConfigSpec `json:"spec"`
	// What the controller tells.
	// +optional
	Status LauncherConfigStatus `json:"status,omitempty"`
}

// LauncherConfigSpec is what a user wants.
type LauncherConfigSpec struct {
	// Pod template of the launchers, as that of a DaemonSet. Its container
	// inference-server has the image with vLLM; the launcher is copied into it.
	// It asks for no GPU, since a launcher sees all of its node. A template that
	// is none is told by the condition Accepted.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate runtime.RawExtension `json:"podTemplate"`

	// Where launchers are.
	// +optional
	// +kubebuilder:default={}
	Population Population `json:"population,omitempty"`

	// How many instances a launcher may have; without it there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxInstances *int32 `json:"maxInstances,omitempty"`

	// +optional
	Budgets Budgets `json:"budgets,omitempty"`

	// Whether the GPUs that a requester names are compared with those that the
	// kubelet gave it.
	// +optional
	// +kubebuilder:default={}
	AllocationCheck AllocationCheck `json:"allocationCheck,omitempty"`

	// Models that the nodes of the launchers keep. Without it launchers have none, and
	// each engine finds its model by itself.
	// +optional
	ModelCache *LauncherModelCache `json:"modelCache,omitempty"`
}

// LauncherModelCache says where launchers have models.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeGroup) || has(self.claims) && size(self.claims) > 0",message="give nodeGroup, claims or both"
type LauncherModelCache struct {
	// Name of a ModelCacheNodeGroup: its folder of the node is mounted into each
	// launcher, which fetches there what ClusterModelCaches ask for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	NodeGroup string `json:"nodeGroup,omitempty"`

	// Names of PersistentVolumeClaims of the namespace, which are mounted into each
	// launcher to be read: what ModelCaches keep there is served from there, and
	// pvc://CLAIM/folder is a folder of one. One that is ReadWriteOnce is on one node at a
	// time.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Claims []string `json:"claims,omitempty"`
}

// AllocationCheckMode says who is asked which GPUs a requester has.
//
// +kubebuilder:validation:Enum=Kubelet;None
type AllocationCheckMode string

// The modes of the allocation check.
const (
	// AllocationCheckKubelet has a container beside each launcher ask the kubelet.
	AllocationCheckKubelet AllocationCheckMode = "Kubelet"
	// AllocationCheckNone has the requester's own word count.
	AllocationCheckNone AllocationCheckMode = "None"
)

// AllocationCheck says whether the GPUs that a requester names are compared with
// those that the kubelet gave it.
type AllocationCheck struct {
	// Kubelet: a container pod-resources beside each launcher asks the kubelet,
	// on the socket of its PodResources API, which takes a hostPath volume and
	// user 0. None: a requester's own word counts, for namespaces where such Pods
	// are not admitted, or device plugins whose ids are no UUIDs.
	// +optional
	// +kubebuilder:default=Kubelet
	Mode AllocationCheckMode `json:"mode,omitempty"`

	// The kubelet's folder on the nodes.
	// +optional
	// +kubebuilder:default="/var/lib/kubelet"
	// +kubebuilder:validation:Pattern=`^/[^:]*$`
	// +kubebuilder:validation:MaxLength=1024
	KubeletDir string `json:"kubeletDir,omitempty"`
}

// PopulationMode says when launchers are made.
//
// +kubebuilder:validation:Enum=PerNode;OnDemand
type PopulationMode string

// The modes of population.
const (
	// PerNode has a launcher on each node that fits, before anybody asks.
	PerNode PopulationMode = "PerNode"
	// OnDemand makes a launcher on a node when a requester there needs one.
	OnDemand PopulationMode = "OnDemand"
)

// Population says where launchers are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idleTimeout) || has(self.mode) && self.mode == 'OnDemand'",message="idleTimeout is for mode OnDemand: a DaemonSet keeps its launchers"
type Population struct {
	// PerNode: one on each node that fits. OnDemand: one on a node when a
	// requester there needs it.
	// +optional
	// +kubebuilder:default=PerNode
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another LauncherConfig with the other mode and let launcherConfigName name that"
	Mode PopulationMode `json:"mode,omitempty"`

	// Labels of the nodes that may have a launcher, besides what the Pod
	// template asks of a node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// With mode OnDemand: how long a launcher may be without a requester before it
	// is removed, such as 1h; at least 5s. One that has not become ready is removed
	// too, but not while a requester waits for it. What sleeps in it ends with it, so
	// that the next requester there starts cold. Without it launchers stay, but for
	// those that were never placed and whose node is gone.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('5s')",message="should be a duration of at least 5s, such as 1h or 30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
}

// Budgets say what a launcher may keep asleep. Their names are those of the
// launcher's settings; without one there is no limit.
type Budgets struct {
	// How many instances may sleep on a GPU.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSleepersPerGPU *int32 `json:"maxSleepersPerGPU,omitempty"`

	// What sleepers may hold of a GPU's memory, such as 4Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 4Gi"
	MaxSleeperBytesPerGPU *resource.Quantity `json:"maxSleeperBytesPerGPU,omitempty"`

	// What sleepers may hold of the node's main memory, such as 200Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 200Gi"
	MaxHostSleeperBytes *resource.Quantity `json:"maxHostSleeperBytes,omitempty"`

	// How long an instance stays awake before another may take its place, such
	// as 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s')",message="should be a duration, such as 30s or 1m30s"
	MinResidency *metav1.Duration `json:"minResidency,omitempty"`
}

// LauncherConfigStatus is what the controller tells.
type LauncherConfigStatus struct {
	// Generation of the object that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted, and why not; Available, and what is waited for; AllocationsChecked,
	// and by whom.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Launchers that there should be.
	// +optional
	Launchers int32 `json:"launchers"`
	// Launchers that are ready.
	// +optional
	Ready int32 `json:"ready"`
	// Launchers of an earlier template; each goes once nothing of it is bound.
	// +optional
	Outdated int32 `json:"outdated"`
	// Instances that are awake.
	// +optional
	Awake int32 `json:"awake"`
	// Instances that sleep.
	// +optional
	Asleep int32 `json:"asleep"`
	// Nodes where they sleep, in words; the end is left out where they are many.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SleepsOn string `json:"sleepsOn,omitempty"`

	// Instances of the launchers, sorted by node and name. Where there are more
	// than have room the list ends early, and instancesLeftOut counts the rest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Instances []LauncherInstance `json:"instances,omitempty"`
	// Instances that are not in the list.
	// +optional
	InstancesLeftOut int32 `json:"instancesLeftOut,omitempty"`
}

// MaxListedInstances is how many instances the status of a LauncherConfig lists.
const MaxListedInstances = 100

// LauncherInstance is an inference server on a launcher, as the launcher said
// last.
type LauncherInstance struct {
	// Node of the launcher.
	Node string `json:"node"`
	// Id of the instance on its launcher; it begins with the model's name.
	Name string `json:"name"`
	// State of the instance: starting, awake, falling_asleep, sleeping, waking,
	// stopping, stopped or failed.
	State string `json:"state"`
	// When that state began.
	Since metav1.Time `json:"since"`
	// Pod that the instance is bound to, in the namespace of the LauncherConfig.
	// +optional
	Requester string `json:"requester,omitempty"`
	// UUIDs of its GPUs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	GPUs []string `json:"gpus,omitempty"`
}

// LauncherConfigList is a list of LauncherConfig.
//
// +kubebuilder:object:root=true
type LauncherConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LauncherConfig `json:"items"`
}
