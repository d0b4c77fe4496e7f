package gang

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision about all groups.
type World struct {
	Now   time.Time
	Gangs []*Gang
	Nodes []Node // by name
	// Sleepers are those that Pods could wake, by the UIDs of the Pods.
	Sleepers map[types.UID][]placement.Asleep
}

// Node is a node of the cluster.
type Node struct {
	*corev1.Node
	Free int64 // GPUs that no Pod on it has requested; negative: it has fewer than were requested
}

// Gang is a group whose Pods get nodes together.
type Gang struct {
	Serving *v1alpha1.ModelServing
	Name    string // of the group
	Ordinal int
	// Record is what this package has written about the group; zero: nothing.
	Record v1alpha1.ServingGroupGang
	// Unlisted means that the status of the ModelServing does not say of which revision the group
	// is.
	Unlisted bool
	Replicas []*Replica

	counted, extra []*Member
	// ofKubernetes means that Pods name a PodGroup: Kubernetes gives these nodes together.
	ofKubernetes bool
}

// Replica is a replica of a role: an entry and its workers.
type Replica struct {
	Role *v1alpha1.ServingRole
	ID   string // such as prefill-0
	Pods []*Member
}

// Member is a Pod that a group should have.
type Member struct {
	Name string
	Pod  *corev1.Pod // nil: it is missing
	of   *Replica
}

// NewGang makes a Gang. It divides its Pods into those that are counted and the extra ones.
func NewGang(g Gang) *Gang {
	g.ofKubernetes = slices.ContainsFunc(g.Replicas, (*Replica).hasPodGroup)
	roleOf := func(r *Replica) *v1alpha1.ServingRole { return r.Role }
	counted, extra := groups.Counted(g.Serving.Spec.Template.Gang(), g.Replicas, roleOf, g.distance)
	g.counted, g.extra = podsOf(counted), podsOf(extra)
	for _, r := range g.Replicas {
		for _, m := range r.Pods {
			m.of = r
		}
	}
	return &g
}

func podsOf(replicas []*Replica) (all []*Member) {
	for _, r := range replicas {
		all = append(all, r.Pods...)
	}
	return all
}

// distance says how far a Pod is from having a node.
type distance int

const (
	hasNode distance = iota
	mayGetNode
	isGated
	leaves
	isMissing
)

func (m *Member) distance() distance {
	switch {
	case m.Pod == nil:
		return isMissing
	case dualpods.RequesterOf(m.Pod).IsOver():
		return leaves
	case podmeta.AwaitsGang(m.Pod):
		return isGated
	case m.Pod.Spec.NodeName == "":
		return mayGetNode
	default:
		return hasNode
	}
}

// distance is that of the Pod which is farthest.
func (r *Replica) distance() (most distance) {
	for _, m := range r.Pods {
		most = max(most, m.distance())
	}
	return most
}

// distance orders replicas: the nearest are counted first. Replicas of which some Pods have a node, or may get
// one, come before replicas without such Pods: otherwise more Pods than the policy counts would lose their
// gates. If Pods of the group name a PodGroup of Kubernetes, replicas with the gate and without that name come
// last: they were not counted when they were created.
func (g *Gang) distance(r *Replica) int {
	most := r.distance()
	switch {
	case g.ofKubernetes && most == isGated && !r.hasPodGroup():
		return 2*int(isMissing) + 1
	case most > mayGetNode && len(at(r.Pods, hasNode, mayGetNode)) > 0:
		return 2*int(mayGetNode) + 1
	default:
		return 2 * int(most)
	}
}

// hasPodGroup reports whether a Pod of a replica names a PodGroup of Kubernetes.
func (r *Replica) hasPodGroup() bool {
	return slices.ContainsFunc(r.Pods, func(m *Member) bool { return m.Pod != nil && m.Pod.Spec.SchedulingGroup != nil })
}

// all returns the Pods of the group.
func (g *Gang) all() []*Member { return slices.Concat(g.counted, g.extra) }

// at returns those of the Pods that are at one of these distances.
func at(pods []*Member, distances ...distance) []*Member {
	return slices.DeleteFunc(slices.Clone(pods), func(m *Member) bool { return !slices.Contains(distances, m.distance()) })
}

// isPlaced reports whether all Pods that are counted have nodes.
func (g *Gang) isPlaced() bool { return len(at(g.counted, hasNode)) == len(g.counted) }

// deadline is when the Pods have to have nodes that were admitted last.
func (g *Gang) deadline() time.Time { return g.Record.Since.Add(placingLimit) }

// isOverdue reports whether the group was admitted, and the deadline has passed.
func (g *Gang) isOverdue(now time.Time) bool {
	return g.Record.State == v1alpha1.GangAdmitted && !now.Before(g.deadline())
}

// awaited returns the Pods that the scheduler is about to give nodes.
func (g *Gang) awaited(now time.Time) []*Member {
	switch {
	case !now.Before(g.deadline()):
		return nil
	case g.Record.State == v1alpha1.GangAdmitted:
		return slices.Concat(at(g.counted, mayGetNode, isGated), at(g.extra, mayGetNode))
	case g.Record.State == v1alpha1.GangPlaced:
		return at(g.all(), mayGetNode)
	default:
		return nil
	}
}

// retryAt is when a group that missed its deadline is tried again.
func (g *Gang) retryAt() time.Time {
	return g.Record.Since.Add(decide.PauseAfter(firstPause, int(max(g.Record.Misses, 1))))
}

// priority is the lowest of the counted Pods.
func (g *Gang) priority() int32 {
	lowest := int32(math.MaxInt32)
	for _, m := range g.counted {
		if m.Pod != nil {
			priority := int32(0)
			if p := m.Pod.Spec.Priority; p != nil {
				priority = *p
			}
			lowest = min(lowest, priority)
		}
	}
	return lowest
}

// placingLimit is the time in which the scheduler is to give nodes to the Pods of a group that
// was admitted. firstPause is the pause before a group is tried again that missed it; the pause
// doubles with each miss, up to decide.LongestPause.
const (
	placingLimit = time.Minute
	firstPause   = 10 * time.Second
)
