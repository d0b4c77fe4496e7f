package ranks

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Restarts: Pods that are not ready, engines that end again and again, and what is restarted for that.

const (
	maxRestarts = 2
	grace       = time.Minute
	// doubt is how long after a change a controller may act by what was before.
	doubt = 3 * longestLag
)

// policies are drawn from.
var policies = []v1alpha1.RecoveryPolicy{v1alpha1.RecoverRole, v1alpha1.RecoverRole, v1alpha1.RecoverRole, v1alpha1.RecoverGroup, v1alpha1.RecoverGroup, v1alpha1.RecoverNone}

func (w *world) setPolicy(name string, arg uint64) {
	w.editServing(name, func(s *v1alpha1.ModelServing) {
		s.Spec.RecoveryPolicy, s.Spec.MaxGroupRestarts = policies[arg%uint64(len(policies))], new(int32(maxRestarts))
	})
}

// sicken has the kubelet find a Pod unready for d, whatever its program says.
func (p *requester) sicken(d time.Duration) {
	p.w.note("%s is unready for %s", p.pod.Name, d)
	p.sick = true
	p.probed()
	p.w.after(d, p.recover)
}

func (p *requester) recover() {
	if p.sick {
		p.sick = false
		p.probed()
	}
}

// crashes has an engine fail soon after a server has begun to serve.
func (w *world) crashes() {
	if w.crashLoop == 0 {
		return
	}
	w.crashLoop--
	which := w.Draw("crashes", 64)
	w.after(w.Between("crash", time.Second, 20*time.Second), func() {
		if at, ok := w.engine(which); ok && !w.calm {
			w.note("%s crashes", at.InstanceID)
			at.l.fails(at)
		}
	})
}

// readySince returns since when a Pod is ready, or is not.
func readySince(pod *corev1.Pod) (is bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// isUndoubtedlyReady reports whether all Pods of a group are there, and have been ready long enough
// for each controller to know.
func (t *truth) isUndoubtedlyReady(serving *v1alpha1.ModelServing, group string) bool {
	role := &serving.Spec.Template.Roles[0]
	for n := range role.Size() {
		pod := t.w.api.pod(fmt.Sprintf("%s-server-0-%d", group, n))
		if pod == nil || pod.DeletionTimestamp != nil || podmeta.Finished(pod) {
			return false
		}
		if is, since := readySince(pod); !is || time.Since(since) < doubt {
			return false
		}
	}
	return true
}

// statusOf returns what a ModelServing says of a group; nil: nothing.
func statusOf(serving *v1alpha1.ModelServing, group string) *v1alpha1.ServingGroupStatus {
	if at := slices.IndexFunc(serving.Status.Groups, func(g v1alpha1.ServingGroupStatus) bool { return g.Name == group }); at >= 0 {
		return &serving.Status.Groups[at]
	}
	return nil
}

// recorded checks what a status says of restarts.
func (t *truth) recorded(was, is *v1alpha1.ModelServing) {
	for _, g := range is.Status.Groups {
		before, change := v1alpha1.ServingGroupRestart{}, (*v1alpha1.ServingGroupChange)(nil)
		if of := statusOf(was, g.Name); of != nil {
			change = of.Change
			if of.Restart != nil {
				before = *of.Restart
			}
		}
		t.w.group.recorded(change, &g)
		if g.Restart == nil {
			continue
		}
		added := func(uid types.UID) bool { return !slices.Contains(before.Leaving, uid) }
		if slices.ContainsFunc(g.Restart.Leaving, added) && t.isUndoubtedlyReady(is, g.Name) {
			t.w.violated("recreated in vain", "Pods of group %s are to be recreated, and all are ready", g.Name)
		}
		if g.Restart.Restarts <= before.Restarts {
			continue
		}
		t.recreated++
		if before.Last == nil {
			continue
		}
		least := time.Hour
		if before.Restarts < maxRestarts {
			least = 10 * time.Second << (before.Restarts - 1)
		}
		if after := g.Restart.Last.Sub(before.Last.Time); after < least-time.Second {
			t.w.violated("recreated too often", "group %s is recreated for the %d. time, %s after the last one", g.Name, g.Restart.Restarts, after)
		}
	}
}

// deletesPod checks a controller's deletion of a Pod, which the controller has read as the second Pod. It may
// go by the recovery policy of that.
func (t *truth) deletesPod(pod, read *corev1.Pod) {
	restarts := func(p *corev1.Pod) bool {
		return p.Annotations[podmeta.AnnotationOnExit] == string(podmeta.OnExitRestart)
	}
	owner := podmeta.ServingOf(pod)
	if owner == nil || !restarts(pod) || !restarts(read) || podmeta.Finished(pod) {
		return
	}
	serving, _ := t.w.api.get(servingKind, owner.Name).(*v1alpha1.ModelServing)
	if serving == nil || serving.UID != owner.UID || serving.Status.ObservedGeneration != serving.Generation || serving.Spec.Count() == 0 {
		return
	}
	g := statusOf(serving, pod.Labels[podmeta.LabelServingGroup])
	switch {
	case g == nil || g.Restart != nil && slices.Contains(g.Restart.Leaving, pod.UID):
		return
	case g.Change != nil && g.Change.State == v1alpha1.ChangeUndoing: // the Pod may have the new model
		return
	case pod.Labels[podmeta.LabelServingRevision] != serving.Status.Revision:
		t.w.group.replaces(pod, serving, g)
		return
	}
	for _, uid := range sorted(t.w.launchers) {
		l := t.w.launchers[uid]
		on := t.w.api.pod(l.pod)
		if on != nil && on.DeletionTimestamp == nil && !l.dead && t.record(on, pod) != "" {
			t.w.violated("deleted in vain", "a controller deletes %s, whose server is to be restarted in place", pod.Name)
		}
	}
}

// mayRestart reports whether the instances of a start may be deleted though they serve: one of its Pods
// is not ready, and its grace is over.
func (t *truth) mayRestart(st *start) bool {
	for _, told := range st.pods {
		pod := t.w.api.podOf(told.Name, told.UID)
		if pod == nil {
			return true
		}
		if is, since := readySince(pod); is && time.Since(since) < doubt || !is && time.Since(since) >= grace-time.Second {
			return true
		}
	}
	return false
}

// mayNotServe reports whether a group need not serve at the end: it has failed as its policy says.
func mayNotServe(serving *v1alpha1.ModelServing, g *v1alpha1.ServingGroupStatus) bool {
	if g.State != v1alpha1.GroupFailed {
		return false
	}
	if g.Reason == v1alpha1.ReasonNotRestarted {
		return serving.Spec.RecoveryPolicy == v1alpha1.RecoverNone || g.Restart != nil && g.Restart.Restarts >= maxRestarts
	}
	return g.Reason == v1alpha1.ReasonTooManyRestarts && g.Restart != nil && g.Restart.Restarts >= maxRestarts
}

// needNotServe reports whether a Pod is of such a group.
func (t *truth) needNotServe(pod *corev1.Pod) bool {
	owner := podmeta.ServingOf(pod)
	if owner == nil {
		return false
	}
	serving := t.w.serving(owner.Name)
	return slices.ContainsFunc(serving.Status.Groups, func(g v1alpha1.ServingGroupStatus) bool { return mayNotServe(serving, &g) })
}
