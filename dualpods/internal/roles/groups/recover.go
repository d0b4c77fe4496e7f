package groups

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/roles/restarts"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file joins package restarts, which decides what of a group is restarted, with the other tables.

// onExits says, by recovery policy, what becomes of a requester whose instance ends.
var onExits = map[v1alpha1.RecoveryPolicy]podmeta.OnExit{
	v1alpha1.RecoverGroup: podmeta.OnExitDelete, v1alpha1.RecoverRole: podmeta.OnExitRestart, v1alpha1.RecoverNone: podmeta.OnExitKeep,
}

func (w *World) onExit() string { return string(onExits[w.Serving.Spec.Recovery()]) }

// recoveries decides what is restarted in each group.
func (w *World) recoveries() (steps []*Step) {
	w.restarts = make([]*restarts.Decision, w.Serving.Spec.Count())
	byGroup := make([][]*Member, len(w.restarts))
	for _, m := range w.Members {
		if m.Wanted {
			byGroup[m.group] = append(byGroup[m.group], m)
		}
	}
	for ordinal, members := range byGroup {
		d := restarts.Decide(w.observedRestarts(ordinal, members))
		w.restarts[ordinal] = d
		if len(members) == 0 || d.State == "" && d.Again == 0 {
			continue
		}
		s := &Step{Row: d.Row, Of: members[0], State: v1alpha1.GroupRunning, Again: d.Again}
		if d.State != "" {
			s.waits(d.State, d.Reason, d.Why)
		}
		if d.Level == restarts.InPlace {
			s.orders(Remove, slices.DeleteFunc(members, func(m *Member) bool { return m.roleID() != d.Replica }))
		}
		steps = append(steps, s)
	}
	return steps
}

// observedRestarts returns what package restarts needs to know of a group.
func (w *World) observedRestarts(ordinal int, members []*Member) *restarts.Group {
	spec, plan := &w.Serving.Spec, w.groups[ordinal]
	g := &restarts.Group{
		Now: w.Now, Name: groupName(w.Serving, ordinal), Policy: spec.Recovery(), Max: spec.GroupRestarts(),
		Grace:   time.Duration(spec.Template.GraceSeconds()) * time.Second,
		Timeout: time.Duration(spec.ProgressingSeconds()) * time.Second,
		Held:    plan.places != nil || len(w.Problems) > 0 && plan.revision == w.Revision,
		Changes: w.changesModels(ordinal),
	}
	if was := w.statusOf(ordinal); was != nil {
		if was.Restart != nil {
			g.Record = *was.Restart
		}
		g.Lacks = !was.BeingScaled && !was.Grown && was.Gang != nil && was.Gang.State == v1alpha1.GangPlaced && w.lacksNodes(members)
	}
	for _, members := range replicasIn(members) {
		m, made := members[0], w.templatesOf(members[0].place)
		r := restarts.Replica{Role: m.role, Name: m.roleID(), Size: made.size, OneByOne: made.size == 1 || made.haveRanks()}
		for _, m := range members {
			if m.Pod.Is != nil {
				r.Pods = append(r.Pods, w.observedPod(m))
			}
		}
		g.Replicas = append(g.Replicas, r)
	}
	return g
}

// changesModels reports whether the models of a group are being changed in place.
func (w *World) changesModels(ordinal int) bool {
	c := w.changes[ordinal]
	return c != nil && c.is(v1alpha1.ChangeBegun, v1alpha1.ChangeCommitted, v1alpha1.ChangeUndoing)
}

// statusOf returns what the ModelServing says of a group; nil: nothing. The groups are in the order of
// their ordinals, most often all of them.
func (w *World) statusOf(ordinal int) *v1alpha1.ServingGroupStatus {
	groups, name := w.Serving.Status.Groups, groupName(w.Serving, ordinal)
	if ordinal < len(groups) && groups[ordinal].Name == name {
		return &groups[ordinal]
	}
	if at := slices.IndexFunc(groups, func(g v1alpha1.ServingGroupStatus) bool { return g.Name == name }); at >= 0 {
		return &groups[at]
	}
	return nil
}

func (w *World) observedPod(m *Member) restarts.Pod {
	pod := m.Pod.Is
	p := restarts.Pod{
		Name: pod.Name, UID: pod.UID, Ready: podmeta.Ready(pod), Leaving: m.podLeaves(), Ended: podmeta.Finished(pod), Placed: pod.Spec.NodeName != "",
		Current: w.isInvalid(m) || !w.isOutdated(m) && !w.rankChanged(m),
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			p.Changed = c.LastTransitionTime.Time
		}
	}
	if b := m.Bound; b != nil && pod.Annotations[podmeta.AnnotationOnExit] == string(podmeta.OnExitRestart) {
		p.Loads = b.Known && b.Record.Failures == 0 && !m.isIn(launcher.Awake)
		p.Restarts = b.Known && m.isIn(launcher.Awake)
		if f := podmeta.ReadFailures(b.Launcher, b.Record.Instance); f != nil && f.RequesterUID == pod.UID {
			p.Ends = f.Count
		}
	}
	return p
}

// lacksNodes reports whether a group holds nodes, and some of its Pods that are counted have none.
func (w *World) lacksNodes(members []*Member) bool {
	policy := w.Serving.Spec.Template.Gang()
	if policy == nil {
		return false
	}
	lacks := func(m *Member) bool { return m.Pod.Is == nil || m.Pod.Is.Spec.NodeName == "" }
	roleOf := func(replica []*Member) *v1alpha1.ServingRole {
		return &w.planOf(replica[0].place).template.Roles[replica[0].order]
	}
	counted, _ := Counted(policy, replicasIn(members), roleOf, func(replica []*Member) int {
		return len(slices.DeleteFunc(slices.Clone(replica), func(m *Member) bool { return !lacks(m) }))
	})
	return slices.ContainsFunc(slices.Concat(counted...), lacks) && slices.ContainsFunc(members, func(m *Member) bool { return !lacks(m) })
}

