package gang

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// room is the GPUs that are free. GPUs are all that is counted.
type room struct {
	nodes []Node
	free  []int64           // by node
	open  map[string][]int  // nodes that Pods may use, by what they demand of nodes
	parts map[domain][]bool // which nodes are in a domain
}

func newRoom(nodes []Node) *room {
	r := &room{nodes: nodes, open: map[string][]int{}, parts: map[domain][]bool{}}
	for _, n := range nodes {
		r.free = append(r.free, n.Free)
	}
	return r
}

// need is what a Pod needs.
type need struct {
	name string
	gpus int64
	open []int // nodes that it may use
}

// needs returns what Pods need that get nodes in an area.
func (r *room) needs(pods []*Member, in area) (all []need) {
	for _, m := range pods {
		if gpus := podmeta.ReservedGPUs(&m.Pod.Spec); gpus > 0 {
			all = append(all, need{m.Name, gpus, r.within(in.replicas[m.of], r.within(in.group, r.openTo(&m.Pod.Spec)))})
		}
	}
	return all
}

// within returns those of the nodes that are in a domain.
func (r *room) within(in domain, nodes []int) []int {
	if in == (domain{}) {
		return nodes
	}
	part, known := r.parts[in]
	if !known {
		part = make([]bool, len(r.nodes))
		for n := range r.nodes {
			part[n] = in.has(&r.nodes[n])
		}
		r.parts[in] = part
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n int) bool { return !part[n] })
}

// openTo returns the nodes that a Pod may use, by their labels and taints.
func (r *room) openTo(spec *corev1.PodSpec) []int {
	demands := corev1.PodSpec{NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		demands.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
	}
	text, err := json.Marshal(demands)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	key := string(text)
	if known, ok := r.open[key]; ok {
		return known
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(demands.NodeSelector, demands.Affinity)
	open := []int{}
	for n, node := range r.nodes {
		if node.Spec.Unschedulable || !dualpods.Tolerates(spec.Tolerations, node.Spec.Taints) {
			continue
		}
		if fits, err := affinity.Match(node.Node); fits && err == nil {
			open = append(open, n)
		}
	}
	r.open[key] = open
	return open
}

// largestFirst and fewestNodesFirst are the orders in which Pods are tried.
func largestFirst(a, b need) int {
	return cmp.Or(cmp.Compare(b.gpus, a.gpus), cmp.Compare(len(a.open), len(b.open)), strings.Compare(a.name, b.name))
}

func fewestNodesFirst(a, b need) int {
	return cmp.Or(cmp.Compare(len(a.open), len(b.open)), largestFirst(a, b))
}

// take reports whether there is room for all of the Pods together in an area, and takes it.
func (r *room) take(pods []*Member, in area) bool {
	if !r.mayFit(pods, in.group) {
		return false
	}
	needs := r.needs(pods, in)
	for _, order := range []func(a, b need) int{largestFirst, fewestNodesFirst} {
		slices.SortFunc(needs, order)
		if free, left := r.place(needs); len(left) == 0 {
			r.free = free
			return true
		}
	}
	return false
}

// mayFit reports whether a domain has as many free GPUs as Pods need.
func (r *room) mayFit(pods []*Member, in domain) bool {
	needed, free := int64(0), int64(0)
	for _, m := range pods {
		needed += podmeta.ReservedGPUs(&m.Pod.Spec)
	}
	for n := range r.nodes {
		if in.has(&r.nodes[n]) {
			free += max(r.free[n], 0)
		}
	}
	return free >= needed
}

// reserve takes room in an area for as many of the Pods as possible. It returns how many GPUs of each node
// it takes.
func (r *room) reserve(pods []*Member, in area) (taken []int64) {
	needs := r.needs(pods, in)
	slices.SortFunc(needs, largestFirst)
	before := r.free
	r.free, _ = r.place(needs)
	for n := range before {
		taken = append(taken, before[n]-r.free[n])
	}
	return taken
}

// giveBack gives back what was reserved.
func (r *room) giveBack(taken []int64) {
	r.free = slices.Clone(r.free)
	for n := range taken {
		r.free[n] += taken[n]
	}
}

// place gives each Pod the node with the fewest free GPUs that are enough. It returns which GPUs
// are free afterwards, and the Pods for which there is no room.
func (r *room) place(needs []need) (free []int64, left []need) {
	free = slices.Clone(r.free)
	for _, p := range needs {
		best := -1
		for _, n := range p.open {
			if free[n] >= p.gpus && (best < 0 || free[n] < free[best]) {
				best = n
			}
		}
		if best < 0 {
			left = append(left, p)
			continue
		}
		free[best] -= p.gpus
	}
	return free, left
}

// lack returns how many GPUs Pods need, and how many are free on nodes of an area that one of them may use.
func (r *room) lack(pods []*Member, in area) (needed, free int64) {
	used := map[int]bool{}
	for _, p := range r.needs(pods, in) {
		needed += p.gpus
		for _, n := range p.open {
			if !used[n] {
				used[n] = true
				free += max(r.free[n], 0)
			}
		}
	}
	return needed, free
}
