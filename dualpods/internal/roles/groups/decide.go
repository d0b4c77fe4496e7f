package groups

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Action is a write.
type Action string

// The actions. The empty Action writes nothing.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
	Report Action = "write the status of"
	Label  Action = "label"
	// Annotate changes annotations of a Pod.
	Annotate Action = "annotate"

	// About the ranks of a server: see ranks.go.
	Tell   Action = "tell"   // of the start that they take part in
	Go     Action = "start"  // now that all have prepared
	Commit Action = "commit" // now that all are healthy
	Stop   Action = "stop"
	Remove Action = "delete the instance of"

	// About a change in place: see change.go.
	Patch Action = "patch" // the Pod of the member
	Undo  Action = "undo the change of"
)

// Step is what a row says about one object.
type Step struct {
	Row    string
	Of     *Member // nil: about a ControllerRevision or a RoleScaler
	Scaler *Scaler
	Do     Action
	Object client.Object // that is written
	Was    client.Object // as it was read; only of an object that is changed
	Ranks  []*Member     // that are ordered something
	// Changes means that the row is about a change in place, and Change what the status of the group
	// has of it then.
	Changes bool
	Change  *v1alpha1.ServingGroupChange

	// Again is after which time to look again though nothing changes; 0: never.
	Again time.Duration
	// State, Reason and Why are what the row means for the group.
	State  v1alpha1.ServingGroupState
	Reason string
	Why    string
	// Event is the reason of an Event that says Why, once the write was made; empty: none.
	Event string
}

// Decide decides about a ModelServing by the tables in spec/roles.md. The steps are in the order
// in which they are to be taken. There are none for a ModelServing that is being deleted:
// Kubernetes deletes what it owns.
func Decide(w *World) (steps []*Step) {
	if !w.Serving.DeletionTimestamp.IsZero() {
		return nil
	}
	recoveries := w.recoveries()
	steps = slices.Concat(w.revisions(), w.scalerSteps(), recoveries, w.changeSteps())
	for _, m := range w.Members {
		if repair := w.repairs(m); repair != nil {
			steps = append(steps, repair)
		}
		if w.hasService(m) {
			steps = append(steps, firstOf(addresses, w, m))
		}
		steps = append(steps, firstOf(pods, w, m))
	}
	for _, s := range w.servers() {
		steps = append(steps, s.decide())
	}
	return append(steps, w.policies()...)
}

// rule is a row of a table. fits reports whether the row applies to a member, and then fills the
// step.
type rule struct {
	row  string
	fits func(*World, *Member, *Step) bool
}

func firstOf(rules []rule, w *World, m *Member) *Step {
	for _, r := range rules {
		s := &Step{Row: r.row, Of: m, State: v1alpha1.GroupRunning}
		if r.fits(w, m, s) {
			return s
		}
	}
	panic("the last row of each table always fits")
}

