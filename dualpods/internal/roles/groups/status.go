package groups

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// maxWhy is how many bytes of a group's message are written: there may be a thousand groups.
const maxWhy = 256

// severity orders the states of a group. If its Pods give it several, the gravest counts.
var severity = []v1alpha1.ServingGroupState{v1alpha1.GroupRunning, v1alpha1.GroupProgressing, v1alpha1.GroupScaling, v1alpha1.GroupFailed}

// groupsOf returns the states of the groups, by ordinal.
func groupsOf(w *World, steps []*Step) (groups []v1alpha1.ServingGroupStatus) {
	byOrdinal := map[int]*v1alpha1.ServingGroupStatus{}
	for group := range w.Serving.Spec.Count() {
		byOrdinal[group] = &v1alpha1.ServingGroupStatus{Name: groupName(w.Serving, group), State: v1alpha1.GroupRunning, Revision: w.groups[group].revision}
	}
	for _, s := range steps {
		if s.Of == nil && s.Scaler == nil && s.State != "" { // the revision of the template is missing
			for _, g := range byOrdinal {
				g.State, g.Reason, g.Message = s.State, s.Reason, dualpods.Truncate(s.Why, maxWhy)
			}
		}
		if s.Of == nil || !s.Of.Wanted && s.State == v1alpha1.GroupRunning {
			continue
		}
		g := byOrdinal[s.Of.group]
		if g == nil { // a group that should not be there any more
			g = &v1alpha1.ServingGroupStatus{Name: s.Of.groupName()}
			byOrdinal[s.Of.group] = g
		}
		if g.State == "" || slices.Index(severity, s.State) > slices.Index(severity, g.State) {
			g.State, g.Reason, g.Message = s.State, s.Reason, dualpods.Truncate(s.Why, maxWhy)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(byOrdinal)) {
		w.noteNumbers(byOrdinal[group], group)
		groups = append(groups, *byOrdinal[group])
	}
	keepChanges(groups, steps)
	w.tellLostRevisions(groups)
	if w.Serving.Spec.UsesGates() {
		keepGangs(groups, w.Serving)
	}
	w.showRestarts(groups)
	return groups
}

// tellLostRevisions sets the reason RevisionLost of groups that run and whose ControllerRevision is gone, or
// cannot be read.
func (w *World) tellLostRevisions(groups []v1alpha1.ServingGroupStatus) {
	for i := range groups {
		if g := &groups[i]; i < len(w.groups) && w.groups[i].places != nil && g.State == v1alpha1.GroupRunning {
			g.Reason = v1alpha1.ReasonRevisionLost
			g.Message = "ControllerRevision " + revisionName(w.Serving, w.groups[i].revision) + " is gone or cannot be read: the Pods stay, and lost ones are not created again until the group gets the present template"
		}
	}
}

// keepGangs keeps what package gang has written about groups.
func keepGangs(groups []v1alpha1.ServingGroupStatus, before *v1alpha1.ModelServing) {
	listed := byNames(before.Status.Groups)
	for i := range groups {
		if was := listed[groups[i].Name]; was != nil {
			groups[i].Gang = was.Gang
		}
	}
}

// show writes the report of a pass to a status.
func show(w *World, steps []*Step, s *v1alpha1.ModelServingStatus) {
	s.ObservedGeneration, s.Revision = w.Serving.Generation, w.Revision
	s.Selector = labels.SelectorFromSet(labels.Set{podmeta.LabelServing: w.Serving.Name, podmeta.LabelServingEntry: "true"}).String()
	s.Groups = groupsOf(w, steps)
	has := map[int]bool{}
	for _, m := range w.Members {
		if m.Pod.Is != nil {
			has[m.group] = true
		}
	}
	s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = int32(len(has)), 0, 0
	var waits *v1alpha1.ServingGroupStatus // the gravest, of these the first
	moves := ""                            // the first group that is progressing or scaling
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.Revision == w.Revision {
			s.UpdatedReplicas++
		}
		switch {
		case g.State == v1alpha1.GroupRunning:
			s.ReadyReplicas++
			continue
		case g.State != v1alpha1.GroupFailed && moves == "":
			moves = g.Reason
		}
		if waits == nil || slices.Index(severity, g.State) > slices.Index(severity, waits.State) {
			waits = g
		}
	}
	if s.CurrentRevision == "" || w.isRolledOut(s) {
		s.CurrentRevision = w.Revision
	}
	set := dualpods.NewConditionSetter(&s.Conditions, w.Serving.Generation)
	if len(w.Problems) > 0 {
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonMalformedTemplate, podmeta.Join(w.Problems))
	} else {
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "")
	}
	w.showLimits(s, steps, set)
	switch {
	case waits != nil:
		set(v1alpha1.ConditionAvailable, false, waits.Reason, fmt.Sprintf("%d of %d groups run; %s: %s", s.ReadyReplicas, len(s.Groups), waits.Name, waits.Message))
	case len(s.Groups) == 0:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonNoneNeeded, "spec.replicas is 0")
	default:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAllReady, "")
	}
	setProgressing(set, cmp.Or(moves, w.awaitsTurn()), failedChange(w, s.Groups))
}

// tell writes the status when it has changed, and emits an Event when the condition Accepted turns
// false, and for each group that fails.
func (c *Controller) tell(ctx context.Context, w *World, steps []*Step) error {
	if !w.Serving.DeletionTimestamp.IsZero() {
		return nil
	}
	changed := w.Serving.DeepCopy()
	show(w, steps, &changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, w.Serving.Status) {
		return nil
	}
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("cannot write the status of ModelServing %s: %w", client.ObjectKeyFromObject(w.Serving), err)
	}
	if changed.ResourceVersion != w.Serving.ResourceVersion { // else nothing was changed, and the cache shows no other version
		c.noteTold(client.ObjectKeyFromObject(changed), w.Serving.ResourceVersion)
	}
	c.announce(w.Serving, changed)
	w.Serving = changed
	return nil
}

// announce emits Events. A group that fails because of the templates is told once, by Accepted.
func (c *Controller) announce(before, now *v1alpha1.ModelServing) {
	was, is := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionAccepted), meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted)
	if is.Status == metav1.ConditionFalse && (was == nil || was.Message != is.Message) {
		c.warn(now, is.Reason, is.Message)
	}
	listed := byNames(before.Status.Groups)
	for i := range now.Status.Groups {
		g := &now.Status.Groups[i]
		was := listed[g.Name]
		same := was != nil && was.State == g.State && was.Reason == g.Reason && was.Message == g.Message
		if g.State == v1alpha1.GroupFailed && g.Reason != v1alpha1.ReasonMalformedTemplate && !same {
			c.warn(now, g.Reason, g.Name+": "+g.Message)
		}
		if g.Reason == v1alpha1.ReasonRevisionLost && (was == nil || was.Reason != g.Reason) {
			c.warn(now, g.Reason, g.Name+": "+g.Message)
		}
		c.announceChange(was, now, g)
	}
}

func (c *Controller) warn(about *v1alpha1.ModelServing, reason, note string) {
	c.opts.Recorder.Eventf(about, nil, corev1.EventTypeWarning, reason, "Keep", "%s", dualpods.Truncate(note, decide.MaxNote))
}
