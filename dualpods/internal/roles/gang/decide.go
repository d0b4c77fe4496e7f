package gang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Step is what a row says about a group.
type Step struct {
	Row    string
	Of     *Gang
	Record *v1alpha1.ServingGroupGang // is written first; nil: nothing is
	Ungate []*Member                  // whose gates are removed
	Delete []*Member
	Again  time.Time // when to look again though nothing changes; zero: never
	Why    string    // what the Pods with the gate wait for; empty: nothing
	in     area      // in which the Pods of Ungate get nodes
}

// Decide decides about each group by the table in spec/roles.md. Groups that have a part of their
// nodes come first, then those of a higher priority, and then the older ones.
func Decide(w *World) (steps []*Step) {
	d := &decision{now: w.Now, room: newRoom(w.Nodes), sleepers: w.Sleepers, reserved: map[*Gang][]int64{}, blocked: map[*v1alpha1.ModelServing]string{}}
	for _, g := range w.Gangs {
		if awaited := g.awaited(w.Now); len(awaited) > 0 {
			d.reserved[g] = d.room.reserve(awaited, g.area())
		}
	}
	gangs := slices.Clone(w.Gangs)
	slices.SortFunc(gangs, before)
	for _, g := range gangs {
		steps = append(steps, d.decide(g))
	}
	return steps
}

func before(a, b *Gang) int {
	begun := func(g *Gang) int { return min(len(at(g.counted, hasNode)), 1) }
	of, other := a.Serving, b.Serving
	return cmp.Or(
		cmp.Compare(begun(b), begun(a)), cmp.Compare(b.priority(), a.priority()), of.CreationTimestamp.Compare(other.CreationTimestamp.Time),
		cmp.Compare(of.Namespace, other.Namespace), cmp.Compare(of.Name, other.Name), cmp.Compare(a.Ordinal, b.Ordinal),
	)
}

// decision is the state of one call of Decide.
type decision struct {
	now      time.Time
	room     *room
	sleepers map[types.UID][]placement.Asleep
	reserved map[*Gang][]int64                 // by node, for Pods of groups that are about to get nodes
	blocked  map[*v1alpha1.ModelServing]string // the first group of each that there is no room for
}

func (d *decision) decide(g *Gang) *Step {
	for _, r := range rows {
		s := &Step{Row: r.row, Of: g}
		if r.fits(d, g, s) {
			return s
		}
	}
	panic("the last row always fits")
}

// rule is a row of the table. fits reports whether the row applies to a group, and then fills the
// step.
type rule struct {
	row  string
	fits func(*decision, *Gang, *Step) bool
}

