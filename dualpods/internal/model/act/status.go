package act

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// mostOfSleepsOn bounds the lists of nodes.
const mostOfSleepsOn = 256

// tellFailures writes what the status keeps of failures, if it has changed. Later decisions rest on it.
func (c *Controller) tellFailures(ctx context.Context, w *world) error {
	changed := w.model.DeepCopy()
	for i, e := range w.entries {
		of := entryOf(&changed.Status, e.Name)
		record(of, &w.decision.Entries[i].Record)
	}
	same := func(a, b v1alpha1.ModelEntryStatus) bool {
		return a.Failures == b.Failures && equality.Semantic.DeepEqual(a.LastFailure, b.LastFailure) && equality.Semantic.DeepEqual(a.BackoffUntil, b.BackoffUntil)
	}
	before := w.model.Status.DeepCopy()
	for i := range changed.Status.Specs {
		if of := &changed.Status.Specs[i]; !same(*of, *entryOf(before, of.Name)) {
			if err := c.write(ctx, w, changed); err != nil {
				return err
			}
			c.tellNewFailures(w, before, &changed.Status)
			return nil
		}
	}
	return nil
}

// entryOf returns the status of an entry, which is added if there is none.
func entryOf(s *v1alpha1.ModelStatus, name string) *v1alpha1.ModelEntryStatus {
	for i := range s.Specs {
		if s.Specs[i].Name == name {
			return &s.Specs[i]
		}
	}
	s.Specs = append(s.Specs, v1alpha1.ModelEntryStatus{Name: name})
	return &s.Specs[len(s.Specs)-1]
}

// tell writes the status, if it has changed: once in a tellPause, and at once if the last one is of another generation.
// pause is how long it waits; 0: it does not.
func (c *Controller) tell(ctx context.Context, w *world) (pause time.Duration, err error) {
	changed := w.model.DeepCopy()
	w.status(&changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, w.model.Status) {
		return 0, nil
	}
	c.mu.Lock()
	pause = c.told[client.ObjectKeyFromObject(w.model)].Pause(tellPause, w.now)
	c.mu.Unlock()
	if pause > 0 && changed.Status.ObservedGeneration == w.model.Status.ObservedGeneration {
		return pause, nil
	}
	return 0, c.write(ctx, w, changed)
}

// write writes a status.
func (c *Controller) write(ctx context.Context, w *world, changed *v1alpha1.Model) error {
	key, before := client.ObjectKeyFromObject(w.model), w.model.ResourceVersion
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot write the status of Model %s: %w", key, err)
	}
	w.model = changed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[key] = dualpods.WriteOf(before, changed.ResourceVersion, w.now)
	return nil
}

// status writes what was observed and decided.
func (w *world) status(s *v1alpha1.ModelStatus) {
	s.ObservedGeneration = w.model.Generation
	s.Selector = labels.Set{podmeta.LabelModel: w.model.Name}.String()
	s.Replicas, s.ReadyReplicas, s.Specs = 0, 0, nil
	var serving, backing, sleeps, wrong []string
	var waiting, losing int
	for i, e := range w.entries {
		d := &w.decision.Entries[i]
		of := w.statusOf(e, d)
		s.Specs = append(s.Specs, of)
		s.ReadyReplicas += of.Replicas.Ready
		waiting, losing = waiting+d.Waiting, losing+d.Losing
		if !e.IsStandby() {
			s.Replicas += of.Replicas.Desired
		}
		if of.Replicas.Ready > 0 {
			serving = append(serving, fmt.Sprintf("%s (%d)", e.Name, of.Replicas.Ready))
		}
		if of.BackoffUntil != nil && of.BackoffUntil.After(w.now) {
			backing = append(backing, e.Name)
		}
		if of.SleepsOn != "" {
			sleeps = append(sleeps, of.SleepsOn)
		}
		if e.cannotRun(d) {
			wrong = append(wrong, fmt.Sprintf("entry %s: %s", e.Name, of.Message))
		}
	}
	s.Serving, s.BackingOff = strings.Join(serving, ", "), strings.Join(backing, ", ")
	s.SleepsOn = dualpods.Truncate(strings.Join(sleeps, ", "), mostOfSleepsOn)
	w.conditions(s, wrong, waiting, losing)
}