// pods lists the rows for a Pod.
var pods = []rule{
	{"surplus, gone", func(_ *World, m *Member, _ *Step) bool { return !m.Wanted && m.Pod.Is == nil }},
	{"surplus, being deleted", func(_ *World, m *Member, s *Step) bool {
		return !m.Wanted && m.podLeaves() && s.waits(v1alpha1.GroupScaling, v1alpha1.ReasonScaling, "Pod "+m.name()+" is being deleted")
	}},
	{rowSurplus, func(_ *World, m *Member, s *Step) bool {
		return !m.Wanted && s.writes(Delete, m.Pod.Is) && s.waits(v1alpha1.GroupScaling, v1alpha1.ReasonScaling, "Pod "+m.name()+" is being deleted")
	}},
	{"Pod of an earlier one", func(_ *World, m *Member, s *Step) bool {
		return m.Pod.Other == Earlier && s.waitsForEarlier("Pod", m)
	}},
	{"Pod name taken", func(_ *World, m *Member, s *Step) bool {
		return m.Pod.Other == Stranger && s.isTaken("Pod", m)
	}},
	{"Pod just created", func(_ *World, m *Member, s *Step) bool {
		return m.Pod.Unheard && s.after(hearLimit) && s.starts(m, "is being created")
	}},
	{"template invalid", func(w *World, m *Member, s *Step) bool {
		return m.Pod.Is == nil && w.isInvalid(m) &&
			s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonMalformedTemplate, "Pod "+m.name()+" cannot be created: "+podmeta.Join(w.Problems))
	}},
	{"no Service yet", func(_ *World, m *Member, _ *Step) bool { // the table of addresses says why
		return m.Pod.Is == nil && m.Service.Other != ""
	}},
	{"no domain yet", func(w *World, m *Member, s *Step) bool {
		return w.awaitsDomain(m) && s.after(takenPause) && s.starts(m, "waits until its entry runs on a node with the label "+topologyOf(w.Serving).Group)
	}},
	{"Pods before it leave", func(w *World, m *Member, s *Step) bool {
		return m.Pod.Is == nil && w.isHeld(m) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonRestarting, "Pod "+m.name()+" is created again with the other Pods, once those before them are gone")
	}},
	{"create Pod", func(w *World, m *Member, s *Step) bool {
		return m.Pod.Is == nil && s.writes(Create, w.newPod(m.place)) && s.starts(m, "is being created")
	}},
	{"Pod being deleted", func(_ *World, m *Member, s *Step) bool {
		return m.podLeaves() && s.starts(m, "is being deleted, and is created again")
	}},
	{"Pod restarted", func(w *World, m *Member, s *Step) bool {
		return w.isToRestart(m) && s.writes(Delete, m.Pod.Is) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonRestarting, "Pod "+m.name()+" is being recreated")
	}},
	{"Pod ended, kept", func(w *World, m *Member, s *Step) bool {
		return podmeta.Finished(m.Pod.Is) && w.keepsEnded(m) && w.sayKept(m, s)
	}},
	{"Pod ended", func(_ *World, m *Member, s *Step) bool {
		return podmeta.Finished(m.Pod.Is) && s.writes(Delete, m.Pod.Is) && s.starts(m, "has ended, and is created again")
	}},
	{"Pod changed in place", func(w *World, m *Member, s *Step) bool {
		return w.isToBeRelabelled(m) && s.changesPod(m, Patch, w.relabelled(m)) &&
			s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonChanging, "Pod "+m.name()+" gets the labels of the new template")
	}},
	{"Pod being changed", func(w *World, m *Member, s *Step) bool {
		return w.isBeingChanged(m) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonChanging, "Pod "+m.name()+" gets the model of the new template")
	}},
	{rowOutdated, func(w *World, m *Member, s *Step) bool {
		return !w.isInvalid(m) && w.isOutdated(m) && s.writes(Delete, m.Pod.Is) && s.replaces(m, w.notInPlace[m.group])
	}},
	{"Pod of another size", func(w *World, m *Member, s *Step) bool { // it cannot be a rank of the server that is wanted
		return w.rankChanged(m) && s.writes(Delete, m.Pod.Is) && s.starts(m, "was created for a server of another size, and is created again")
	}},
	{"Pod gets a label", func(w *World, m *Member, s *Step) bool {
		return w.isToFollow(m) && s.changesPod(m, Label, w.labelled(m)) &&
			s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonUpdating, "Pod "+m.name()+" stays, and gets the label of the new template")
	}},
	{"Pod waits for its gang", func(w *World, m *Member, s *Step) bool {
		return podmeta.AwaitsGang(m.Pod.Is) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForGang, cmp.Or(w.gang(m), "Pod "+m.name()+" gets a node together with the others"))
	}},
	{"rank made again", func(w *World, m *Member, s *Step) bool {
		made := w.madeAgain(m)
		return made != nil && s.writes(Delete, m.Pod.Is) &&
			s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonRestarting, "Pod "+m.name()+" is created again, as Pod "+made.name()+" of the same server was")
	}},
	{"server ended, kept", func(_ *World, m *Member, s *Step) bool {
		return m.staysEnded() && s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonNotRestarted, "the server of Pod "+m.name()+" "+m.Bound.Record.Kept+", and nothing restarts it: delete the Pod, and it is created again")
	}},
	{"Pod not ready", func(_ *World, m *Member, s *Step) bool {
		return !podmeta.Ready(m.Pod.Is) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonNotReady, "Pod "+m.name()+" "+serverconfig.WhyNotReady(m.Pod.Is))
	}},
	{"Pod ready", func(*World, *Member, *Step) bool { return true }},
}

// The rows that delete a Pod because of its state at the time when it was read.
const (
	rowSurplus  = "surplus"
	rowOutdated = "Pod of another revision"
)

// isInvalid reports whether a Pod would be created from the present template, and that is not valid.
func (w *World) isInvalid(m *Member) bool {
	return len(w.Problems) > 0 && w.planOf(m.place).revision == w.Revision
}

// rankChanged reports whether a Pod is another rank than its template says. A template that is not
// valid, or cannot be read, says nothing.
func (w *World) rankChanged(m *Member) bool {
	return !w.isInvalid(m) && w.planOf(m.place).places == nil && m.Pod.Is.Annotations[podmeta.AnnotationRank] != w.templatesOf(m.place).rankOf(m.place).String()
}

