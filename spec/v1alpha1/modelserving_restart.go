package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RecoveryPolicy says what is restarted if a Pod of a group, or the server of a Pod, fails.
type RecoveryPolicy string

// The policies.
const (
	RecoverGroup RecoveryPolicy = "ServingGroupRecreate"
	RecoverRole  RecoveryPolicy = "RoleRecreate"
	RecoverNone  RecoveryPolicy = "None"
)

// The defaults of fields about restarts, as the fields say.
const (
	defaultGrace       = 60
	defaultProgressing = 600
	defaultMaxRestarts = 5
)

// Recovery returns the recovery policy.
func (s *ModelServingSpec) Recovery() RecoveryPolicy {
	if s.RecoveryPolicy == "" {
		return RecoverRole
	}
	return s.RecoveryPolicy
}

// GraceSeconds returns how long a Pod that was ready may be not ready.
func (t *ServingGroupTemplate) GraceSeconds() int64 {
	return or(t.RestartGracePeriodSeconds, defaultGrace)
}

// ProgressingSeconds returns how long Pods of a group may be on their way to be ready.
func (s *ModelServingSpec) ProgressingSeconds() int64 {
	return or(s.ProgressingTimeoutSeconds, defaultProgressing)
}

// GroupRestarts returns how often a group is recreated before it is failed.
func (s *ModelServingSpec) GroupRestarts() int32 { return or(s.MaxGroupRestarts, defaultMaxRestarts) }

func or[N int32 | int64](n *N, otherwise N) N {
	if n == nil {
		return otherwise
	}
	return *n
}

// ServingGroupRestart is what the controller has to remember of a group for its restarts.
type ServingGroupRestart struct {
	// Replicas of roles, as decode-0, whose Pods have all been ready.
	// +optional
	// +listType=set
	Ran []string `json:"ran,omitempty"`
	// Pods that were ready and are not.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=16
	NotReady []NotReadyPod `json:"notReady,omitempty"`
	// UIDs of Pods that are being deleted so that others take their places. No Pod is created in
	// their replica of a role before they are gone, or, with whole, none in the group.
	// +optional
	// +listType=set
	Leaving []types.UID `json:"leaving,omitempty"`
	// All Pods of the group are being recreated.
	// +optional
	Whole bool `json:"whole,omitempty"`
	// Replicas of roles that were recreated, and when.
	// +optional
	// +listType=map
	// +listMapKey=name
	Roles []RecreatedRole `json:"roles,omitempty"`
	// Since when Pods that have a node are not ready. Absent: all are.
	// +optional
	StalledSince *metav1.Time `json:"stalledSince,omitempty"`
	// Since when all Pods that have a node are ready, after a restart. Once that is ten minutes ago, the
	// restarts before count no more.
	// +optional
	RunsSince *metav1.Time `json:"runsSince,omitempty"`
	// How often the whole group was recreated without having run for ten minutes in between.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// When the whole group was recreated last.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
}

// NotReadyPod is a Pod that was ready and is not.
type NotReadyPod struct {
	// UID of the Pod.
	// +required
	UID types.UID `json:"uid"`
	// Since when it is not ready, by the clock of the controller.
	// +required
	Since metav1.Time `json:"since"`
	// When it became not ready, as its condition Ready says. If that changes, it was ready meanwhile.
	// +optional
	Changed metav1.Time `json:"changed,omitzero"`
}

// RecreatedRole is a replica of a role that was recreated.
type RecreatedRole struct {
	// Name of the replica, as decode-0.
	// +required
	// +kubebuilder:validation:MaxLength=68
	Name string `json:"name"`
	// When it was recreated last.
	// +required
	At metav1.Time `json:"at"`
}
