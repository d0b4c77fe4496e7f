package subgroups

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Topology names the node labels whose values are the domains of groups and of subgroups.
type Topology struct {
	Group    string // each group has a domain for itself; empty: it may be anywhere
	Subgroup string // likewise, each subgroup
	// Gang means that the Pods of a group are scheduled together. Then no worker can wait until
	// its entry has a node.
	Gang bool
}

// TopologyOf reads the annotations of a ModelServing.
func TopologyOf(annotations map[string]string, gang bool) Topology {
	return Topology{
		Group:    annotations[podmeta.AnnotationExclusiveTopology],
		Subgroup: annotations[podmeta.AnnotationSubgroupExclusiveTopology],
		Gang:     gang,
	}
}

// AwaitsEntry reports whether Pod w must not be scheduled before its entry has a node, because it
// needs the node selector of the entry's domain.
func (g *Group) AwaitsEntry(w int) bool { return w > 0 && g.Topology.Group != "" && !g.Topology.Gang }

// NodeSelector returns what Pod w needs in its node selector. domain is the value that the entry's
// node has for the label Topology.Group.
func (g *Group) NodeSelector(w int, domain string) map[string]string {
	if !g.AwaitsEntry(w) {
		return nil
	}
	return map[string]string{g.Topology.Group: domain}
}

// Affinity returns the required terms of Pod w. A pair of terms keeps Pods with the same key
// together in a domain, and those with other keys out of it. The scheduler applies terms to the
// namespace of the Pod.
//
// For affinity the scheduler counts only Pods that match all terms. So with Gang and both levels,
// the first Pod of a later subgroup may come to another domain of groups. The gang scheduler's own
// topology constraint has to keep the group together.
func (g *Group) Affinity(w int) (affinity, antiAffinity []corev1.PodAffinityTerm) {
	switch {
	case g.Topology.Group == "":
	case w == 0:
		affinity = append(affinity, with(podmeta.LabelGroupKey, g.groupKey(), g.Topology.Group))
		antiAffinity = append(antiAffinity, without(podmeta.LabelGroupKey, g.groupKey(), g.Topology.Group))
	case g.Topology.Gang: // the entry keeps other groups out
		affinity = append(affinity, with(podmeta.LabelGroupKey, g.groupKey(), g.Topology.Group))
	}
	if index, ok := g.Index(w); ok && g.Topology.Subgroup != "" {
		key := Key(g.Entry, index)
		affinity = append(affinity, with(podmeta.LabelSubgroupKey, key, g.Topology.Subgroup))
		antiAffinity = append(antiAffinity, without(podmeta.LabelSubgroupKey, key, g.Topology.Subgroup))
	}
	return affinity, antiAffinity
}

// with selects the Pods that have a key.
func with(label, key, topology string) corev1.PodAffinityTerm {
	return term(topology, metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpIn, Values: []string{key}})
}

// without selects the Pods that have another key.
func without(label, key, topology string) corev1.PodAffinityTerm {
	return term(topology,
		metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpExists},
		metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpNotIn, Values: []string{key}})
}

func term(topology string, requirements ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements}}
}
