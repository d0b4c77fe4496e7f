package restarts

import (
	"fmt"
	"slices"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// trouble returns why something is to be restarted: the gravest reason, of these the first. nil:
// nothing is.
func (g *Group) trouble(record *v1alpha1.ServingGroupRestart) (worst *trouble) {
	note := func(t *trouble) {
		if t != nil && (worst == nil || slices.Index(levels, t.level) > slices.Index(levels, worst.level)) {
			worst = t
		}
	}
	if record.StalledSince != nil && left(g.Now, record.StalledSince.Time, g.Timeout) <= 0 {
		note(g.stalled())
	}
	for n := range g.Replicas {
		r := &g.Replicas[n]
		if t := g.troubleOf(r, record); t != nil {
			note(g.escalated(t, record))
		}
	}
	return worst
}

// stalled returns what is restarted of a group that has stalled for too long. With RoleRecreate these are
// the replicas that are not ready, if the group serves without them, and lacks no nodes; else it is all of it.
func (g *Group) stalled() *trouble {
	late := g.late()
	if g.Policy != v1alpha1.RecoverRole || g.Lacks || len(late) == 0 || !g.serves() {
		return &trouble{level: Whole, why: fmt.Sprintf("group %s has not been ready for %s: %s", g.Name, g.Timeout, g.firstUnready())}
	}
	return &trouble{level: Role, replica: late[0], others: late[1:], stalls: true, why: fmt.Sprintf("group %s serves, but has not been ready for %s: %s", g.Name, g.Timeout, g.firstUnready())}
}

// late returns the replicas with a Pod that has a node and is not ready.
func (g *Group) late() (late []*Replica) {
	for n := range g.Replicas {
		if r := &g.Replicas[n]; r.any(Pod.isLate) {
			late = append(late, r)
		}
	}
	return late
}

// serves reports whether each role has a replica that is ready.
func (g *Group) serves() bool {
	serves := map[string]bool{}
	for n := range g.Replicas {
		if r := &g.Replicas[n]; r.isWhole() {
			serves[r.Role] = true
		}
	}
	return !slices.ContainsFunc(g.Replicas, func(r Replica) bool { return !serves[r.Role] })
}

// levels are in the order of their gravity.
var levels = []Level{InPlace, Role, Whole}

// escalated returns a trouble at the level that the policy has for it. The second restart of a replica is
// one of the group.
func (g *Group) escalated(t *trouble, record *v1alpha1.ServingGroupRestart) *trouble {
	before := slices.ContainsFunc(record.Roles, func(of v1alpha1.RecreatedRole) bool { return of.Name == t.replica.Name })
	if g.Policy == v1alpha1.RecoverGroup || t.level == Role && t.counts && before {
		t.level = Whole
	}
	return t
}

// troubleOf returns what is wrong with a replica that ran; nil: nothing.
func (g *Group) troubleOf(r *Replica, record *v1alpha1.ServingGroupRestart) *trouble {
	if !slices.Contains(record.Ran, r.Name) {
		return nil
	}
	for _, p := range r.Pods {
		switch {
		case p.Leaving:
		case p.Ended:
			return &trouble{level: Role, replica: r, counts: true, why: fmt.Sprintf("Pod %s has ended", p.Name)}
		case !p.Ready && p.Ends >= endsInPlace && g.Policy == v1alpha1.RecoverRole:
			return &trouble{level: Role, replica: r, counts: true, why: fmt.Sprintf("the server of Pod %s has ended %d times soon after it served", p.Name, p.Ends)}
		case g.isOverdue(&p, record):
			why := fmt.Sprintf("Pod %s was ready, and has not been for %s", p.Name, g.Grace)
			if p.Ends == 0 && !r.any(func(p Pod) bool { return !p.Restarts }) {
				return &trouble{level: InPlace, replica: r, why: why}
			}
			return &trouble{level: Role, replica: r, counts: true, why: why}
		}
	}
	if r.hasLost() && (g.Policy == v1alpha1.RecoverGroup || !r.OneByOne) {
		return &trouble{level: Role, replica: r, why: fmt.Sprintf("a Pod of %s is gone, or is being deleted", r.Name)}
	}
	return nil
}

// endsInPlace is how often the server of a Pod may end until it is restarted in place no more.
const endsInPlace = 2

// isOverdue reports whether the grace of a Pod that is not ready is over.
func (g *Group) isOverdue(p *Pod, record *v1alpha1.ServingGroupRestart) bool {
	return slices.ContainsFunc(record.NotReady, func(of v1alpha1.NotReadyPod) bool {
		return of.UID == p.UID && left(g.Now, of.Since.Time, g.Grace) <= 0
	})
}

// firstUnready says which Pod is not ready.
func (g *Group) firstUnready() string {
	for _, p := range g.pods() {
		if p.isLate() {
			return "Pod " + p.Name + " is not"
		}
	}
	return "not all of its Pods have a node"
}
