package gang

import (
	"context"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gangs returns the groups as they are, by the code of the controller.
func (s *simulation) gangs() (all []*Gang) {
	truth := &apiServer{cachedPods: s.api.pods, cachedServings: s.api.servings, cachedNodes: s.api.nodes}
	c := New(Options{API: truth, Now: func() time.Time { return s.now }})
	for _, name := range slices.Sorted(maps.Keys(s.api.servings)) {
		of, err := c.gangsOf(context.Background(), s.api.servings[name])
		if err != nil {
			panic(err)
		}
		all = append(all, of...)
	}
	return all
}

// slack is how much longer than the limit a group may have a part of its nodes: failed writes,
// stale caches, killed controllers and Pods that end take their time.
const slack = 30 * time.Second

// checkParts checks that no group that was never whole has a part of its nodes for long, and that each group
// and replica that needs one domain is in one.
func (s *simulation) checkParts() {
	for _, g := range s.gangs() {
		if zones := s.domainsOf(zone, g, g.all()); g.topology() != nil && !s.fickle && len(zones) > 1 { // with no replica counted it has none
			s.breaks("group %s is in the zones %v", g.Name, zones)
		}
		for _, r := range g.Replicas {
			if racks := s.domainsOf(rack, g, r.Pods); g.roleTopology() != nil && len(racks) > 1 {
				s.breaks("replica %s of group %s is in the racks %v", r.ID, g.Name, racks)
			}
		}
		has := 0
		for _, m := range g.all() {
			if m.Pod != nil && m.Pod.Spec.NodeName != "" {
				has++
			}
		}
		since, known := s.partial[g.Name]
		switch {
		case g.isPlaced():
			s.partial[g.Name] = time.Time{} // it was whole
			continue
		case has == 0 && len(at(g.all(), mayGetNode)) == 0: // it starts anew
			delete(s.partial, g.Name)
		case !known:
			s.partial[g.Name] = s.now
		case !since.IsZero() && s.now.Sub(since) > placingLimit+slack:
			s.breaks("group %s has had a part of its nodes since %s, and no more", g.Name, since.Format("15:04:05"))
		}
		if ungated := len(at(g.all(), hasNode, mayGetNode)); !s.losing && !s.fickle && !s.scaled && ungated > len(g.counted) {
			s.breaks("%d Pods of group %s may have nodes, and %d are counted", ungated, g.Name, len(g.counted))
		}
	}
}

// domainsOf returns the values of a label that the nodes of Pods of a group have.
func (s *simulation) domainsOf(key string, g *Gang, pods []*Member) (values []string) {
	for _, m := range pods {
		if m.Pod == nil || m.Pod.Spec.NodeName == "" || podmeta.ReservedGPUs(&m.Pod.Spec) == 0 || len(g.counted) == 0 {
			continue
		}
		if in := s.api.nodes[m.Pod.Spec.NodeName].Labels[key]; !slices.Contains(values, in) {
			values = append(values, in)
		}
	}
	return values
}

// noteMisses notes how often groups have missed their deadline once it has been calm for a while.
func (s *simulation) noteMisses() {
	for _, g := range s.gangs() {
		s.misses[g.Name] = g.Record.Misses
	}
}

// checkEnd checks how it is at the end.
func (s *simulation) checkEnd() {
	if s.quiet && s.missed > 0 {
		s.breaks("a deadline was missed, and nobody took GPUs from groups")
	}
	var nodes []Node
	for _, name := range slices.Sorted(maps.Keys(s.api.nodes)) {
		nodes = append(nodes, Node{s.api.nodes[name], s.free(name)})
	}
	for _, g := range s.gangs() {
		switch {
		case g.isPlaced():
			s.running++
		case !s.partial[g.Name].IsZero():
			s.breaks("group %s has a part of its nodes", g.Name)
		case len(at(g.counted, hasNode)) > 0: // it was whole, and has lost Pods, or was scaled
			s.running++
			s.checkRefilled(nodes, g)
		case !s.mixed && (!s.zoned || g.Record.State != v1alpha1.GangMissed) && fits(nodes, g):
			s.breaks("group %s waits, and there is room for it: %+v", g.Name, g.Record)
		}
		if !s.mixed && !s.zoned && g.Record.Misses > s.misses[g.Name] {
			s.breaks("group %s has missed its deadline, and nobody took its GPUs", g.Name)
		}
	}
	smallest := slices.MinFunc(s.gangs(), func(a, b *Gang) int { return len(a.counted) - len(b.counted) })
	if empty := s.empty(); s.running == 0 && !s.mixed && fits(empty, smallest) {
		s.breaks("no group runs")
	}
}

// checkRefilled checks that no replica of a group that runs waits although there is room for it.
func (s *simulation) checkRefilled(nodes []Node, g *Gang) {
	for _, r := range g.Replicas {
		waits := at(r.Pods, isGated)
		if len(waits) > 0 && slices.Contains(g.counted, waits[0]) && len(at(r.Pods, isMissing, leaves)) == 0 && !s.mixed && !s.zoned && newRoom(nodes).take(waits, area{}) {
			s.breaks("replica %s of group %s waits, and there is room for it: %+v", r.ID, g.Name, g.Record)
		}
	}
}

// fits reports whether there is room for the counted Pods of a group.
func fits(nodes []Node, g *Gang) bool {
	return len(at(g.counted, isMissing)) == 0 && (&decision{room: newRoom(nodes)}).take(g, &Step{}, g.counted, true)
}

// empty returns the nodes without Pods.
func (s *simulation) empty() (nodes []Node) {
	for _, name := range slices.Sorted(maps.Keys(s.api.nodes)) {
		has := s.api.nodes[name].Status.Allocatable[podmeta.ResourceGPU]
		nodes = append(nodes, Node{s.api.nodes[name], has.Value()})
	}
	return nodes
}
