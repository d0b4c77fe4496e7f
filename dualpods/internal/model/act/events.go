package act

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Reasons of Events. The Event of a failure has the reason of the failure.
const (
	eventScaled      = "ScaledByOthers"
	eventEdited      = "EditedByOthers"
	eventScaledAgain = "ScaledAgainAndAgain"
	eventAsked       = "EntryAsked"
)

// event emits an Event about an entry. The recorder joins Events that differ only in their notes, unless their related
// objects differ. So each Event is related to the Deployment of its entry, if there is one.
func (c *Controller) event(w *world, e *entry, kind, reason, action, note string) {
	var related runtime.Object
	if e.deployment != nil {
		related = e.deployment
	}
	c.opts.Recorder.Eventf(w.model, related, kind, reason, action, "%s", dualpods.Truncate("entry "+e.Name+": "+note, serversdecide.MaxNote))
}

// tellEdited emits an Event about an edit by somebody else that was undone. instead says what to do in place of that edit.
func (c *Controller) tellEdited(w *world, e *entry, what, instead string) {
	c.event(w, e, corev1.EventTypeWarning, eventEdited, "Edit", "somebody else has edited "+what+", and the controller has undone the edit: "+instead)
}

// tellScaled emits an Event about a number of replicas that somebody else wrote and the controller undid. It emits another
// one if the controller now begins to wait before each undo.
func (c *Controller) tellScaled(w *world, e *entry, d *decide.EntryDecision, firstPause time.Duration) {
	c.event(w, e, corev1.EventTypeWarning, eventScaled, "Scale", d.Foreign)
	if firstPause > 0 {
		c.event(w, e, corev1.EventTypeWarning, eventScaledAgain, "Scale", fmt.Sprintf(
			"a program scales the Deployment again and again, and the controller has undone it %d times: it now waits before each undo, for %s at first and for %s at most; stop that program, such as a HorizontalPodAutoscaler of the Deployment",
			undoneAtOnce, firstPause, writeOfReplicas.longest()))
	}
}

// tellNewFailures emits an Event for each failure that a status has and the earlier status has not.
func (c *Controller) tellNewFailures(w *world, before, now *v1alpha1.ModelStatus) {
	for _, e := range w.entries {
		of := entryOf(now, e.Name)
		if of.LastFailure == nil || equality.Semantic.DeepEqual(of.LastFailure, entryOf(before, e.Name).LastFailure) {
			continue
		}
		next := "it is tried again after an edit"
		if of.BackoffUntil != nil {
			next = "it is tried again at " + of.BackoffUntil.UTC().Format("2006-01-02T15:04:05Z")
		}
		c.event(w, e, corev1.EventTypeWarning, of.LastFailure.Reason, "Scale", fmt.Sprintf("%s; %s", of.LastFailure.Message, next))
	}
}

// moves are the rows by which another entry may come to serve the Model.
var moves = map[decide.Row]bool{decide.RowDemand: true, decide.RowWakes: true, decide.RowRaces: true, decide.RowTried: true, decide.RowStandbyAlone: true}

// tellMove emits an Event when an entry without replicas is asked for some, and the Model moves to it. The first entry is
// asked first, so asking it is a move only while a later entry serves.
func (c *Controller) tellMove(w *world, e *entry, d *decide.EntryDecision) {
	isFirst := e == w.entries[0] && d.Row != decide.RowTried
	had := seatsAsked(e.config).Replicas
	if e.deployment != nil && e.Pool == "" {
		had = int(*e.deployment.Spec.Replicas)
	}
	if d.Asked.Replicas > 0 && had == 0 && !isFirst && moves[d.Row] {
		c.event(w, e, corev1.EventTypeNormal, eventAsked, "Scale", fmt.Sprintf("it is asked for replicas (%d): %s", d.Asked.Replicas, d.Why))
	}
}
