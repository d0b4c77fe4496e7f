package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// LauncherConfig describes launchers: their Pod template, their nodes, and what they may
// keep asleep.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lcfg,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits and '-', because launchers carry it as the value of a label"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.population.mode`
// +kubebuilder:printcolumn:name="Launchers",type=integer,JSONPath=`.status.launchers`,description="desired launchers"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`,description="ready launchers"
// +kubebuilder:printcolumn:name="Outdated",type=integer,JSONPath=`.status.outdated`,description="launchers made from an earlier template"
// +kubebuilder:printcolumn:name="Awake",type=integer,JSONPath=`.status.awake`,description="awake instances"
// +kubebuilder:printcolumn:name="Asleep",type=integer,JSONPath=`.status.asleep`,description="sleeping instances"
// +kubebuilder:printcolumn:name="Sleeps-On",type=string,priority=1,JSONPath=`.status.sleepsOn`,description="nodes with sleeping instances"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.status=="False")].message`
type LauncherConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec LauncherConfigSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status LauncherConfigStatus `json:"status,omitempty"`
}

// LauncherConfigSpec is the desired state.
type LauncherConfigSpec struct {
	// Pod template of the launchers, as in a DaemonSet. The image of its container
	// inference-server has vLLM; an init container copies the launcher into it. The
	// template must not request GPUs, because a launcher sees all GPUs of its node. If
	// the template is not valid, the condition Accepted says why.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate runtime.RawExtension `json:"podTemplate"`

	// On which nodes there are launchers.
	// +optional
	// +kubebuilder:default={}
	Population Population `json:"population,omitempty"`

	// How many instances a launcher may have. Without it there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxInstances *int32 `json:"maxInstances,omitempty"`

	// What launchers may keep asleep.
	// +optional
	Budgets Budgets `json:"budgets,omitempty"`

	// Whether the controller compares the GPUs that a requester reports with those that
	// the kubelet allocated to it.
	// +optional
	// +kubebuilder:default={}
	AllocationCheck AllocationCheck `json:"allocationCheck,omitempty"`

	// How the controller replaces launchers that were made from an earlier template.
	// +optional
	// +kubebuilder:default={}
	Rollout Rollout `json:"rollout,omitempty"`

	// Where launchers find models that are kept for them. Without it each engine finds
	// its model by itself.
	// +optional
	ModelCache *LauncherModelCache `json:"modelCache,omitempty"`
}

