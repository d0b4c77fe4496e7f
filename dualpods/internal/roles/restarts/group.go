package restarts

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Settled is how long a group has to run until its restarts before count no more. Retry is the pause
// before a group is tried again that was restarted too often.
const (
	Settled = 10 * time.Minute
	Retry   = time.Hour
)

// Pod is a Pod of a group.
type Pod struct {
	Name    string
	UID     types.UID
	Ready   bool
	Changed time.Time // when Ready changed last; only compared with itself
	Leaving bool      // it is being deleted
	Ended   bool      // its containers have ended for good
	Placed  bool      // it has a node
	Current bool      // it is of the template that its group is to have

	// These are of a requester alone:
	Loads    bool // its server is being started again, and no attempt to do so has failed
	Restarts bool // its server is awake, and is started again for the same Pod when it ends
	Ends     int  // how often its server has ended, each time soon after it had begun to serve
}

// isLate reports whether a Pod has a node and is not ready.
func (p Pod) isLate() bool { return p.Placed && p.Current && !p.Ready && !p.Leaving }

// Replica is a replica of a role.
type Replica struct {
	Role     string
	Name     string
	Pods     []Pod // that there are
	Size     int   // how many there should be
	OneByOne bool  // if a Pod is lost, the others go on: it is the only one, or the others are restarted in place
}

// Group is a group, as it was observed.
type Group struct {
	Now      time.Time
	Name     string
	Policy   v1alpha1.RecoveryPolicy
	Grace    time.Duration // for Pods that were ready and are not
	Timeout  time.Duration // for Pods that have nodes and are not ready
	Max      int32         // restarts of the whole group
	Replicas []Replica
	// Held means that the Pods cannot be created again, since their template is not valid.
	Held bool
	// Changes means that the models of the group are being changed in place: its Pods are not ready
	// meanwhile, and the change has a limit of its own.
	Changes bool
	// Lacks means that the group got its nodes together, and not all of its counted Pods have one now.
	Lacks  bool
	Record v1alpha1.ServingGroupRestart // that was written last
}

// pods returns the Pods of the group.
func (g *Group) pods() (all []Pod) {
	for _, r := range g.Replicas {
		all = append(all, r.Pods...)
	}
	return all
}

func (r *Replica) any(is func(Pod) bool) bool { return slices.ContainsFunc(r.Pods, is) }

// isWhole reports whether all Pods are there, and are ready.
func (r *Replica) isWhole() bool {
	return len(r.Pods) == r.Size && !r.any(func(p Pod) bool { return !p.Ready || p.Leaving || p.Ended })
}

// hasLost reports whether a Pod is gone, or goes.
func (r *Replica) hasLost() bool {
	return len(r.Pods) < r.Size || r.any(func(p Pod) bool { return p.Leaving })
}

// loads reports whether the server of a Pod is being started again.
func (r *Replica) loads() bool { return r.any(func(p Pod) bool { return p.Loads }) }

// observed brings the record up to what is observed now.
func (g *Group) observed() v1alpha1.ServingGroupRestart {
	var now v1alpha1.ServingGroupRestart
	was := &g.Record
	now.Restarts, now.Last = was.Restarts, was.Last
	for _, r := range g.Replicas {
		g.observeReplica(&now, &r)
	}
	now.Whole = was.Whole && len(now.Leaving) > 0
	if g.Changes {
		now.NotReady = nil
	} else if g.stalls() {
		now.StalledSince = g.since(was.StalledSince)
	}
	if now.Last == nil && len(now.Roles) == 0 {
		return now
	}
	if now.StalledSince == nil && g.runs(&now) {
		now.RunsSince = g.since(was.RunsSince)
	}
	if now.RunsSince != nil && g.Now.Sub(now.RunsSince.Time) >= Settled {
		now.Restarts, now.Last, now.RunsSince, now.Roles = 0, nil, nil, nil
	}
	return now
}

// runs reports whether all replicas that ran do so now.
func (g *Group) runs(record *v1alpha1.ServingGroupRestart) bool {
	falters := func(r Replica) bool { return slices.Contains(record.Ran, r.Name) && !r.isWhole() }
	return len(record.Ran) > 0 && len(record.Leaving) == 0 && !slices.ContainsFunc(g.Replicas, falters)
}

// since returns a time that stands in the record, or else now. A time in the future is of a controller
// whose clock was ahead.
func (g *Group) since(was *metav1.Time) *metav1.Time {
	if was != nil && !g.isAhead(*was) {
		return was
	}
	return g.now()
}

// now returns the present time as the record has it: in whole seconds, rounded up, so that no pause is
// too short.
func (g *Group) now() *metav1.Time {
	return &metav1.Time{Time: g.Now.Add(time.Second - 1).Truncate(time.Second)}
}

func (g *Group) isAhead(at metav1.Time) bool { return at.Sub(g.Now) >= time.Second }

func (g *Group) observeReplica(now *v1alpha1.ServingGroupRestart, r *Replica) {
	was := &g.Record
	replaced := r.any(func(p Pod) bool { return !p.Current || slices.Contains(was.Leaving, p.UID) })
	ran := !replaced && (r.isWhole() || slices.Contains(was.Ran, r.Name))
	if ran {
		now.Ran = append(now.Ran, r.Name)
	}
	if at := slices.IndexFunc(was.Roles, func(of v1alpha1.RecreatedRole) bool { return of.Name == r.Name }); at >= 0 {
		now.Roles = append(now.Roles, was.Roles[at])
	}
	for _, p := range r.Pods {
		if slices.Contains(was.Leaving, p.UID) {
			now.Leaving = append(now.Leaving, p.UID)
		}
		if !ran || p.Ready || p.Leaving || p.Ended || r.loads() || len(now.NotReady) == maxNotReady {
			continue
		}
		since := *g.now()
		same := func(of v1alpha1.NotReadyPod) bool {
			return of.UID == p.UID && of.Changed.Unix() == p.Changed.Unix() && !g.isAhead(of.Since)
		}
		if at := slices.IndexFunc(was.NotReady, same); at >= 0 {
			since = was.NotReady[at].Since
		}
		now.NotReady = append(now.NotReady, v1alpha1.NotReadyPod{UID: p.UID, Since: since, Changed: metav1.Time{Time: p.Changed.Truncate(time.Second)}})
	}
}

// maxNotReady is how many Pods that are not ready the record has; the others come after them.
const maxNotReady = 16

// stalls reports whether a Pod that has a node is not ready, or the group holds nodes while it waits for
// others.
func (g *Group) stalls() bool {
	return g.Lacks || slices.ContainsFunc(g.pods(), Pod.isLate)
}