// hasService reports whether a Pod has a Service, or is to have one.
func (w *World) hasService(m *Member) bool {
	return w.needsService(m) || m.Service.Is != nil || m.Slice.Is != nil
}

// needsService reports whether a Pod is to have a Service: entries, and workers that are no
// requesters, which find each other by its name.
func (w *World) needsService(m *Member) bool {
	return m.isEntry() || m.Wanted && !isRequester(w.templatesOf(m.place).of(m.place))
}

// podLeaves reports whether the member's Pod is being deleted.
func (m *Member) podLeaves() bool { return !m.Pod.Is.DeletionTimestamp.IsZero() }

// waits says what the row means for the group. It returns true.
func (s *Step) waits(state v1alpha1.ServingGroupState, reason, why string) bool {
	s.State, s.Reason, s.Why = state, reason, why
	return true
}

func (s *Step) starts(m *Member, what string) bool {
	return s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonStarting, "Pod "+m.name()+" "+what)
}

// after says when to look again. It returns true.
func (s *Step) after(pause time.Duration) bool {
	s.Again = pause
	return true
}

// writes says what the row does. It returns true.
func (s *Step) writes(do Action, o client.Object) bool {
	s.Do, s.Object = do, o
	return true
}

// changesPod says how the row changes the Pod of a member. It returns true.
func (s *Step) changesPod(m *Member, do Action, is client.Object) bool {
	s.Was = m.Pod.Is
	return s.writes(do, is)
}

// changes says which object the row changes. It returns true.
func (s *Step) changes(was, is client.Object) bool {
	s.Was = was
	return s.writes(Change, is)
}

func (s *Step) waitsForEarlier(kind string, m *Member) bool {
	return s.after(takenPause) && s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForDeletion, kind+" "+m.name()+" of the ModelServing that had this name before is not gone yet")
}

func (s *Step) isTaken(kind string, m *Member) bool {
	return s.after(takenPause) && s.waits(v1alpha1.GroupFailed, v1alpha1.ReasonNameTaken, kind+" "+m.name()+" exists and was not created for this ModelServing: delete it, or give the ModelServing another name")
}

// These rows come before all others: without the ControllerRevision nobody could tell later what a
// Pod was created from.
const (
	rowEarlierRevision = "revision of an earlier one"
	rowCreateRevision  = "create revision"
)

// revisions returns the steps about ControllerRevisions: the one of the present template is
// created, and those are deleted that no Pod was made from.
func (w *World) revisions() (steps []*Step) {
	has := func(name string) func(*appsv1.ControllerRevision) bool {
		return func(r *appsv1.ControllerRevision) bool { return r.Name == name }
	}
	present := slices.IndexFunc(w.Revisions, has(revisionName(w.Serving, w.Revision)))
	switch replicas := replicasOf(&w.Serving.Spec.Template); {
	case len(w.Problems) > 0 || w.Unheard:
	case w.Earlier:
		s := &Step{Row: rowEarlierRevision, State: v1alpha1.GroupProgressing}
		s.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForDeletion, "a ControllerRevision of the ModelServing that had this name before is not gone yet")
		s.after(takenPause)
		steps = append(steps, s)
	case present < 0:
		steps = append(steps, &Step{Row: rowCreateRevision, Do: Create, Object: w.newRevision()})
	case w.Revisions[present].Annotations[podmeta.AnnotationReplicas] != replicas:
		noted := w.Revisions[present].DeepCopy()
		metav1.SetMetaDataAnnotation(&noted.ObjectMeta, podmeta.AnnotationReplicas, replicas)
		steps = append(steps, &Step{Row: "note replicas", Do: Change, Object: noted, Was: w.Revisions[present]})
	}
	used := map[string]bool{w.Revision: true, w.Serving.Status.CurrentRevision: true}
	for _, m := range w.Members {
		if m.Pod.Is != nil {
			used[m.Pod.Is.Labels[podmeta.LabelServingRevision]] = true
		}
	}
	for i := range w.Serving.Status.Groups {
		if c := w.Serving.Status.Groups[i].Change; c != nil {
			used[c.Revision] = true
		}
	}
	for _, r := range w.Revisions {
		if isRevision(w.Serving, r) && !used[r.Labels[podmeta.LabelServingRevision]] && r.DeletionTimestamp.IsZero() {
			steps = append(steps, &Step{Row: "unused revision", Do: Delete, Object: r})
		}
	}
	return steps
}