var rows = []rule{
	{"ModelServing leaves", func(_ *decision, g *Gang, _ *Step) bool { return !g.Serving.DeletionTimestamp.IsZero() }},
	{"no policy", func(_ *decision, g *Gang, s *Step) bool {
		return !g.Serving.Spec.UsesGates() && s.ungates(at(g.all(), isGated))
	}},
	{"group not listed", func(_ *decision, g *Gang, s *Step) bool {
		return g.Unlisted && s.waits("its status is not written yet, or the ControllerRevision of its template is gone")
	}},
	{"all placed", func(d *decision, g *Gang, s *Step) bool {
		begun := g.Record.State != "" || len(at(g.extra, isGated)) > 0
		return g.isPlaced() && begun && g.Record.State != v1alpha1.GangPlaced && s.records(v1alpha1.GangPlaced, d.now, 0)
	}},
	{"extra Pods", func(d *decision, g *Gang, s *Step) bool {
		may := d.mayHave(g, s)
		return len(may) > 0 && s.records(v1alpha1.GangPlaced, d.now, 0) && s.ungates(may)
	}},
	{"extra Pods wait", func(d *decision, g *Gang, s *Step) bool {
		gated := at(g.extra, isGated)
		return g.isPlaced() && len(gated) > 0 && s.after(d.now.Add(placingLimit)) && s.waits(d.holdsBack(g, gated))
	}},
	{"placed", func(_ *decision, g *Gang, _ *Step) bool { return g.isPlaced() }},
	{"Kubernetes places", func(_ *decision, g *Gang, s *Step) bool {
		return g.ofKubernetes && len(at(g.counted, isGated)) == 0 && s.waits("the scheduler gives the Pods of its PodGroup nodes")
	}},
	{"deadline passed", func(d *decision, g *Gang, s *Step) bool {
		s.Delete = at(g.all(), hasNode, mayGetNode)
		return g.isOverdue(d.now) && len(s.Delete) > 0 && s.waits(g.missed())
	}},
	{"gives back", func(d *decision, g *Gang, s *Step) bool {
		return g.isOverdue(d.now) && len(at(g.all(), leaves)) > 0 && s.waits(g.missed())
	}},
	{"gang missed", func(d *decision, g *Gang, s *Step) bool {
		return g.isOverdue(d.now) && s.records(v1alpha1.GangMissed, d.now, g.Record.Misses+1) && s.waits(g.missed())
	}},
	{"gate left", func(d *decision, g *Gang, s *Step) bool {
		gated := at(g.counted, isGated)
		return g.isAdmitted() && len(gated) > 0 && d.takeAgain(g, s) && s.ungates(gated) && s.after(g.deadline())
	}},
	{"gate stays", func(d *decision, g *Gang, s *Step) bool {
		gated := at(g.counted, isGated)
		return g.isAdmitted() && len(gated) > 0 && s.after(g.deadline()) && s.waits(d.lacks(g, gated, []domain{g.domain()}))
	}},
	{"scheduler works", func(_ *decision, g *Gang, s *Step) bool {
		return g.isAdmitted() && s.after(g.deadline()) && s.waits("its other Pods get nodes")
	}},
	{"no node left", func(_ *decision, g *Gang, s *Step) bool {
		s.Delete = at(g.all(), hasNode, mayGetNode)
		begun := g.Record.State == v1alpha1.GangPlaced || len(at(g.counted, isGated)) > 0
		return begun && len(at(g.counted, hasNode)) == 0 && len(s.Delete) > 0 && s.waits("it has lost all its nodes, and starts anew")
	}},
	{"rest fits", func(d *decision, g *Gang, s *Step) bool {
		fit := d.refill(g, s)
		return len(fit) > 0 && s.records(v1alpha1.GangPlaced, d.now, 0) && s.ungates(fit) && s.after(d.now.Add(placingLimit))
	}},
	{"Pod missing", func(_ *decision, g *Gang, s *Step) bool {
		missing := at(g.counted, isMissing, leaves)
		return len(missing) > 0 && s.waits(fmt.Sprintf("Pod %s is not created yet", missing[0].Name))
	}},
	{"another gate", func(_ *decision, g *Gang, s *Step) bool {
		m, gate := g.otherGate()
		return m != nil && s.waits(fmt.Sprintf("Pod %s has the scheduling gate %s", m.Name, gate))
	}},
	{"no gate", func(_ *decision, g *Gang, _ *Step) bool { return len(at(g.counted, isGated)) == 0 }},
	{"no room for the rest", func(d *decision, g *Gang, s *Step) bool {
		gated := at(g.counted, isGated)
		return len(gated) < len(g.counted) && s.waits(d.lacks(g, gated, []domain{g.domain()}))
	}},
	{"backs off", func(d *decision, g *Gang, s *Step) bool {
		return g.Record.State == v1alpha1.GangMissed && d.now.Before(g.retryAt()) && s.after(g.retryAt()) && s.waits(g.missed())
	}},
	{"group before it", func(d *decision, g *Gang, s *Step) bool {
		first := d.blocked[g.Serving]
		return first != "" && s.waits("group "+first+" is first, and there is no room for it")
	}},
	{"gang fits", func(d *decision, g *Gang, s *Step) bool {
		return d.take(g, s, g.counted, true) && s.records(v1alpha1.GangAdmitted, d.now, g.Record.Misses) && s.ungates(g.counted) && s.after(d.now.Add(placingLimit))
	}},
	{"no room", func(d *decision, g *Gang, s *Step) bool {
		d.blocked[g.Serving] = g.Name
		return s.waits(d.lacks(g, g.counted, d.mayBegin(g)))
	}},
}

// mayHave returns the extra Pods that take nothing from Pods of other groups that are about to get
// nodes, and reserves room for them.
func (d *decision) mayHave(g *Gang, s *Step) []*Member {
	extra := at(g.extra, isGated)
	switch {
	case !g.isPlaced() || len(extra) == 0:
		return nil
	case g.roleTopology() != nil:
		fit := d.takeSome(g, s, extra)
		if isHard(g.roleTopology()) || d.othersAwaited(g) {
			return fit
		}
		d.room.reserve(slices.DeleteFunc(slices.Clone(extra), func(m *Member) bool { return slices.Contains(fit, m) }), s.in)
		return extra
	case d.othersAwaited(g):
		if !d.take(g, s, extra, false) {
			return nil
		}
		return extra
	}
	may := extra
	if g.topology() == nil || isHard(g.topology()) {
		may = d.withoutHalves(g, s, extra)
	}
	s.in = g.area()
	d.room.reserve(may, s.in)
	return may
}

// takeAgain takes room for the counted Pods of an admitted group that have no node, beside what is reserved for
// others. It reports whether there is such room. Other Pods may be counted now than when the group was admitted:
// replicas that are new among them get a domain, which is recorded.
func (d *decision) takeAgain(g *Gang, s *Step) bool {
	d.room.giveBack(d.reserved[g])
	fits := d.take(g, s, at(g.counted, mayGetNode, isGated), false)
	if !fits {
		s.in = g.area()
		d.reserved[g] = d.room.reserve(g.awaited(d.now), s.in)
		return false
	}
	d.room.reserve(at(g.extra, mayGetNode), s.in)
	if all := g.area().with(s.in).roleDomains(); !maps.Equal(all, g.Record.RoleDomains) {
		s.Record = g.Record.DeepCopy()
		s.Record.RoleDomains = all
	}
	return true
}

