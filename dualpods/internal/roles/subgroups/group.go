package subgroups

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Type says where the entry is.
type Type string

// The values of subGroupPolicyType. LeaderWorkerSet calls the entry the leader.
const (
	LeaderWorker   Type = "LeaderWorker"   // in the first subgroup
	LeaderExcluded Type = "LeaderExcluded" // in none
)

// Policy is the subGroupPolicy of a ModelServing.
type Policy struct {
	Size int  // subGroupSize
	Type Type // subGroupPolicyType; empty: LeaderWorker
}

// Group is a replica of a role. Its Policy must be one in which Validate finds no problem.
type Group struct {
	Namespace string
	Entry     string            // name of the entry Pod
	Pods      []*corev1.PodSpec // by index: the entry, then the workers
	Policy    *Policy           // nil: no subgroups
	Topology  Topology
}

// Index returns the subgroup of Pod w. ok is false if the Pod is in none.
func (g *Group) Index(w int) (index int, ok bool) {
	switch {
	case g.Policy == nil, w == 0 && g.Policy.Type == LeaderExcluded:
		return 0, false
	case g.entryFillsPlace():
		return w / g.Policy.Size, true
	default: // the entry comes on top of the first subgroup
		return max(w-1, 0) / g.Policy.Size, true
	}
}

// entryFillsPlace reports whether the entry is one of the Policy.Size Pods of the first subgroup.
func (g *Group) entryFillsPlace() bool {
	return g.Policy.Type != LeaderExcluded && len(g.Pods)%g.Policy.Size == 0 && AsksForAccelerators(g.Pods[0])
}

// AsksForAccelerators reports whether a Pod asks for google.com/tpu or nvidia.com/gpu. Such an
// entry works as its workers do, so it fills a place of the first subgroup. LeaderWorkerSet knows
// google.com/tpu alone, since it writes the environment of TPUs; but entries of ModelServings are
// mostly requesters, which ask for nvidia.com/gpu.
func AsksForAccelerators(spec *corev1.PodSpec) bool {
	return tpuContainer(spec) != nil || podmeta.HoldsGPUs(spec)
}

// Key returns the value of the label subgroup-key, as LeaderWorkerSet computes it.
func Key(entry string, index int) string { return hash(fmt.Sprintf("%s/%d", entry, index)) }

// groupKey returns the value of the label group-key, as LeaderWorkerSet computes it.
func (g *Group) groupKey() string { return hash(g.Namespace + "/" + g.Entry) }

func hash(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Labels returns the labels of Pod w.
func (g *Group) Labels(w int) map[string]string {
	labels := map[string]string{}
	if index, ok := g.Index(w); ok {
		labels[podmeta.LabelSubgroupIndex], labels[podmeta.LabelSubgroupKey] = strconv.Itoa(index), Key(g.Entry, index)
	}
	if g.Topology.Group != "" {
		labels[podmeta.LabelGroupKey] = g.groupKey()
	}
	return labels
}

// Annotations returns the annotations of each Pod.
func (g *Group) Annotations() map[string]string {
	annotations := map[string]string{}
	if g.Policy != nil {
		annotations[podmeta.AnnotationSubgroupSize] = strconv.Itoa(g.Policy.Size)
	}
	if g.Topology.Group != "" {
		annotations[podmeta.AnnotationExclusiveTopology] = g.Topology.Group
	}
	if g.Topology.Subgroup != "" {
		annotations[podmeta.AnnotationSubgroupExclusiveTopology] = g.Topology.Subgroup
	}
	return annotations
}
