package act

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// isSeatOf reports whether a Pod is a seat of a SeatPool that was given to an entry.
func isSeatOf(pod *corev1.Pod, model, entry string) bool {
	owner, of := metav1.GetControllerOf(pod), podmeta.ReadAssignment(pod)
	return owner != nil && owner.Kind == "SeatPool" && owner.Name == pod.Labels[podmeta.LabelSeat] && of.Model == model && of.Entry == entry
}

// observeSeats adds how many seats an entry has asked for, and since when it waits for one.
func (w *world) observeSeats(e *entry, o *decide.Entry) {
	o.Seated = true
	was := seatsAsked(e.config)
	o.Asked.Replicas, o.Replicas = was.Replicas, was.Replicas
	if since := e.noSeatSince; !since.IsZero() && w.hasOther(e) {
		o.NoSeat = &decide.Failure{Reason: decide.ReasonUnschedulable, Message: "SeatPool " + e.Pool + " has no seat for it: raise spec.replicas of the SeatPool", Time: since}
	}
}

// hasOther reports whether the Model has an entry with Pods, or seats of another pool, that could take the place of an
// entry with seats. A standby does not count.
func (w *world) hasOther(e *entry) bool {
	for _, other := range w.entries {
		if other.Pool != e.Pool && !other.IsStandby() {
			return true
		}
	}
	return false
}

// seatsAsked returns which seats an entry asks for; zero: none.
func seatsAsked(config *v1alpha1.InferenceServerConfig) (asked podmeta.SeatsAsked) {
	if config != nil {
		_ = json.Unmarshal([]byte(config.Annotations[podmeta.AnnotationSeatsAsked]), &asked) // zero if it is damaged
	}
	return asked
}

// noteWaiting notes since when an entry has waited for a seat. A new controller counts from its own start.
func (c *Controller) noteWaiting(model types.NamespacedName, e *entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, has := ofEntry{model, e.Name}, 0
	for _, pod := range e.pods {
		if podmeta.ReadAssignment(pod).Leaves.IsZero() && !podmeta.SeatEdited(pod) && pod.DeletionTimestamp.IsZero() {
			has++
		}
	}
	switch {
	case e.Pool == "" || has >= seatsAsked(e.config).Replicas:
		delete(c.noSeat, of)
	case c.noSeat[of].IsZero():
		c.noSeat[of] = now
	}
	e.noSeatSince = c.noSeat[of]
}

// askForSeats writes how many seats an entry asks for. The controller of SeatPools gives them. It deletes a Deployment that
// the entry had before.
func (c *Controller) askForSeats(ctx context.Context, w *world, e *entry, d *decide.EntryDecision) error {
	if e.deployment != nil && e.deployment.DeletionTimestamp.IsZero() {
		if err := c.opts.API.Delete(ctx, e.deployment, client.Preconditions{UID: &e.deployment.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete Deployment %s: %w", e.deployment.Name, err)
		}
	}
	if e.config == nil {
		return nil
	}
	asked := podmeta.SeatsAsked{
		Replicas: d.Asked.Replicas, Min: e.Min, Target: e.Target, Hash: e.Hash, ModelCache: e.Settings.ModelCache,
		Firm: w.mode() == decide.External || number(w.model.Spec.TotalMinReplicas) > 0,
	}
	if asked == seatsAsked(e.config) {
		return nil
	}
	changed := e.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podmeta.AnnotationSeatsAsked, asked.Encode())
	if err := c.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot ask for seats in InferenceServerConfig %s: %w", changed.Name, err)
	}
	c.tellMove(w, e, d)
	return nil
}

// giveSeatsBack withdraws an entry's request for seats, and reports whether the entry still has seats.
func (c *Controller) giveSeatsBack(ctx context.Context, e *entry) (waits bool, err error) {
	for _, pod := range e.pods {
		waits = waits || podmeta.IsSeat(pod) && pod.DeletionTimestamp.IsZero()
	}
	if e.config == nil || e.config.Annotations[podmeta.AnnotationSeatsAsked] == "" {
		return waits, nil
	}
	changed := e.config.DeepCopy()
	changed.Annotations = maps.Clone(changed.Annotations)
	delete(changed.Annotations, podmeta.AnnotationSeatsAsked)
	if err := c.opts.API.Update(ctx, changed); err != nil {
		return waits, fmt.Errorf("cannot give back the seats of InferenceServerConfig %s: %w", changed.Name, err)
	}
	return true, nil // the write leads to another call
}

// readSeat reads a seat that has a model. Its status may be about the one that it had before.
func readSeat(pod *corev1.Pod, p *decide.Pod) {
	of := podmeta.ReadAssignment(pod)
	p.Since, p.Leaving = of.Since, p.Leaving || !of.Leaves.IsZero() || podmeta.SeatEdited(pod)
	if podmeta.SeatEdited(pod) {
		return // somebody else has edited the seat: its errors are not the Model's
	}
	status := podmeta.ReadStatus(pod)
	if status.Seat != of.ID() || status.Reason == string(serversdecide.NotServing) {
		return
	}
	since := p.Since
	readRequester(pod, p)
	if !p.Ready {
		p.Since = since
	}
}
