package ranks

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file checks what becomes of groups whose change was undone.

// undoing is the end of a change that was undone.
type undoing struct {
	at   time.Time
	pods map[types.UID]bool // that the group had then, and that stay
}

// recorded notes when the change of a group was undone, and forgets it when the next one begins.
func (g *groupTruth) recorded(was *v1alpha1.ServingGroupChange, is *v1alpha1.ServingGroupStatus) {
	switch {
	case g == nil || is.Change == nil || was != nil && was.State == is.Change.State:
	case is.Change.State == v1alpha1.ChangeUndone:
		g.undone[is.Name] = undoing{time.Now(), g.podsThatStay(is.Name)}
		g.undoes++
	default:
		delete(g.undone, is.Name)
	}
}

// podsThatStay returns the UIDs of the Pods of a group that are not being deleted, and have not ended.
func (g *groupTruth) podsThatStay(group string) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, pod := range g.pods() {
		if pod.Labels[podmeta.LabelServingGroup] == group && pod.DeletionTimestamp == nil && !podmeta.Finished(pod) {
			all[pod.UID] = true
		}
	}
	return all
}

// replaces checks the deletion of a Pod of an older revision. A group whose change was undone a moment ago
// is changed in place to another template too, once its Pods are ready again, unless all its Pods were
// created since.
func (g *groupTruth) replaces(pod *corev1.Pod, serving *v1alpha1.ModelServing, of *v1alpha1.ServingGroupStatus) {
	if g == nil || serving.Spec.UpdateMode != v1alpha1.UpdateInPlace || of.Change != nil && (of.Change.State != v1alpha1.ChangeUndone || of.Change.Misfit) {
		return
	}
	was, undone := g.undone[of.Name]
	if !undone || time.Since(was.at) > grace/2 {
		return
	}
	missing, old := 0, 0
	for i := range serving.Spec.Template.Roles {
		missing += int(serving.Spec.Template.Roles[i].Size())
	}
	stay := g.podsThatStay(of.Name)
	for _, other := range g.pods() {
		if !stay[other.UID] {
			continue
		}
		if was.pods[other.UID] {
			old++
		}
		if g.servesAtRest(other) {
			missing--
		}
	}
	if missing == 0 && old > 0 {
		g.w.violated("replaced in vain", "a controller deletes %s, and the change of its group was undone %s ago", pod.Name, time.Since(was.at))
	}
}

// servesAtRest reports whether the model of a requester is awake on a launcher that stays, and is not being
// changed.
func (g *groupTruth) servesAtRest(pod *corev1.Pod) bool {
	for _, l := range g.w.launchers {
		on, record := g.w.api.pod(l.pod), g.recordOf(pod)
		if on == nil || on.DeletionTimestamp != nil || l.dead || record == nil || record.Change != nil {
			continue
		}
		if e := l.all[record.Instance]; e != nil && e.is(program.Awake) {
			return true
		}
	}
	return false
}
