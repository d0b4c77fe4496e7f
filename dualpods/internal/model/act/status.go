package act

import (
	"context"
	"fmt"
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

// tell writes the status, if it has changed.
func (c *Controller) tell(ctx context.Context, w *world) error {
	changed := w.model.DeepCopy()
	w.status(&changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, w.model.Status) {
		return nil
	}
	key, before := client.ObjectKeyFromObject(w.model), w.model.ResourceVersion
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot write the status of Model %s: %w", key, err)
	}
	w.model = changed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[key] = before
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
		if e.Problem != "" || e.taken != "" {
			wrong = append(wrong, fmt.Sprintf("spec %s: %s", e.Name, of.Message))
		}
	}
	s.Serving, s.BackingOff = strings.Join(serving, ", "), strings.Join(backing, ", ")
	s.SleepsOn = dualpods.Truncate(strings.Join(sleeps, ", "), mostOfSleepsOn)
	w.conditions(s, wrong, waiting, losing)
}

// statusOf returns the status of an entry.
func (w *world) statusOf(e *entry, d *decide.EntryDecision) v1alpha1.ModelEntryStatus {
	of := v1alpha1.ModelEntryStatus{
		Name: e.Name, Hash: d.Record.Hash, RunsIn: e.RunsIn, Message: dualpods.Truncate(d.Why, mostOfMessage), Failures: int32(d.Record.Failures),
		Replicas: v1alpha1.ModelEntryReplicas{Desired: int32(d.Asked.Replicas), Waiting: int32(d.Waiting), Ready: int32(d.Ready), Losing: int32(d.Losing)},
	}
	switch {
	case e.Problem != "":
		of.Message = e.Problem
	case e.taken != "":
		of.Message = e.taken
	}
	if f := d.Record.LastFailure; f != nil {
		of.LastFailure = &v1alpha1.ModelFailure{Reason: f.Reason, Message: dualpods.Truncate(f.Message, mostOfMessage), Time: metav1.NewMicroTime(f.Time)}
	}
	if !d.Record.BackoffUntil.IsZero() {
		of.BackoffUntil = new(metav1.NewMicroTime(d.Record.BackoffUntil))
	}
	if e.config != nil {
		of.SleepsOn = e.config.Status.SleepsOn
	}
	return of
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
	if len(wrong) > 0 {
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, strings.Join(wrong, "; "))
	} else {
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "each spec can run")
	}
	d := w.decision
	switch {
	case s.ReadyReplicas > 0:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonServing, s.Serving)
	case d.AllFailing != "":
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonAllSpecsFailing, d.AllFailing)
	case waiting > 0:
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonStarting, fmt.Sprintf("%d replicas are starting", waiting))
	default:
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAtZero, "nothing asks for the model; the next request starts it")
	}
	if waiting+losing > 0 {
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonScaling, fmt.Sprintf("%d replicas are starting, and %d are being taken away", waiting, losing))
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
	set(v1alpha1.ConditionStandbyServing, d.StandbyServing != "", standby, d.StandbyServing)
	set(v1alpha1.ConditionScalingLimited, d.Limited != "", limited, d.Limited)
	set(v1alpha1.ConditionAllSpecsFailing, d.AllFailing != "", failing, d.AllFailing)
}