// replicasIn divides the members of a group by replica.
func replicasIn(members []*Member) (all [][]*Member) {
	for _, m := range members {
		if m.isEntry() || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], m)
	}
	return all
}

// restarting returns what was decided about the restarts of a member's group; nil: it is not wanted.
func (w *World) restarting(m *Member) *restarts.Decision {
	if !m.Wanted || m.group >= len(w.restarts) {
		return nil
	}
	return w.restarts[m.group]
}

// isHeld reports whether no Pod takes a member's place yet, since its group or its replica of a role is
// being recreated.
func (w *World) isHeld(m *Member) bool {
	d := w.restarting(m)
	if d == nil || len(d.Record.Leaving) == 0 {
		return d != nil && d.Holds
	}
	var replica []types.UID
	for _, o := range w.Members {
		if o.group == m.group && o.order == m.order && o.replica == m.replica && o.Pod.Is != nil {
			replica = append(replica, o.Pod.Is.UID)
		}
	}
	return d.HoldsReplica(replica)
}

// isToRestart reports whether a member's Pod is deleted so that another one takes its place.
func (w *World) isToRestart(m *Member) bool {
	d := w.restarting(m)
	return d != nil && d.Leaves(m.Pod.Is.UID)
}

// keepsEnded reports whether a member's Pod, which has ended, stays.
func (w *World) keepsEnded(m *Member) bool {
	d := w.restarting(m)
	return w.Serving.Spec.Recovery() == v1alpha1.RecoverNone || d != nil && d.Holds
}

// sayKept says what it means for the group that a Pod which has ended stays. With the policy None nothing
// restarts it; otherwise it is created again together with the other Pods of the group. It returns true.
func (w *World) sayKept(m *Member, s *Step) bool {
	if w.Serving.Spec.Recovery() == v1alpha1.RecoverNone {
		return s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonNotRestarted, "Pod "+m.name()+" has ended, and nothing restarts it: delete it, and it is created again")
	}
	return s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonRestarting, "Pod "+m.name()+" has ended, and is created again with the other Pods of its group")
}

// staysEnded reports whether the instance of a member has ended, and stays so.
func (m *Member) staysEnded() bool {
	return m.Bound != nil && m.Bound.Record.Kept != "" && m.Pod.Is.Annotations[podmeta.AnnotationOnExit] == string(podmeta.OnExitKeep) && !m.isIn(launcher.Awake)
}

// madeAgain returns a rank of a member's server whose Pod was created again after the server had ended; nil:
// the server did not end for good, or none was.
func (w *World) madeAgain(m *Member) *Member {
	if !m.staysEnded() || !w.templatesOf(m.place).haveRanks() {
		return nil
	}
	for _, o := range w.Members {
		isRank := o.Wanted && o != m && o.entry() == m.entry() && o.Pod.Is != nil && !o.podLeaves() && !podmeta.Finished(o.Pod.Is)
		if isRank && podmeta.ReadServer(o.Pod.Is) == (podmeta.Server{}) { // it has never been told of a start
			return o
		}
	}
	return nil
}

// policies returns the steps about requesters that were created by another recovery policy.
func (w *World) policies() (steps []*Step) {
	for _, m := range w.Members {
		pod := m.Pod.Is
		if !m.Wanted || pod == nil || m.podLeaves() || !podmeta.IsRequester(pod) || pod.Annotations[podmeta.AnnotationOnExit] == w.onExit() {
			continue
		}
		after := pod.DeepCopy()
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[podmeta.AnnotationOnExit] = w.onExit()
		steps = append(steps, &Step{Row: "policy changed", Of: m, Do: Annotate, Object: after, Was: m.Pod.Is, State: v1alpha1.GroupRunning})
	}
	return steps
}

// isToRecord reports whether the status has to be written before anything else is done: a restart has to be
// recorded, or the turn of a group has come. If the controller were killed before that write, the group would
// seem to be down by itself.
func (w *World) isToRecord() bool {
	for ordinal := range w.updated {
		was := w.statusOf(ordinal)
		if w.updated[ordinal].Updating && (was == nil || !was.BeingUpdated) {
			return true
		}
	}
	return w.recordsChanged()
}

// recordsChanged reports whether the restarts of a group are to be recorded before anything is done.
func (w *World) recordsChanged() bool {
	for ordinal, d := range w.restarts {
		var was v1alpha1.ServingGroupRestart
		if before := w.statusOf(ordinal); before != nil && before.Restart != nil {
			was = *before.Restart
		}
		if !equality.Semantic.DeepEqual(was, d.Record) {
			return true
		}
	}
	return false
}

// tellRestarts emits an Event for each group, replica of a role or server that is restarted, and counts it.
func (c *Controller) tellRestarts(w *World) {
	for ordinal, d := range w.restarts {
		if d.Level == "" {
			continue
		}
		c.warn(w.Serving, v1alpha1.ReasonRestarting, d.What(groupName(w.Serving, ordinal))+": "+d.Why)
		if c.opts.Restarted != nil {
			c.opts.Restarted(string(d.Level))
		}
	}
}

// showRestarts writes the records of restarts to the status.
func (w *World) showRestarts(groups []v1alpha1.ServingGroupStatus) {
	for i := range groups {
		if i < len(w.restarts) && !equality.Semantic.DeepEqual(w.restarts[i].Record, v1alpha1.ServingGroupRestart{}) {
			groups[i].Restart = &w.restarts[i].Record
		}
	}
}