// cannotRun reports whether an entry cannot run before somebody edits something.
func (e *entry) cannotRun(d *decide.EntryDecision) bool {
	return e.Problem != "" || e.taken != "" || d.Record.WaitsForEdit()
}

// statusOf returns the status of an entry.
func (w *world) statusOf(e *entry, d *decide.EntryDecision) v1alpha1.ModelEntryStatus {
	of := v1alpha1.ModelEntryStatus{
		Name: e.Name, RunsIn: e.RunsIn, Message: dualpods.Truncate(d.Why, mostOfMessage),
		Replicas: v1alpha1.ModelEntryReplicas{Desired: int32(d.Asked.Replicas), Waiting: int32(d.Waiting), Ready: int32(d.Ready), Losing: int32(d.Losing)},
	}
	switch {
	case e.Problem != "":
		of.Message = e.Problem
	case e.taken != "":
		of.Message = e.taken
	}
	record(&of, &d.Record)
	if e.config != nil {
		of.SleepsOn = e.config.Status.SleepsOn
	}
	return of
}

// record puts the record of an entry in its status.
func record(of *v1alpha1.ModelEntryStatus, r *decide.Record) {
	of.Hash, of.Failures, of.LastFailure, of.BackoffUntil = r.Hash, int32(r.Failures), nil, nil
	if f := r.LastFailure; f != nil {
		of.LastFailure = &v1alpha1.ModelFailure{Reason: f.Reason, Message: dualpods.Truncate(f.Message, mostOfMessage), Time: metav1.NewMicroTime(f.Time)}
	}
	if !r.BackoffUntil.IsZero() {
		of.BackoffUntil = new(metav1.NewMicroTime(r.BackoffUntil))
	}
}

// conditions sets the conditions.
func (w *world) conditions(s *v1alpha1.ModelStatus, wrong []string, waiting, losing int) {
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: dualpods.Truncate(message, mostOfMessage), ObservedGeneration: w.model.Generation, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second)),
		})
	}
	switch {
	case len(wrong) == 0:
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "each entry can run")
	case len(wrong) == len(w.entries) && !slices.ContainsFunc(w.entries, func(e *entry) bool { return e.takenEnds }):
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonNoEntryCanRun, strings.Join(wrong, "; "))
	default:
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, strings.Join(wrong, "; "))
	}
	d := w.decision
	switch {
	case s.ReadyReplicas > 0:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonServing, s.Serving)
	case d.AllFailing != "":
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonAllSpecsFailing, d.AllFailing)
	case waiting > 0:
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonStarting, fmt.Sprintf("replicas that are starting: %d", waiting))
	default:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAtZero, "nothing asks for the model; the next request starts it")
	}
	if waiting+losing > 0 {
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonScaling, fmt.Sprintf("replicas that are starting: %d; that are being taken away: %d", waiting, losing))
	} else {
		set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonIdle, "nothing changes")
	}
	standby, limited, failing := v1alpha1.ReasonIdle, v1alpha1.ReasonAsAsked, v1alpha1.ReasonNoneFailed
	if d.StandbyServing != "" {
		standby = v1alpha1.ReasonServing
	}
	if d.Limited != "" {
		limited = v1alpha1.ReasonMaximum
	}
	if d.AllFailing != "" {
		failing = v1alpha1.ReasonAllSpecsFailing
	}
	names := v1alpha1.ReasonAsAsked
	if len(w.lost) > 0 {
		names = v1alpha1.ReasonNameTaken
	}
	set(v1alpha1.ConditionNameConflict, len(w.lost) > 0, names, strings.Join(w.lost, "; "))
	set(v1alpha1.ConditionStandbyServing, d.StandbyServing != "", standby, d.StandbyServing)
	set(v1alpha1.ConditionScalingLimited, d.Limited != "", limited, d.Limited)
	set(v1alpha1.ConditionAllSpecsFailing, d.AllFailing != "", failing, d.AllFailing)
}