// Rollout says how the controller replaces launchers that were made from an earlier
// template. All that sleeps in a launcher ends with it.
type Rollout struct {
	// How many nodes may be without a ready launcher while the controller replaces ready
	// ones: a number, or a percentage of the nodes with launchers, rounded up, such as 25%.
	// Launchers that are not ready for another reason count too. Nodes with a taint that the
	// launchers do not tolerate do not count, and keep their launchers, because the node
	// would not accept a new launcher. A node that is short of memory, disk space or process
	// IDs counts, and keeps a launcher that is ready or in which something sleeps.
	// Launchers in which nothing sleeps are replaced first. 0: the controller replaces only
	// launchers that are not ready and in which nothing sleeps.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : string(self).matches('^([0-9]{1,2}|100)%$')",message="should be a number of nodes such as 1, or a percentage of them such as 25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// LauncherModelCache says where launchers find models.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeGroup) || has(self.claims) && size(self.claims) > 0",message="give nodeGroup, claims or both"
type LauncherModelCache struct {
	// Name of a ModelCacheNodeGroup. Its folder on the node is mounted into each
	// launcher, which fetches the models of ClusterModelCaches into it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	NodeGroup string `json:"nodeGroup,omitempty"`

	// Names of PersistentVolumeClaims of the namespace, which are mounted read-only into
	// each launcher. Engines read the models of ModelCaches from them, and
	// pvc://CLAIM/folder is a folder of one. A ReadWriteOnce claim is usable on one node
	// at a time.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Claims []string `json:"claims,omitempty"`
}

// AllocationCheckMode says whether the kubelet is asked which GPUs a requester has.
//
// +kubebuilder:validation:Enum=Kubelet;None
type AllocationCheckMode string

// The modes of the allocation check.
const (
	// AllocationCheckKubelet compares the report with the answer of the node's agent.
	AllocationCheckKubelet AllocationCheckMode = "Kubelet"
	// AllocationCheckNone trusts the requester's report.
	AllocationCheckNone AllocationCheckMode = "None"
)

// AllocationCheck says whether the controller compares the GPUs that a requester reports
// with those that the kubelet allocated to it.
type AllocationCheck struct {
	// Kubelet: the agent of each node, which the chart runs, asks the kubelet by its
	// PodResources API. None: the controller trusts the requester's report. Use None if
	// the cluster does not admit the agents, which need a hostPath volume and user 0, or
	// if the ids of the device plugin are not UUIDs.
	// +optional
	// +kubebuilder:default=Kubelet
	Mode AllocationCheckMode `json:"mode,omitempty"`

	// Not used: the chart's value agent.kubeletDir is the kubelet's folder on the nodes.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[^:]*$`
	// +kubebuilder:validation:MaxLength=1024
	KubeletDir string `json:"kubeletDir,omitempty"`
}

// EarlierKubeletDir is the value that spec.allocationCheck.kubeletDir had by default when it was
// used: nobody has chosen it.
const EarlierKubeletDir = "/var/lib/kubelet"

// PopulationMode says when launchers are created.
//
// +kubebuilder:validation:Enum=PerNode;OnDemand
type PopulationMode string

// The modes of population.
const (
	// PerNode keeps a launcher on each matching node, before any requester needs it.
	PerNode PopulationMode = "PerNode"
	// OnDemand creates a launcher on a node when a requester there needs it.
	OnDemand PopulationMode = "OnDemand"
)

// Population says on which nodes there are launchers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idleTimeout) || has(self.mode) && self.mode == 'OnDemand'",message="idleTimeout needs mode OnDemand: with PerNode a DaemonSet keeps the launchers"
type Population struct {
	// PerNode: a launcher on each matching node. OnDemand: a launcher on a node when a
	// requester there needs it.
	// +optional
	// +kubebuilder:default=PerNode
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create a LauncherConfig with the other mode, and name it in launcherConfigName"
	Mode PopulationMode `json:"mode,omitempty"`

	// Labels of the nodes that may have a launcher. The Pod template may narrow them
	// further.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// With mode OnDemand: how long a launcher may be without a requester before the
	// controller removes it, such as 1h; at least 5s. A launcher that is not ready is
	// removed too, but not while a requester waits for it. Its sleepers end with it, so
	// the next requester on that node starts cold. Without idleTimeout launchers stay; only
	// those are removed that were never scheduled and whose node is gone.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('5s')",message="should be a duration of at least 5s, such as 1h or 30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
}

// Budgets limit what a launcher may keep asleep. They have the names of the launcher's
// settings. Without a value there is no limit.
type Budgets struct {
	// How many instances may sleep on a GPU.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSleepersPerGPU *int32 `json:"maxSleepersPerGPU,omitempty"`

	// How much memory of a GPU sleepers may hold, such as 4Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 4Gi"
	MaxSleeperBytesPerGPU *resource.Quantity `json:"maxSleeperBytesPerGPU,omitempty"`

	// How much main memory of the node sleepers may hold, such as 200Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 200Gi"
	MaxHostSleeperBytes *resource.Quantity `json:"maxHostSleeperBytes,omitempty"`

	// How long an instance stays awake before a swap may send it away, such as 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s')",message="should be a duration, such as 30s or 1m30s"
	MinResidency *metav1.Duration `json:"minResidency,omitempty"`
}

// LauncherConfigStatus is the observed state.
type LauncherConfigStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: the spec is valid. Available: all launchers are ready.
	// AllocationsChecked: the kubelet is asked which GPUs requesters have. UpToDate: all
	// launchers have the template. ProtectedFromEviction: launchers have a priority above
	// that of ordinary Pods. The message says what is wrong or missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Desired launchers.
	// +optional
	Launchers int32 `json:"launchers"`
	// Ready ones of them. With mode PerNode, neither number counts nodes that are not selected
	// any more, or that have a taint that the launchers do not tolerate.
	// +optional
	Ready int32 `json:"ready"`
	// Launchers made from an earlier template. The controller replaces each once no
	// requester is bound to it, as spec.rollout says.
	// +optional
	Outdated int32 `json:"outdated"`
	// Requesters that are bound to the launchers. While there are any, only an
	// administrator may delete the LauncherConfig.
	// +optional
	Requesters int32 `json:"requesters"`
	// Awake instances.
	// +optional
	Awake int32 `json:"awake"`
	// Sleeping instances.
	// +optional
	Asleep int32 `json:"asleep"`
	// Nodes with sleeping instances, for people; a long list is shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SleepsOn string `json:"sleepsOn,omitempty"`

	// Instances of the launchers, sorted by node and name. A list that is too long is
	// shortened, and instancesLeftOut counts the rest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Instances []LauncherInstance `json:"instances,omitempty"`
	// How many instances the list leaves out.
	// +optional
	InstancesLeftOut int32 `json:"instancesLeftOut,omitempty"`
}

// MaxListedInstances is how many instances the status of a LauncherConfig lists.
const MaxListedInstances = 100

// LauncherInstance is an inference server on a launcher, as the launcher last reported
// it.
type LauncherInstance struct {
	// Node of the launcher.
	Node string `json:"node"`
	// Id of the instance on its launcher; it begins with the name of the model.
	Name string `json:"name"`
	// State of the instance: starting, awake, falling_asleep, sleeping, waking,
	// stopping, stopped or failed.
	State string `json:"state"`
	// When the instance entered this state.
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
