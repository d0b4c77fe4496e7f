package v1alpha1

// GangScheduler is what gives the Pods of a group nodes together.
type GangScheduler string

// The values of GangScheduler; empty: GangAuto.
const (
	GangAuto       GangScheduler = "Auto"
	GangVolcano    GangScheduler = "Volcano"
	GangKubernetes GangScheduler = "Kubernetes"
	GangGated      GangScheduler = "Gated"
)

// schedulerVolcano is the name that Volcano gives its scheduler, and schedulerDefault the one that
// Kubernetes gives its own.
const (
	schedulerVolcano = "volcano"
	schedulerDefault = "default-scheduler"
)

// UsesVolcano reports whether the groups have PodGroups of Volcano.
func (s *ModelServingSpec) UsesVolcano() bool {
	switch s.GangScheduler {
	case GangVolcano:
		return true
	case GangGated, GangKubernetes:
		return false
	default:
		return s.SchedulerName == schedulerVolcano
	}
}

// MayUseKubernetes reports whether the groups have PodGroups of Kubernetes if the cluster has such.
// With Auto that depends on the name of the scheduler: another one may not know PodGroups. Those of
// Kubernetes have no networkTopology.
func (s *ModelServingSpec) MayUseKubernetes() bool {
	switch {
	case s.Template.Gang() == nil || s.UsesVolcano() || s.Template.NetworkTopology != nil:
		return false
	case s.GangScheduler == GangKubernetes:
		return true
	default:
		return s.GangScheduler != GangGated && (s.SchedulerName == "" || s.SchedulerName == schedulerDefault)
	}
}

// UsesGates reports whether Pods of a group have gates: all that it creates, or with PodGroups of
// Kubernetes those that are not counted.
func (s *ModelServingSpec) UsesGates() bool { return s.Template.Gang() != nil && !s.UsesVolcano() }

// GroupDomain returns the policy for the domain in which the Pods of a group get nodes by gates; nil: there
// is none.
func (s *ModelServingSpec) GroupDomain() *NetworkTopologyPolicy {
	if topology := s.Template.NetworkTopology; topology != nil && s.UsesGates() {
		return topology.GroupPolicy
	}
	return nil
}

// RoleDomain returns the policy for the domain in which the Pods of each replica of a role get nodes by
// gates; nil: there is none.
func (s *ModelServingSpec) RoleDomain() *NetworkTopologyPolicy {
	if topology := s.Template.NetworkTopology; topology != nil && s.UsesGates() {
		return topology.RolePolicy
	}
	return nil
}

// TopologySoft is the mode in which Pods are placed elsewhere too.
const TopologySoft = "soft"

// NetworkTopology says which Pods are placed near each other.
type NetworkTopology struct {
	// All Pods of a group.
	// +optional
	GroupPolicy *NetworkTopologyPolicy `json:"groupPolicy,omitempty"`
	// The Pods of each replica of a role. Their domain is within that of the group. Volcano has this from
	// 1.14 on.
	// +optional
	RolePolicy *NetworkTopologyPolicy `json:"rolePolicy,omitempty"`
}

// NetworkTopologyPolicy says how near Pods are placed to each other, in the words of Volcano's
// PodGroup. If the controller places the group by gates, highestTierName is the key of a node label, such
// as topology.kubernetes.io/zone: all the Pods get nodes with the same value.
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
	// Likewise, by the name of the tier. Without Volcano: the key of a node label.
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
