package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ModelServing describes groups of inference servers that serve one model together, such as a
// prefill and a decode server. Each group has the same roles; each replica of a role has an
// entry Pod, and may have workers. Pods that request GPUs are server-requesting Pods. If the Pods
// of a role do, an entry and its workers are the ranks of one server over several launchers.
//
// The Pods of a group are named NAME-GROUP-ROLE-REPLICA-POD, as llama-0-prefill-0-0. A Service
// with the name of an entry leads to the launcher Pod in which the entry's server runs.
//
// A changed template is rolled out group by group.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=ms,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name should be lower-case letters, digits and '-', beginning with a letter and ending with a letter or a digit, because the names of Services begin with it"
// +kubebuilder:validation:XValidation:rule="self.spec.template.roles.all(r, size(self.metadata.name) + size(r.name) + size(string(self.spec.replicas > 0 ? self.spec.replicas - 1 : 0)) + (has(r.scaling) && r.scaling.mode == 'External' ? 3 : size(string(r.replicas > 0 ? r.replicas - 1 : 0))) + (has(r.workerReplicas) ? size(string(r.workerReplicas)) : 1) + 4 <= 63)",message="the names of Pods, such as NAME-GROUP-ROLE-REPLICA-0, would have more than 63 characters: give the ModelServing or the role a shorter name, or have fewer replicas; a role whose scaling.mode is External may have 1000"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="groups that there are to be"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="groups whose Pods are all ready"
// +kubebuilder:printcolumn:name="Up-To-Date",type=integer,JSONPath=`.status.updatedReplicas`,description="groups that have the present template, or are getting it"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
type ModelServing struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec ModelServingSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status ModelServingStatus `json:"status,omitempty"`
}

// ModelServingSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.recoveryPolicy) || self.recoveryPolicy != 'ServingGroupRecreate' || !has(self.rolloutStrategy) || !has(self.rolloutStrategy.type) || self.rolloutStrategy.type != 'RoleRollingUpdate'",message="rolloutStrategy.type RoleRollingUpdate replaces Pods of a group one by one, and recoveryPolicy ServingGroupRecreate would recreate the group for each: choose RoleRecreate, None, or ServingGroupRollingUpdate"
// +kubebuilder:validation:XValidation:rule="!has(self.updateMode) || self.updateMode != 'InPlaceSwap' || !has(self.rolloutStrategy) || !has(self.rolloutStrategy.type) || self.rolloutStrategy.type != 'RoleRollingUpdate'",message="updateMode InPlaceSwap changes all roles of a group together: choose rolloutStrategy.type ServingGroupRollingUpdate, or updateMode Recreate"
// +kubebuilder:validation:XValidation:rule="!has(self.gangScheduler) || self.gangScheduler != 'Volcano' || has(self.schedulerName)",message="gangScheduler Volcano needs schedulerName: give the name of Volcano's scheduler, such as volcano"
// +kubebuilder:validation:XValidation:rule="!has(self.template.networkTopology) || (has(self.gangScheduler) && self.gangScheduler == 'Volcano' || has(self.schedulerName) && self.schedulerName == 'volcano' && (!has(self.gangScheduler) || self.gangScheduler == 'Auto')) || (has(self.template.gangPolicy) || has(self.template.gangpolicy)) && (!has(self.gangScheduler) || self.gangScheduler != 'Kubernetes')",message="template.networkTopology is for Volcano, or for a gangPolicy without the PodGroups of Kubernetes: give schedulerName, such as volcano, or gangPolicy and gangScheduler Gated, or remove networkTopology"
// +kubebuilder:validation:XValidation:rule="!has(self.template.networkTopology) || (has(self.gangScheduler) && self.gangScheduler == 'Volcano' || has(self.schedulerName) && self.schedulerName == 'volcano' && (!has(self.gangScheduler) || self.gangScheduler == 'Auto')) || !has(self.template.networkTopology.rolePolicy) || has(self.template.networkTopology.rolePolicy.highestTierName) && self.template.networkTopology.rolePolicy.highestTierName.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="template.networkTopology.rolePolicy without Volcano needs highestTierName, the key of a node label, such as topology.kubernetes.io/zone"
// +kubebuilder:validation:XValidation:rule="!has(self.template.networkTopology) || (has(self.gangScheduler) && self.gangScheduler == 'Volcano' || has(self.schedulerName) && self.schedulerName == 'volcano' && (!has(self.gangScheduler) || self.gangScheduler == 'Auto')) || !has(self.template.networkTopology.groupPolicy) || has(self.template.networkTopology.groupPolicy.highestTierName) && self.template.networkTopology.groupPolicy.highestTierName.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="template.networkTopology.groupPolicy without Volcano needs highestTierName, the key of a node label, such as topology.kubernetes.io/zone"
// +kubebuilder:validation:XValidation:rule="!has(self.plugins)",message="plugins of Kthena are not supported: remove plugins, and write what they would add into the templates of the Pods"
// +kubebuilder:validation:XValidation:rule="!has(self.onMisfit) || has(self.updateMode) && self.updateMode == 'InPlaceSwap'",message="onMisfit is for updateMode InPlaceSwap: set updateMode, or remove onMisfit"
// +kubebuilder:validation:XValidation:rule="has(self.rolloutStrategy) && has(self.rolloutStrategy.type) && self.rolloutStrategy.type == 'RoleRollingUpdate' || self.template.roles.all(r, !has(r.rollingUpdateConfiguration))",message="rollingUpdateConfiguration of a role is for rolloutStrategy.type RoleRollingUpdate: set the type, or remove it from template.roles"
type ModelServingSpec struct {
	// How many groups there are.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Template of the groups.
	// +required
	Template ServingGroupTemplate `json:"template"`

	// Scheduler of the Pods. It goes before that of the Pod templates. Pods that there are keep
	// theirs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// Not supported: the API server refuses this field of Kthena's ModelServing.
	// +optional
	Plugins []Unsupported `json:"plugins,omitempty"`

	// The part that gives the Pods of a group nodes together. Volcano: a scheduler of Volcano does, by a
	// PodGroup of each group; the queue is that of the annotation
	// scheduling.volcano.sh/queue-name of the ModelServing. Kubernetes: its own scheduler does, if
	// there is a gangPolicy, by a PodGroup of each group; this takes the feature gate
	// GenericWorkload. Gated: the controller does, if there is a gangPolicy, by a scheduling gate.
	// Auto: Volcano if schedulerName is volcano; Kubernetes if the cluster has its PodGroups, and
	// the scheduler is its own; otherwise Gated.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Volcano;Kubernetes;Gated
	GangScheduler GangScheduler `json:"gangScheduler,omitempty"`

	// How a changed template comes to groups that have Pods.
	// +optional
	RolloutStrategy RolloutStrategy `json:"rolloutStrategy,omitempty"`

	// How much is restarted if a Pod was ready and is not, is gone, or its server has ended.
	// ServingGroupRecreate: all Pods of the group are deleted and created again. RoleRecreate: a
	// server that has ended is started again for the same Pod; if that does not help, the Pods of
	// that replica of the role are recreated, and then those of the group. None: nothing; a Pod
	// that has ended, or whose server has, stays as it is until somebody deletes it.
	// +optional
	// +kubebuilder:default=RoleRecreate
	// +kubebuilder:validation:Enum=ServingGroupRecreate;RoleRecreate;None
	RecoveryPolicy RecoveryPolicy `json:"recoveryPolicy,omitempty"`

	// After how many seconds a group is recreated of which Pods have nodes and are not ready, also
	// if they never were. Default: 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ProgressingTimeoutSeconds *int64 `json:"progressingTimeoutSeconds,omitempty"`

	// How often a group is recreated, if it never ran for ten minutes in between, before it is
	// Failed. From then on it is recreated once an hour. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxGroupRestarts *int32 `json:"maxGroupRestarts,omitempty"`

	// Recreate: the Pods of a group are deleted and created again when its template changes.
	// InPlaceSwap: a change of what the engines are told alone (the server patch, or the name of
	// the InferenceServerConfig) is made in the Pods as they stand, in all of a group or in
	// none. They keep their GPUs. A change of labels and annotations touches no engine. For any
	// other change the Pods are created again.
	// +optional
	// +kubebuilder:default=Recreate
	// +kubebuilder:validation:Enum=Recreate;InPlaceSwap
	UpdateMode string `json:"updateMode,omitempty"`

	// With InPlaceSwap: what is done if a launcher refuses the new model, since there is no room
	// for it beside the old one, for instance. Absent: the group keeps the old model, and the
	// change is tried again later. Recreate: its Pods are created again.
	// +optional
	// +kubebuilder:validation:Enum=Recreate
	OnMisfit string `json:"onMisfit,omitempty"`
}

