package v1alpha1

import (
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
// +kubebuilder:printcolumn:name="Groups",type=integer,JSONPath=`.status.replicas`,description="groups that have Pods"
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.readyReplicas`,description="groups whose Pods are all ready"
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="groups that have the present template, or are getting it"
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

// GangScheduler is what gives the Pods of a group nodes together.
type GangScheduler string

// The values of GangScheduler; empty: GangAuto.
const (
	GangAuto    GangScheduler = "Auto"
	GangVolcano GangScheduler = "Volcano"
	GangGated   GangScheduler = "Gated"
)

// schedulerVolcano is the name that Volcano gives its scheduler.
const schedulerVolcano = "volcano"

// UsesVolcano reports whether the groups have PodGroups of Volcano.
func (s *ModelServingSpec) UsesVolcano() bool {
	switch s.GangScheduler {
	case GangVolcano:
		return true
	case GangGated:
		return false
	default:
		return s.SchedulerName == schedulerVolcano
	}
}

// UsesGates reports whether the controller gives the Pods of a group nodes together.
func (s *ModelServingSpec) UsesGates() bool { return s.Template.GangPolicy != nil && !s.UsesVolcano() }

// ModelServingSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.recoveryPolicy) || self.recoveryPolicy != 'ServingGroupRecreate' || !has(self.rolloutStrategy) || !has(self.rolloutStrategy.type) || self.rolloutStrategy.type != 'RoleRollingUpdate'",message="rolloutStrategy.type RoleRollingUpdate replaces Pods of a group one by one, and recoveryPolicy ServingGroupRecreate would recreate the group for each: choose RoleRecreate, None, or ServingGroupRollingUpdate"
// +kubebuilder:validation:XValidation:rule="!has(self.gangScheduler) || self.gangScheduler != 'Volcano' || has(self.schedulerName)",message="gangScheduler Volcano needs schedulerName: give the name of Volcano's scheduler, such as volcano"
// +kubebuilder:validation:XValidation:rule="!has(self.template.networkTopology) || has(self.gangScheduler) && self.gangScheduler == 'Volcano' || has(self.schedulerName) && self.schedulerName == 'volcano' && (!has(self.gangScheduler) || self.gangScheduler == 'Auto')",message="template.networkTopology is for Volcano: give schedulerName, such as volcano, or remove networkTopology"
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

	// What gives the Pods of a group nodes together. Volcano: a scheduler of Volcano does, by a
	// PodGroup of each group; the queue is that of the annotation
	// scheduling.volcano.sh/queue-name of the ModelServing. Gated: the controller does, if there
	// is a gangPolicy, by a scheduling gate. Auto: Volcano if schedulerName is volcano; otherwise
	// Gated.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Volcano;Gated
	GangScheduler GangScheduler `json:"gangScheduler,omitempty"`

	// How a changed template comes to groups that have Pods.
	// +optional
	RolloutStrategy RolloutStrategy `json:"rolloutStrategy,omitempty"`

	// What is restarted if a Pod was ready and is not, is gone, or its server has ended.
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

	// How many groups may not run: the next group is updated when fewer do not run. A number, or
	// a percentage of the groups, which is rounded down, to at least 1. Default: 1.
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
// +kubebuilder:validation:XValidation:rule="!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas) || self.roles.all(r, !(r.name in self.gangPolicy.minRoleReplicas) || (self.gangPolicy.minRoleReplicas[r.name] >= 0 && self.gangPolicy.minRoleReplicas[r.name] <= r.replicas))",message="gangPolicy.minRoleReplicas should be between 0 and the replicas of the role: change it, or the replicas"
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

	// Which Pods Volcano places near each other, by its HyperNodes.
	// +optional
	NetworkTopology *NetworkTopology `json:"networkTopology,omitempty"`

	// Has the Pods of a group get nodes together or not at all: the controller keeps them from
	// being scheduled until there are GPUs for all that are counted. Without it, each Pod gets a
	// node as soon as there is one. A changed policy applies to groups that have no nodes yet.
	// +optional
	GangPolicy *GangPolicy `json:"gangPolicy,omitempty"`

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

// NetworkTopology says which Pods are placed near each other.
type NetworkTopology struct {
	// All Pods of a group.
	// +optional
	GroupPolicy *NetworkTopologyPolicy `json:"groupPolicy,omitempty"`
	// The Pods of each replica of a role. Volcano has this from 1.14 on.
	// +optional
	RolePolicy *NetworkTopologyPolicy `json:"rolePolicy,omitempty"`
}

// NetworkTopologyPolicy says how near Pods are placed to each other, in the words of Volcano's
// PodGroup.
//
// +kubebuilder:validation:XValidation:rule="!has(self.highestTierAllowed) || !has(self.highestTierName)",message="give either highestTierAllowed or highestTierName"
type NetworkTopologyPolicy struct {
	// hard: the Pods wait until they can be placed so. soft: if they cannot, they are placed all
	// the same.
	// +optional
	// +kubebuilder:default=hard
	// +kubebuilder:validation:Enum=hard;soft
	Mode string `json:"mode,omitempty"`
	// The highest tier of HyperNodes that all the Pods share.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	HighestTierAllowed *int32 `json:"highestTierAllowed,omitempty"`
	// Likewise, by the name of the tier.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HighestTierName string `json:"highestTierName,omitempty"`
}

// SubGroupPolicy divides the Pods of a replica of a role into subgroups, as that of
// LeaderWorkerSet. The leader is the entry.
type SubGroupPolicy struct {
	// How many Pods a subgroup has.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subGroupSize cannot be changed: delete the ModelServing and create it again"
	SubGroupSize int32 `json:"subGroupSize"`

	// LeaderWorker: the entry is in the first subgroup. LeaderExcluded: it is in none.
	// +optional
	// +kubebuilder:default=LeaderWorker
	// +kubebuilder:validation:Enum=LeaderWorker;LeaderExcluded
	SubGroupPolicyType string `json:"subGroupPolicyType,omitempty"`
}

// GangPolicy says which Pods of a group get nodes together or not at all.
type GangPolicy struct {
	// How many replicas of a role are counted, by the name of the role. The others may get nodes
	// once those that are counted have them. All replicas of a role that is not named are counted.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	MinRoleReplicas map[string]int32 `json:"minRoleReplicas,omitempty"`
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

// ServingGroupState is how far a group is.
//
// +kubebuilder:validation:Enum=Scaling;Progressing;Running;Failed
type ServingGroupState string

// The states of a group.
const (
	// GroupScaling: the group is getting another number of replicas of a role, or Pods that it
	// should not have any more are being deleted.
	GroupScaling ServingGroupState = "Scaling"
	// GroupProgressing: Pods are being created, or are not ready.
	GroupProgressing ServingGroupState = "Progressing"
	// GroupRunning: all Pods are ready.
	GroupRunning ServingGroupState = "Running"
	// GroupFailed: somebody has to do something before the group can run.
	GroupFailed ServingGroupState = "Failed"
)

// ServingGroupStatus is the observed state of a group.
type ServingGroupStatus struct {
	// Name of the group, such as llama-0.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// How far the group is.
	// +required
	State ServingGroupState `json:"state"`
	// Revision of the template that the group has, or is getting.
	// +optional
	Revision string `json:"revision,omitempty"`
	// How many replicas of each role the group has, or is getting.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	RoleReplicas map[string]int32 `json:"roleReplicas,omitempty"`
	// The group was given other numbers of replicas in its turn, and does not run yet. Until it
	// does, the others keep theirs.
	// +optional
	BeingScaled bool `json:"beingScaled,omitempty"`
	// Why the group does not run, as one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why the group does not run.
	// +optional
	Message string `json:"message,omitempty"`
	// With a gang policy: whether the Pods of the group have nodes.
	// +optional
	Gang *ServingGroupGang `json:"gang,omitempty"`
	// What was restarted, and what may have to be. Absent: nothing.
	// +optional
	Restart *ServingGroupRestart `json:"restart,omitempty"`
	// With InPlaceSwap: the change of the group's models that is under way, or that has failed.
	// +optional
	Change *ServingGroupChange `json:"change,omitempty"`
}

// ServingGroupChange says how far a change of a group in place is.
type ServingGroupChange struct {
	// Revision of the template that the group is changed to.
	// +required
	Revision string `json:"revision"`
	// How far the change is.
	// +required
	State ChangeState `json:"state"`
	// Since when.
	// +required
	Since metav1.Time `json:"since"`
	// Which try it is, from 1.
	// +required
	Try int64 `json:"try"`
	// Why the last try failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Whether a launcher refused it, and nothing was changed.
	// +optional
	Misfit bool `json:"misfit,omitempty"`
}

// ChangeState is how far a change of a group in place is.
//
// +kubebuilder:validation:Enum=Changing;Committed;Undoing;Undone
type ChangeState string

// The states of a change in place.
const (
	// ChangeBegun: the launchers prepare the new models, and make them ready to serve.
	ChangeBegun ChangeState = "Changing"
	// ChangeCommitted: the group has the new models for good.
	ChangeCommitted ChangeState = "Committed"
	// ChangeUndoing: the old models are woken.
	ChangeUndoing ChangeState = "Undoing"
	// ChangeUndone: the group has the old models. The change is tried again later.
	ChangeUndone ChangeState = "Undone"
)

// ServingGroupGang says how far a group with a gang policy is. It is absent before the first try.
type ServingGroupGang struct {
	// How far the group is.
	// +required
	State GangState `json:"state"`
	// Since when. For a group that is Placed, also when Pods were last added to it.
	// +required
	Since metav1.Time `json:"since"`
	// How often in a row not all Pods got nodes in time.
	// +optional
	Misses int32 `json:"misses,omitempty"`
}

// GangState is how far a group with a gang policy is.
//
// +kubebuilder:validation:Enum=Admitted;Placed;Missed
type GangState string

// The states of a group with a gang policy.
const (
	// GangAdmitted: there was room for all Pods that are counted, and the scheduler may give them
	// nodes now.
	GangAdmitted GangState = "Admitted"
	// GangPlaced: all Pods that are counted have got nodes.
	GangPlaced GangState = "Placed"
	// GangMissed: not all Pods that are counted got nodes in time, and the group has given back
	// what it had. It is tried again later.
	GangMissed GangState = "Missed"
)

// ModelServingStatus is the observed state.
type ModelServingStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: the templates are valid. Available: all groups run. Progressing: Pods of a
	// group are being created or deleted, or are not ready.
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
