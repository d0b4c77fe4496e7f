package seatpool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// The bounds of lists in a status.
const (
	mostOfList   = 256 // of texts for people, in bytes
	mostOfModels = 1000
	mostOfSeats  = 16 // of a Model, by name
)

// tell writes the status, if it has changed: once in a tellPause. pause is how long it waits; 0: it does not.
func (c *Controller) tell(ctx context.Context, w *world) (pause time.Duration, err error) {
	changed := w.pool.DeepCopy()
	w.status(&changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, w.pool.Status) {
		return 0, nil
	}
	if w.memory.told.IsHidden(w.pool.ResourceVersion) { // the cache does not show the last one yet
		return conflictPause, nil
	}
	if pause = w.memory.told.Pause(tellPause, w.now); pause > 0 && changed.Status.ObservedGeneration == w.pool.Status.ObservedGeneration {
		return pause, nil
	}
	before := w.pool.ResourceVersion
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		return 0, fmt.Errorf("cannot write the status of SeatPool %s: %w", w.pool.Name, err)
	}
	w.memory.told = dualpods.WriteOf(before, changed.ResourceVersion, w.now)
	return 0, nil
}

// status writes what was observed.
func (w *world) status(s *v1alpha1.SeatPoolStatus) {
	s.ObservedGeneration = w.pool.Generation
	s.Seats, s.Models = v1alpha1.SeatNumbers{Total: int32(len(w.seats))}, nil
	has, running := map[string][]string{}, 0
	for i := range w.seats {
		seat := &w.seats[i]
		if seat.Claim == "" {
			s.Seats.Idle++
		} else {
			s.Seats.Taken++
			has[seat.Claim] = append(has[seat.Claim], seat.Name)
		}
		if seat.Usable || seat.Claim != "" {
			running++
		}
	}
	var serving []string
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		of, own := w.claims[name], has[name]
		if len(own) > 0 {
			serving = append(serving, fmt.Sprintf("%s (%d)", name, len(own)))
		}
		if len(s.Models) < mostOfModels && (len(own) > 0 || of.asked.Replicas > 0) {
			s.Models = append(s.Models, v1alpha1.SeatModel{
				Model: of.model, Entry: of.entry, Wants: int32(of.asked.Replicas), Has: int32(len(own)), Seats: own[:min(len(own), mostOfSeats)],
			})
		}
	}
	s.Serving = dualpods.Truncate(strings.Join(serving, ", "), mostOfList)
	s.Waiting = dualpods.Truncate(strings.Join(w.decision.Waiting, ", "), mostOfList)
	w.conditions(s, running)
}

// conditions sets the conditions.
func (w *world) conditions(s *v1alpha1.SeatPoolStatus, running int) {
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: dualpods.Truncate(message, mostOfNote), ObservedGeneration: w.pool.Generation, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second)),
		})
	}
	if w.problem == "" {
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the template can be used")
	} else {
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonMalformedTemplate, w.problem)
	}
	if wanted := number(w.pool.Spec.Replicas, 1); running >= wanted {
		set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAllReady, "all seats run")
	} else {
		set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNotReady, fmt.Sprintf("%d of %d seats run%s", running, wanted, w.why()))
	}
}

// why says why the first of the seats that do not run waits.
func (w *world) why() string {
	for i := range w.seats {
		if seat := &w.seats[i]; !seat.Usable && seat.Claim == "" {
			pod := w.pods[seat.Name]
			if why, stuck := podmeta.Waits(pod); stuck {
				return fmt.Sprintf("; the Pod of seat %s %s", seat.Name, why)
			}
			if status := podmeta.ReadStatus(pod); status.Message != "" {
				return fmt.Sprintf("; seat %s: %s", seat.Name, status.Message)
			}
		}
	}
	return ""
}