// withoutHalves returns the Pods without those of replicas of several Pods that there is no room for: a part
// of such a replica would hold GPUs while it waits for the rest. Others wait for the scheduler.
func (d *decision) withoutHalves(g *Gang, s *Step, pods []*Member) []*Member {
	before := d.room.free
	fit := d.takeSome(g, s, pods)
	d.room.free = before
	return slices.DeleteFunc(slices.Clone(pods), func(m *Member) bool { return len(m.of.Pods) > 1 && !slices.Contains(fit, m) })
}

// othersAwaited reports whether Pods of other groups are about to get nodes.
func (d *decision) othersAwaited(g *Gang) bool {
	for other := range d.reserved {
		if other != g {
			return true
		}
	}
	return false
}

// holdsBack says why extra Pods wait.
func (d *decision) holdsBack(g *Gang, extra []*Member) string {
	if isHard(g.roleTopology()) || !d.othersAwaited(g) {
		return d.lacks(g, extra, []domain{g.domain()})
	}
	return "the Pods of other groups get nodes first"
}

// isAdmitted reports whether the scheduler is to give the Pods nodes now.
func (g *Gang) isAdmitted() bool { return g.Record.State == v1alpha1.GangAdmitted }

// missed says why the group has to wait.
func (g *Gang) missed() string {
	return fmt.Sprintf("not all of its Pods got nodes within %s: it gives back what it had, and is tried again after a pause", placingLimit)
}

// otherGate returns a counted Pod that has a gate of others, and the gate.
func (g *Gang) otherGate() (*Member, string) {
	for _, m := range at(g.counted, isGated) {
		if gate := m.otherGate(); gate != "" {
			return m, gate
		}
	}
	return nil, ""
}

// otherGate returns a gate of others that a Pod has; empty: there is none. Package placement handles the
// gate for placement once ours is gone.
func (m *Member) otherGate() string {
	for _, gate := range m.Pod.Spec.SchedulingGates {
		if gate.Name != podmeta.GateGang && gate.Name != podmeta.SchedulingGate {
			return gate.Name
		}
	}
	return ""
}

// lacks says why there is no room for Pods of a group in one of some domains.
func (d *decision) lacks(g *Gang, pods []*Member, domains []domain) string {
	if len(domains) == 0 {
		return "no node has the label of its networkTopology.groupPolicy"
	}
	best := domain{}
	needed, free := int64(0), int64(-1)
	for _, in := range domains {
		if n, f := d.room.lack(pods, area{group: in}); f > free {
			needed, free, best = n, f, in
		}
	}
	gpus := "GPUs"
	if needed == 1 {
		gpus = "GPU"
	}
	why := fmt.Sprintf("%d Pods need %d %s together, and the nodes that they may use have %d free", len(pods), needed, gpus, free)
	if len(pods) == 1 {
		why = fmt.Sprintf("1 Pod needs %d %s, and the nodes that it may use have %d free", needed, gpus, free)
	}
	if best.key != "" {
		why += " in the domain " + best.String() + ", where most are"
	}
	if policy := g.roleTopology(); free >= needed && isHard(policy) {
		why += ", but not so that each replica of a role is in one domain of the label " + policy.HighestTierName
	} else if free >= needed { // of 0 GPUs there is always room
		why += ", but not as many on one node as a Pod needs"
	}
	return why
}

// waits says what the Pods wait for. It returns true.
func (s *Step) waits(why string) bool {
	s.Why = why
	return true
}

// after says when to look again. It returns true.
func (s *Step) after(when time.Time) bool {
	s.Again = when
	return true
}

// ungates says whose gates are removed, the Pods with the most GPUs first: the scheduler takes
// them in this order. It returns true.
func (s *Step) ungates(pods []*Member) bool {
	s.Ungate = slices.Clone(pods)
	slices.SortStableFunc(s.Ungate, func(a, b *Member) int {
		return cmp.Compare(podmeta.ReservedGPUs(&b.Pod.Spec), podmeta.ReservedGPUs(&a.Pod.Spec))
	})
	return true
}

// records says what is written about the group. It returns true.
func (s *Step) records(state v1alpha1.GangState, now time.Time, misses int32) bool {
	s.Record = &v1alpha1.ServingGroupGang{State: state, Since: metav1.NewTime(now.Truncate(time.Second)), Misses: misses}
	switch state {
	case v1alpha1.GangAdmitted:
		s.Record.Domain = s.in.group.String()
		s.Record.RoleDomains = s.in.roleDomains()
	case v1alpha1.GangPlaced:
		s.Record.Domain = s.Of.Record.Domain
		s.Record.RoleDomains = s.Of.area().with(s.in).roleDomains()
	case v1alpha1.GangMissed: // another one may be better at the next try
	}
	return true
}
