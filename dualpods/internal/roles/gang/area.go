package gang

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file has the domains of replicas: with networkTopology.rolePolicy, the Pods of each replica of a
// role get nodes in one domain, which is within that of their group.

// area is where the Pods of a group get nodes.
type area struct {
	group    domain
	replicas map[*Replica]domain // of some replicas; the others may be anywhere in the domain of the group
}

// with returns an area with the domains of further replicas.
func (a area) with(more area) area {
	all := maps.Clone(a.replicas)
	if all == nil {
		all = map[*Replica]domain{}
	}
	maps.Copy(all, more.replicas)
	return area{a.group, all}
}

// roleDomains returns the domains of the replicas as they are recorded.
func (a area) roleDomains() map[string]string {
	var all map[string]string
	for r, in := range a.replicas {
		if in == (domain{}) {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[r.ID] = in.String()
	}
	return all
}

// roleTopology returns the policy for the domain of each replica of a role; nil: there is none.
func (g *Gang) roleTopology() *v1alpha1.NetworkTopologyPolicy { return g.Serving.Spec.RoleDomain() }

// area returns the domains that were chosen for a group and its replicas. A replica without Pods that have
// nodes, or may get them, may get another domain.
func (g *Gang) area() area {
	a := area{group: g.domain()}
	policy := g.roleTopology()
	if policy == nil {
		return a
	}
	a.replicas = map[*Replica]domain{}
	for _, r := range g.Replicas {
		chosen := readDomain(g.Record.RoleDomains[r.ID])
		if chosen.key == policy.HighestTierName && (g.isAdmitted() || len(at(r.Pods, hasNode, mayGetNode)) > 0) {
			a.replicas[r] = chosen
		}
	}
	return a
}

// divide reports whether there is room for Pods of a group together in a domain, and takes it. It returns
// where: replicas that have no domain yet get one. Where they sleep there may be no room for all, so it
// tries without regard to that, too.
func (d *decision) divide(g *Gang, in domain, pods []*Member) (area, bool) {
	kept := area{in, g.area().replicas}
	if g.roleTopology() == nil {
		return kept, d.room.take(pods, kept)
	}
	before, sleepers := d.room.free, d.sleepers
	defer func() { d.sleepers = sleepers }()
	for {
		a := kept
		if !slices.ContainsFunc(d.byReplica(kept, pods), func(of []*Member) bool {
			var fits bool
			a, fits = d.takeReplica(g, a, of)
			return !fits
		}) {
			return a, true
		}
		d.room.free = before
		if len(d.sleepers) == 0 {
			return area{}, false
		}
		d.sleepers = nil
	}
}

// takeSome takes room for those replicas of Pods that fit, each by itself, and returns their Pods. A replica
// with a Pod that is yet to be created gets no domain: there might be no room in it for that Pod.
func (d *decision) takeSome(g *Gang, s *Step, pods []*Member) (fit []*Member) {
	s.in = g.area()
	for _, of := range d.byReplica(s.in, pods) {
		if _, known := s.in.replicas[of[0].of]; !known && len(at(of[0].of.Pods, isMissing, leaves)) > 0 {
			continue
		}
		if a, fits := d.takeReplica(g, s.in, of); fits {
			s.in, fit = a, append(fit, of...)
		}
	}
	return fit
}

// takeReplica reports whether there is room for Pods of one replica in an area, and takes it. It returns
// the area with the domain of the replica.
func (d *decision) takeReplica(g *Gang, in area, pods []*Member) (area, bool) {
	r, policy := pods[0].of, g.roleTopology()
	if policy == nil {
		return in, d.room.take(pods, in)
	}
	if _, known := in.replicas[r]; known {
		return in, d.room.take(pods, in)
	}
	all := d.domains(policy.HighestTierName, pods, in.group)
	if !isHard(policy) {
		all = append(all, domain{})
	}
	for _, one := range all {
		if a := in.with(area{replicas: map[*Replica]domain{r: one}}); d.room.take(pods, a) {
			return a, true
		}
	}
	return in, false
}

// byReplica divides Pods by their replicas: first those that have a domain, then those of which most sleep
// somewhere, then those that need the most GPUs.
func (d *decision) byReplica(kept area, pods []*Member) (all [][]*Member) {
	of := map[*Replica][]*Member{}
	for _, m := range pods {
		of[m.of] = append(of[m.of], m)
	}
	count := func(r *Replica) (known, asleep int) {
		if _, has := kept.replicas[r]; has {
			known = 1
		}
		for _, m := range of[r] {
			asleep += min(len(d.sleepers[m.uid()]), 1)
		}
		return known, asleep
	}
	for _, r := range slices.SortedFunc(maps.Keys(of), func(a, b *Replica) int {
		knownA, asleepA := count(a)
		knownB, asleepB := count(b)
		return cmp.Or(knownB-knownA, asleepB-asleepA, cmp.Compare(gpusOf(of[b]), gpusOf(of[a])), strings.Compare(a.ID, b.ID))
	}) {
		all = append(all, of[r])
	}
	return all
}

func gpusOf(pods []*Member) (sum int64) {
	for _, m := range pods {
		sum += podmeta.ReservedGPUs(&m.Pod.Spec)
	}
	return sum
}
