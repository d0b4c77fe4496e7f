package podmeta

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Labels and annotations of subgroups have the names of LeaderWorkerSet, so that what reads those
// of LeaderWorkerSets reads them on the Pods of ModelServings too. LeaderWorkerSet's own webhook
// and controllers look only at Pods with the label [LabelLWSName].
const (
	PrefixSubgroups = "leaderworkerset.sigs.k8s.io/"

	LabelGroupKey      = PrefixSubgroups + "group-key"      // the same on all Pods of a replica of a role
	LabelSubgroupIndex = PrefixSubgroups + "subgroup-index" // which subgroup a Pod is in
	LabelSubgroupKey   = PrefixSubgroups + "subgroup-key"   // the same on all Pods of a subgroup

	AnnotationSubgroupSize = PrefixSubgroups + "subgroup-size"
	// AnnotationExclusiveTopology names the node label whose values are domains: each replica of
	// a role has one for itself.
	AnnotationExclusiveTopology = PrefixSubgroups + "exclusive-topology"
	// AnnotationSubgroupExclusiveTopology does so for each subgroup.
	AnnotationSubgroupExclusiveTopology = PrefixSubgroups + "subgroup-exclusive-topology"
)

// What LeaderWorkerSet itself writes on its Pods.
const (
	LabelLWSName        = PrefixSubgroups + "name"         // name of the LeaderWorkerSet
	LabelLWSWorkerIndex = PrefixSubgroups + "worker-index" // which Pod of its group this is; 0: the leader

	AnnotationLWSSize       = PrefixSubgroups + "size"                 // how many Pods a group has
	AnnotationLWSLeaderName = PrefixSubgroups + "leader-name"          // on workers: name of the leader
	AnnotationLWSLeaderTPUs = PrefixSubgroups + "leader-requests-tpus" // on workers: "true" if the leader requests TPUs
)

// ResourceTPU is what a container asks for to have TPUs.
const ResourceTPU corev1.ResourceName = "google.com/tpu"

// Environment of the processes that use TPUs, as libtpu reads it.
const (
	EnvTPUWorkerID         = "TPU_WORKER_ID"         // which of the hosts this is
	EnvTPUWorkerHostnames  = "TPU_WORKER_HOSTNAMES"  // the hosts, by ID
	EnvTPUProcessAddresses = "TPU_PROCESS_ADDRESSES" // their addresses with ports, by ID
	EnvTPUProcessPort      = "TPU_PROCESS_PORT"      // where this process listens
)

// IsLeaderWorkerSetEnv reports whether a variable is one that the webhook of LeaderWorkerSet adds to
// each container of its Pods: where the leader is, how many Pods the group has, and which this is.
func IsLeaderWorkerSetEnv(name string) bool {
	return slices.Contains([]string{"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}, name)
}