// Values of UpdateMode; UpdateRecreate is one of OnMisfit, too.
const (
	UpdateRecreate = "Recreate"
	UpdateInPlace  = "InPlaceSwap"
)

// RolloutStrategy says how a changed template comes to groups that have Pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.evictionStrategy)",message="evictionStrategy of Kthena is not supported: remove it, and create a PodDisruptionBudget for the Pods"
type RolloutStrategy struct {
	// ServingGroupRollingUpdate: group by group, the highest ordinal first. All Pods of a group
	// are deleted and created again. RoleRollingUpdate: likewise, but of a group only the Pods of
	// roles whose template has changed are, replica by replica: rollingUpdateConfiguration of the
	// role has the details. The others get the label of the new revision.
	// +optional
	// +kubebuilder:default=ServingGroupRollingUpdate
	// +kubebuilder:validation:Enum=ServingGroupRollingUpdate;RoleRollingUpdate
	Type string `json:"type,omitempty"`

	// Details of the rolling update.
	// +optional
	RollingUpdateConfiguration RollingUpdateConfiguration `json:"rollingUpdateConfiguration,omitempty"`

	// Not supported: the API server refuses this field of Kthena's ModelServing.
	// +optional
	EvictionStrategy *Unsupported `json:"evictionStrategy,omitempty"`
}

// RoleRollingUpdate is the type of a rollout in which Pods of roles that have not changed stay.
const RoleRollingUpdate = "RoleRollingUpdate"

