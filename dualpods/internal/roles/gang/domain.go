package gang

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// domain is the nodes with one value of a label; zero: all nodes.
type domain struct{ key, value string }

// readDomain reads what [domain.String] has written.
func readDomain(text string) domain {
	key, value, _ := strings.Cut(text, "=")
	return domain{key, value}
}

func (a domain) String() string {
	if a.key == "" {
		return ""
	}
	return a.key + "=" + a.value
}

// has reports whether a node is in the domain.
func (a domain) has(n *Node) bool {
	value, labelled := n.Labels[a.key]
	return a.key == "" || labelled && value == a.value
}

// apply has the scheduler place a Pod in the domain. A Pod with a gate accepts that; see scheduling
// directives of gated Pods in
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/.
func (a domain) apply(spec *corev1.PodSpec, must bool) {
	switch {
	case a.key == "":
	case must:
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[a.key] = a.value
	default:
		if spec.Affinity == nil {
			spec.Affinity = &corev1.Affinity{}
		}
		if spec.Affinity.NodeAffinity == nil {
			spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}
		terms := &spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, corev1.PreferredSchedulingTerm{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: a.key, Operator: corev1.NodeSelectorOpIn, Values: []string{a.value}}},
		}})
	}
}

// topology returns the policy for the domain of a group; nil: its Pods may be anywhere.
func (g *Gang) topology() *v1alpha1.NetworkTopologyPolicy { return g.Serving.Spec.GroupDomain() }

// isHard reports whether Pods have to be in one domain by a policy.
func isHard(policy *v1alpha1.NetworkTopologyPolicy) bool {
	return policy != nil && policy.Mode != v1alpha1.TopologySoft
}

// domain returns the domain that was chosen for a group; zero: none was, or the policy has another label
// now.
func (g *Gang) domain() domain {
	if policy := g.topology(); policy != nil {
		if chosen := readDomain(g.Record.Domain); chosen.key == policy.HighestTierName {
			return chosen
		}
	}
	return domain{}
}

// domains returns the domains of a label that some Pods may be in, the best first: that in which most of
// them sleep on free GPUs, then that with the fewest free GPUs. Only nodes in another domain count.
func (d *decision) domains(key string, pods []*Member, within domain) []domain {
	free := map[string]int64{}
	for n, node := range d.room.nodes {
		if value, labelled := node.Labels[key]; labelled && within.has(&d.room.nodes[n]) {
			free[value] += max(d.room.free[n], 0)
		}
	}
	asleep := make(map[string]int, len(free))
	for value := range free {
		asleep[value] = d.asleep(domain{key, value}, pods)
	}
	values := slices.SortedFunc(maps.Keys(free), func(a, b string) int {
		return cmp.Or(cmp.Compare(asleep[b], asleep[a]), cmp.Compare(free[a], free[b]), strings.Compare(a, b))
	})
	all := make([]domain, 0, len(values))
	for _, value := range values {
		all = append(all, domain{key, value})
	}
	return all
}

// asleep returns how many of the Pods have sleepers of their own in a domain.
func (d *decision) asleep(in domain, pods []*Member) (count int) {
	type gpu struct{ node, uuid string }
	used := map[gpu]bool{}
	for _, m := range pods {
		if len(d.sleepers[m.uid()]) == 0 {
			continue
		}
		open := d.room.within(in, d.room.openTo(&m.Pod.Spec))
		at := slices.IndexFunc(d.sleepers[m.uid()], func(s placement.Asleep) bool {
			return slices.ContainsFunc(open, func(n int) bool { return d.room.nodes[n].Name == s.Node }) && !slices.ContainsFunc(s.GPUs, func(uuid string) bool { return used[gpu{s.Node, uuid}] })
		})
		if at < 0 {
			continue
		}
		count++
		for s, n := d.sleepers[m.uid()][at], 0; n < len(s.GPUs); n++ {
			used[gpu{s.Node, s.GPUs[n]}] = true
		}
	}
	return count
}

func (m *Member) uid() types.UID {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.UID
}

// mayBegin returns the domains that a group without nodes may get nodes in, the best first.
func (d *decision) mayBegin(g *Gang) []domain {
	policy := g.topology()
	if policy == nil {
		return []domain{{}}
	}
	all := d.domains(policy.HighestTierName, g.counted, domain{})
	if !isHard(policy) {
		all = append(all, domain{})
	}
	return all
}

// mayContinue returns the domains that further Pods of a group may get nodes in, the best first.
func (g *Gang) mayContinue() []domain {
	all := []domain{g.domain()}
	if all[0] != (domain{}) && !isHard(g.topology()) {
		all = append(all, domain{})
	}
	return all
}

// take reports whether there is room for Pods of a group together, and takes it: in the domain of the
// group, or if the group begins in the first domain with room.
func (d *decision) take(g *Gang, s *Step, pods []*Member, begins bool) bool {
	all := g.mayContinue()
	if begins {
		all = d.mayBegin(g)
	}
	for _, in := range all {
		if a, fits := d.divide(g, in, pods); fits {
			s.in = a
			return true
		}
	}
	return false
}
