package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	// The group was given more replicas while it did not run, and has not run since. The others do
	// not wait for it.
	// +optional
	Grown bool `json:"grown,omitempty"`
	// The group ran when its update to the present template began, and the rollout is not over: the group
	// does not run with that template yet, or other groups wait for their turn. maxUnavailable limits how
	// many of these groups do not run.
	// +optional
	BeingUpdated bool `json:"beingUpdated,omitempty"`
	// Why the group does not run, as one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why the group does not run.
	// +optional
	Message string `json:"message,omitempty"`
	// With a gang policy: whether the Pods of the group have nodes.
	// +optional
	Gang *ServingGroupGang `json:"gang,omitempty"`
	// Restarts that were made, and that may have to be. Absent: none.
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
	// The domain that was chosen for the group by networkTopology.groupPolicy: a node label, such as
	// topology.kubernetes.io/zone=a.
	// +optional
	Domain string `json:"domain,omitempty"`
	// The domains that were chosen for replicas of roles by networkTopology.rolePolicy, by role-id, such
	// as prefill-0.
	// +optional
	RoleDomains map[string]string `json:"roleDomains,omitempty"`
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