// RollingUpdateConfiguration has the details of a rolling update. In a role, they are about the
// replicas of the role in a group, instead of groups.
type RollingUpdateConfiguration struct {
	// Groups with a lower ordinal keep their template: a number, or a percentage of the groups,
	// which is rounded up. If such a group has to be created again, it gets the template that it
	// had. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000 : self.matches('^(100|[0-9]{1,2})%$')",message="should be a number, 0 to 1000, or a percentage, such as 50%"
	Partition *intstr.IntOrString `json:"partition,omitempty"`

	// How many groups an update may take down at once. The next group is updated when fewer groups than this are
	// down because of their update. A group that does not run is updated at once, and does not count. A number, or a percentage of the groups, which is rounded down, to at least 1. Default: 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000 : self.matches('^(100|[1-9][0-9]?)%$')",message="should be a number, 1 to 1000, or a percentage, such as 25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// ServingGroupTemplate describes a group.
//
// +kubebuilder:validation:XValidation:rule="has(self.subGroupPolicy) == has(oldSelf.subGroupPolicy)",message="subGroupPolicy cannot be added or removed: delete the ModelServing and create it again"
// +kubebuilder:validation:XValidation:rule="!has(self.subGroupPolicy) || self.roles.all(r, !has(r.workerReplicas) || r.workerReplicas == 0 || self.subGroupPolicy.subGroupSize <= 1 + r.workerReplicas && (r.workerReplicas % self.subGroupPolicy.subGroupSize == 0 || self.subGroupPolicy.subGroupPolicyType != 'LeaderExcluded' && (1 + r.workerReplicas) % self.subGroupPolicy.subGroupSize == 0))",message="subGroupPolicy.subGroupSize should divide workerReplicas of each role with workers, or workerReplicas + 1 unless subGroupPolicyType is LeaderExcluded"
// +kubebuilder:validation:XValidation:rule="!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas) || self.gangPolicy.minRoleReplicas.all(name, self.roles.exists(r, r.name == name))",message="gangPolicy.minRoleReplicas names a role that the template does not have: name only roles of the template"
// +kubebuilder:validation:XValidation:rule="!has(self.gangpolicy) || !has(self.gangpolicy.minRoleReplicas) || self.gangpolicy.minRoleReplicas.all(name, self.roles.exists(r, r.name == name))",message="gangpolicy.minRoleReplicas names a role that the template does not have: name only roles of the template"
// +kubebuilder:validation:XValidation:rule="!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas) || self.roles.all(r, !(r.name in self.gangPolicy.minRoleReplicas) || (self.gangPolicy.minRoleReplicas[r.name] >= 0 && self.gangPolicy.minRoleReplicas[r.name] <= r.replicas))",message="gangPolicy.minRoleReplicas should be between 0 and the replicas of the role: change it, or the replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.gangpolicy) || !has(self.gangpolicy.minRoleReplicas) || self.roles.all(r, !(r.name in self.gangpolicy.minRoleReplicas) || (self.gangpolicy.minRoleReplicas[r.name] >= 0 && self.gangpolicy.minRoleReplicas[r.name] <= r.replicas))",message="gangpolicy.minRoleReplicas should be between 0 and the replicas of the role: change it, or the replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.gangPolicy) || !has(self.gangpolicy)",message="gangPolicy and gangpolicy are the same field: give one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.ratioConstraint) || self.ratioConstraint.numeratorRole != self.ratioConstraint.denominatorRole && self.roles.exists(r, r.name == self.ratioConstraint.numeratorRole) && self.roles.exists(r, r.name == self.ratioConstraint.denominatorRole)",message="ratioConstraint.numeratorRole and denominatorRole should be two roles of the template"
type ServingGroupTemplate struct {
	// The roles of a group.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Roles []ServingRole `json:"roles"`

	// Divides the Pods of each replica of a role with workers into subgroups. The annotations
	// leaderworkerset.sigs.k8s.io/exclusive-topology and subgroup-exclusive-topology of the
	// ModelServing name node labels: each replica, or each subgroup, has one value of that label
	// for itself.
	// +optional
	SubGroupPolicy *SubGroupPolicy `json:"subGroupPolicy,omitempty"`

	// Which Pods are placed near each other: by Volcano, by its HyperNodes, or with a gangPolicy by the
	// controller, by a label of nodes.
	// +optional
	NetworkTopology *NetworkTopology `json:"networkTopology,omitempty"`

	// Has the Pods of a group get nodes together or not at all: the controller keeps them from
	// being scheduled until there are GPUs for all that are counted. With Volcano, it is the minimum
	// of the PodGroups. Without it, each Pod gets a node as soon as there is one; with Volcano, all
	// Pods are counted. A changed policy applies to groups that have no nodes yet.
	// +optional
	GangPolicy *GangPolicy `json:"gangPolicy,omitempty"`

	// The same as gangPolicy, in another spelling. Give one of them.
	// +optional
	LowerGangPolicy *GangPolicy `json:"gangpolicy,omitempty"`

	// Bounds the numbers of replicas of two roles by each other: the role that has too many for the
	// other one gets fewer. The condition ScalingLimited says which one.
	// +optional
	RatioConstraint *RatioConstraint `json:"ratioConstraint,omitempty"`

	// How many seconds a Pod that was ready may be not ready before the recovery policy applies.
	// A changed value applies at once, and changes no Pod. Default: 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RestartGracePeriodSeconds *int64 `json:"restartGracePeriodSeconds,omitempty"`
}

// ServingRole is a role in a group.
//
// +kubebuilder:validation:XValidation:rule="has(self.entryTemplate) != has(self.inferenceServerConfig)",message="give either entryTemplate or inferenceServerConfig"
// +kubebuilder:validation:XValidation:rule="has(self.workerTemplate) == (has(self.entryTemplate) && has(self.workerReplicas) && self.workerReplicas > 0)",message="give workerTemplate if entryTemplate is given and workerReplicas is above 0, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.gpus) || has(self.inferenceServerConfig)",message="gpus is for roles with inferenceServerConfig: let entryTemplate request nvidia.com/gpu"
type ServingRole struct {
	// Name of the role, such as prefill.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="should be lower-case letters, digits and '-', beginning with a letter and ending with a letter or a digit"
	Name string `json:"name"`

	// How many replicas of the role each group has. With scaling.mode External: has at first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// With the rollout strategy RoleRollingUpdate: how a changed template of the role comes to its
	// replicas in a group.
	// +optional
	RollingUpdateConfiguration *RollingUpdateConfiguration `json:"rollingUpdateConfiguration,omitempty"`

	// Where the number of replicas comes from. Default: replicas.
	// +optional
	Scaling *RoleScaling `json:"scaling,omitempty"`

	// Pod template of the entry. If it requests nvidia.com/gpu, it is that of a
	// server-requesting Pod, as in examples/dual-pods. Otherwise the Pod runs what the
	// template says. If the template is not valid, the condition Accepted says why.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	EntryTemplate *runtime.RawExtension `json:"entryTemplate,omitempty"`

	// How many workers each replica of the role has besides its entry. Their names end with 1,
	// 2 and so on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=63
	WorkerReplicas *int32 `json:"workerReplicas,omitempty"`

	// Pod template of the workers, as entryTemplate. If both request nvidia.com/gpu, the engine
	// of each Pod is one rank of a server: give their engines the same arguments, and each Pod
	// its part of the GPUs. The controller adds what makes an engine a rank.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	WorkerTemplate *runtime.RawExtension `json:"workerTemplate,omitempty"`

	// Name of an InferenceServerConfig of the namespace. The controller makes the
	// server-requesting Pods for it, also those of workers.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="should be the name of an InferenceServerConfig: lower-case letters, digits, '-' and '.', beginning and ending with a letter or a digit"
	InferenceServerConfig string `json:"inferenceServerConfig,omitempty"`

	// With inferenceServerConfig: how many GPUs each Pod requests. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	GPUs *int32 `json:"gpus,omitempty"`
}

// Unsupported is a field of Kthena's ModelServing that the API server refuses, with a message that names it.
// A field that is not in the schema would be dropped, without an error to clients that do not ask for strict
// validation.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Unsupported struct{}

// Count returns how many groups there are to be.
func (s *ModelServingSpec) Count() int { return count(s.Replicas) }

// Count returns how many replicas of the role each group is to have.
func (r *ServingRole) Count() int { return count(r.Replicas) }

// Size returns how many Pods a replica of the role has: its entry and its workers.
func (r *ServingRole) Size() int {
	if r.WorkerReplicas == nil {
		return 1
	}
	return 1 + int(*r.WorkerReplicas)
}

// Gang returns the gang policy in either of its spellings; nil: there is none.
func (t *ServingGroupTemplate) Gang() *GangPolicy { return cmp.Or(t.GangPolicy, t.LowerGangPolicy) }

// Counted returns how many replicas of a role get nodes together with the other roles.
func (p *GangPolicy) Counted(role *ServingRole) int {
	if least, named := p.MinRoleReplicas[role.Name]; named {
		return min(int(least), role.Count())
	}
	return role.Count()
}

// count is the value of a field whose default is 1.
func count(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// ModelServingStatus is the observed state.
type ModelServingStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: the templates are valid. Available: all groups run. Progressing: Pods of a
	// group are being created or deleted, or are not ready; or a change in place has failed, and is
	// tried again. ScalingLimited: a role has another number of replicas than was asked for.
	// PodGroups: each group has a PodGroup of Volcano.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Groups that have Pods.
	// +optional
	Replicas int32 `json:"replicas"`
	// Groups whose Pods are all ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Label selector of the entry Pods, for autoscalers.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Revision of the present template.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Revision of the template that was rolled out to all groups last.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// Groups that have the present template, or are getting it.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// The groups, by ordinal.
	// +optional
	// +listType=map
	// +listMapKey=name
	Groups []ServingGroupStatus `json:"groups,omitempty"`
}

// ModelServingList is a list of ModelServing.
//
// +kubebuilder:object:root=true
type ModelServingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModelServing `json:"items"`
}
