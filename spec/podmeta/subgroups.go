package podmeta

import corev1 "k8s.io/api/core/v1"

// Labels and annotations of subgroups have the names of LeaderWorkerSet, so that what reads those
// of LeaderWorkerSets reads them on the Pods of ModelServings too. LeaderWorkerSet's own webhook
// and controllers look only at Pods with the label leaderworkerset.sigs.k8s.io/name.
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

// ResourceTPU is what a container asks for to have TPUs.
const ResourceTPU corev1.ResourceName = "google.com/tpu"

// Environment of the processes that use TPUs, as libtpu reads it.
const (
	EnvTPUWorkerID         = "TPU_WORKER_ID"         // which of the hosts this is
	EnvTPUWorkerHostnames  = "TPU_WORKER_HOSTNAMES"  // the hosts, by ID
	EnvTPUProcessAddresses = "TPU_PROCESS_ADDRESSES" // their addresses with ports, by ID
	EnvTPUProcessPort      = "TPU_PROCESS_PORT"      // where this process listens
)
