package restarts

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Level is how much is restarted.
type Level string

// The levels.
const (
	InPlace Level = "instance"
	Role    Level = "role"
	Whole   Level = "group"
)

// Decision is what is to be done about a group.
type Decision struct {
	Row string
	// Record is written before anything else is done. Its Pods that are Leaving are deleted.
	Record v1alpha1.ServingGroupRestart
	// Level is what is restarted now; empty: nothing.
	Level Level
	// Replica is restarted, if Level is Role or InPlace. For Role these may be several, with commas between
	// them. For InPlace the instances of its Pods are to be deleted.
	Replica string
	// Holds means that no Pod of the group is created, and none that has ended is deleted.
	Holds bool
	// State, Reason and Why are what the row means for the group; empty: nothing.
	State       v1alpha1.ServingGroupState
	Reason, Why string
	Again       time.Duration // when to look again though nothing changes; 0: never
}

// What names what is restarted now.
func (d *Decision) What(group string) string {
	switch d.Level {
	case Whole:
		return "all Pods of group " + group + " are recreated"
	case Role:
		return "the Pods of replica " + d.Replica + " of group " + group + " are recreated"
	default:
		return "the server of replica " + d.Replica + " of group " + group + " is started again"
	}
}

// HoldsReplica reports whether no Pod of a replica is created yet, since Pods before it are leaving. pods
// has the UIDs of the Pods that the replica has.
func (d *Decision) HoldsReplica(pods []types.UID) bool {
	return d.Holds || d.Record.Whole || slices.ContainsFunc(pods, d.Leaves)
}

// Leaves reports whether a Pod is to be deleted.
func (d *Decision) Leaves(pod types.UID) bool { return slices.Contains(d.Record.Leaving, pod) }

// trouble is why something is to be restarted.
type trouble struct {
	level   Level
	replica *Replica
	others  []*Replica // that are restarted too
	counts  bool       // the restart of a role is noted: the next one is of the group
	stalls  bool       // the replicas have stalled; their time begins anew
	why     string
}

// rule is a row of the table. fits reports whether the row applies, and then fills the decision.
type rule struct {
	row  string
	fits func(*Group, *trouble, *Decision) bool
}

// RowInPlace is the row by which the instances of a replica are deleted.
const RowInPlace = "restart in place"

// rows is the table.
var rows = []rule{
	{"nothing restarts", func(g *Group, _ *trouble, d *Decision) bool {
		if g.Policy != v1alpha1.RecoverNone {
			return false
		}
		d.Record = v1alpha1.ServingGroupRestart{}
		return true
	}},
	{"template invalid", func(g *Group, _ *trouble, _ *Decision) bool { return g.Held }},
	{"changes in place", func(g *Group, _ *trouble, _ *Decision) bool { return g.Changes }},
	{"group leaves", func(g *Group, _ *trouble, d *Decision) bool {
		return d.Record.Whole && d.progresses(fmt.Sprintf("all Pods of group %s are recreated: %d are not gone yet", g.Name, len(d.Record.Leaving)))
	}},
	{"group failed", func(g *Group, t *trouble, d *Decision) bool {
		return t.is(Whole) && d.Record.Restarts >= g.Max && d.failsFor(g, t)
	}},
	{"group backs off", func(g *Group, t *trouble, d *Decision) bool {
		return t.is(Whole) && d.waits(g, pause(d.Record.Restarts)) && d.progresses(fmt.Sprintf("%s; all Pods of the group are recreated at %s, since they were a moment ago", t.why, d.againAt(g)))
	}},
	{"recreate group", func(g *Group, t *trouble, d *Decision) bool { return t.is(Whole) && d.recreates(g, t) }},
	{"recreate role", func(g *Group, t *trouble, d *Decision) bool { return t.is(Role) && d.recreatesRole(g, t) }},
	{RowInPlace, func(_ *Group, t *trouble, d *Decision) bool {
		if !t.is(InPlace) {
			return false
		}
		d.Record.NotReady = without(d.Record.NotReady, t.replica) // their grace begins anew
		return d.restarts(InPlace, t)
	}},
	{"role leaves", func(g *Group, _ *trouble, d *Decision) bool {
		return len(d.Record.Leaving) > 0 && d.progresses(fmt.Sprintf("Pods of a replica of group %s are recreated: %d are not gone yet", g.Name, len(d.Record.Leaving)))
	}},
	{"in its grace", func(g *Group, _ *trouble, d *Decision) bool {
		if len(d.Record.NotReady) == 0 {
			return false
		}
		for _, p := range d.Record.NotReady {
			d.Again = dualpods.Sooner(d.Again, left(g.Now, p.Since.Time, g.Grace))
		}
		d.Again = dualpods.Sooner(d.Again, g.untilTimeout(d))
		return true
	}},
	{"not ready yet", func(g *Group, _ *trouble, d *Decision) bool {
		d.Again = g.untilTimeout(d)
		return d.Record.StalledSince != nil
	}},
	{"runs again", func(g *Group, _ *trouble, d *Decision) bool {
		if d.Record.RunsSince != nil {
			d.Again = left(g.Now, d.Record.RunsSince.Time, Settled)
		}
		return d.Record.RunsSince != nil
	}},
	{"nothing to restart", func(*Group, *trouble, *Decision) bool { return true }},
}

// Decide decides what of a group is restarted.
func Decide(g *Group) *Decision {
	record := g.observed()
	t := g.trouble(&record)
	for _, r := range rows {
		d := &Decision{Row: r.row, Record: record}
		if r.fits(g, t, d) {
			if !d.Holds && !g.Held { // else it stays so until the group is restarted
				g.forgetLost(&d.Record)
			}
			return d
		}
	}
	panic("the last row always fits")
}

// forgetLost forgets that replicas ran that have lost Pods, if nothing else is restarted for that. The
// Pods that take their places start anew.
func (g *Group) forgetLost(record *v1alpha1.ServingGroupRestart) {
	for n := range g.Replicas {
		r := &g.Replicas[n]
		if at := slices.Index(record.Ran, r.Name); at >= 0 && r.hasLost() && g.troubleOf(r, record) == nil {
			record.Ran = slices.Delete(slices.Clone(record.Ran), at, at+1)
		}
	}
}

func (t *trouble) is(level Level) bool { return t != nil && t.level == level }

// progresses says that the group is being restarted. It returns true.
func (d *Decision) progresses(why string) bool {
	d.State, d.Reason, d.Why = v1alpha1.GroupProgressing, v1alpha1.ReasonRestarting, why
	return true
}

// restarts says what is restarted. It returns true.
func (d *Decision) restarts(level Level, t *trouble) bool {
	d.Level = level
	if level != Whole {
		d.Replica = t.replica.Name
	}
	return d.progresses(t.why)
}

// waits reports whether the group was recreated less than that long ago, and says when to look again.
func (d *Decision) waits(g *Group, pause time.Duration) bool {
	if d.Record.Last == nil || pause == 0 {
		return false
	}
	d.Again = left(g.Now, d.Record.Last.Time, pause)
	d.Holds = d.Again > 0
	return d.Holds
}

// failsFor reports whether the group is not tried again yet.
func (d *Decision) failsFor(g *Group, t *trouble) bool {
	if d.Record.Last == nil { // it is not to be recreated at all
		d.Record.Last = g.now()
	}
	if !d.waits(g, Retry) {
		return false
	}
	d.State, d.Reason = v1alpha1.GroupFailed, v1alpha1.ReasonTooManyRestarts
	d.Why = fmt.Sprintf("%s; the group was recreated %d times, and is tried again at %s", t.why, d.Record.Restarts, d.againAt(g))
	return true
}

// againAt returns when to look again, in RFC 3339.
func (d *Decision) againAt(g *Group) string { return g.Now.Add(d.Again).UTC().Format(time.RFC3339) }

// recreates has all Pods of the group deleted. It returns true.
func (d *Decision) recreates(g *Group, t *trouble) bool {
	record := v1alpha1.ServingGroupRestart{Restarts: d.Record.Restarts + 1, Last: g.now()}
	for _, p := range g.pods() {
		record.Leaving = append(record.Leaving, p.UID)
	}
	record.Whole = len(record.Leaving) > 0
	d.Record = record
	return d.restarts(Whole, t)
}

// recreatesRole has all Pods of the replicas of a trouble deleted. It returns true.
func (d *Decision) recreatesRole(g *Group, t *trouble) bool {
	d.restarts(Role, t)
	d.recreatesReplica(t.replica)
	for _, r := range t.others {
		d.recreatesReplica(r)
		d.Replica += ", " + r.Name
	}
	if t.counts {
		d.Record.Roles = append(slices.Clone(d.Record.Roles), v1alpha1.RecreatedRole{Name: t.replica.Name, At: *g.now()})
		d.Record.RunsSince = nil
	}
	if t.stalls {
		d.Record.StalledSince = nil
	}
	return true
}

func (d *Decision) recreatesReplica(r *Replica) {
	record := &d.Record
	for _, p := range r.Pods {
		if !slices.Contains(record.Leaving, p.UID) {
			record.Leaving = append(slices.Clone(record.Leaving), p.UID)
		}
	}
	record.NotReady = without(record.NotReady, r)
	record.Ran = slices.DeleteFunc(slices.Clone(record.Ran), func(ran string) bool { return ran == r.Name })
}

// without returns the Pods that are not of a replica.
func without(pods []v1alpha1.NotReadyPod, r *Replica) []v1alpha1.NotReadyPod {
	return slices.DeleteFunc(slices.Clone(pods), func(of v1alpha1.NotReadyPod) bool {
		return r.any(func(p Pod) bool { return p.UID == of.UID })
	})
}

// pause returns the back-off after so many restarts of a group.
func pause(restarts int32) time.Duration {
	if restarts == 0 {
		return 0
	}
	return decide.PauseAfter(decide.SecondStart, int(restarts))
}

// left returns what is left of a time that began then. A beginning in the future counts as now.
func left(now, since time.Time, of time.Duration) time.Duration {
	if since.After(now) {
		since = now
	}
	return since.Add(of).Sub(now)
}

// untilTimeout returns when the group is recreated if it is not ready before; 0: it is ready.
func (g *Group) untilTimeout(d *Decision) time.Duration {
	if d.Record.StalledSince == nil {
		return 0
	}
	return left(g.Now, d.Record.StalledSince.Time, g.Timeout)
}
