package seatpool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/seats"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/spec/podmeta"
)

// act does what was decided.
func (c *Controller) act(ctx context.Context, w *world) error {
	var errs []error
	for _, step := range w.decision.Steps {
		c.acts(step.Row, false)
		if err := c.take(ctx, w, step); err != nil {
			errs = append(errs, fmt.Errorf("cannot %s seat %s: %w", step.Do, step.Seat, err))
			continue
		}
		c.acts(step.Row, true)
	}
	if w.problem == "" {
		errs = append(errs, c.create(ctx, w))
	}
	return errors.Join(errs...)
}

func (c *Controller) acts(row seats.Row, written bool) {
	if c.opts.Acts != nil {
		c.opts.Acts(row, written)
	}
}

// take takes a step: one write, which is refused if somebody else has changed the Pod.
func (c *Controller) take(ctx context.Context, w *world, step seats.Step) error {
	pod := w.pods[step.Seat]
	if step.Do == seats.Delete {
		c.event(w, pod, step)
		return c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	}
	changed := pod.DeepCopy()
	switch step.Do {
	case seats.Assign:
		of := w.claims[step.Claim]
		workload.Take(changed, podmeta.Assignment{
			Model: of.model, Entry: of.entry, Config: of.config.Name, Generation: of.config.Generation, Hash: of.asked.Hash, Since: w.now.UTC(),
		}, of.asked.ModelCache)
	case seats.Release:
		workload.Give(changed, w.now)
	case seats.Drain:
		workload.Leave(changed, w.now)
	case seats.Stay:
		workload.Stay(changed)
	case seats.Delete:
	}
	if err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	w.memory.written[pod.UID] = dualpods.WriteOf(pod.ResourceVersion, changed.ResourceVersion, w.now)
	if of := podmeta.ReadAssignment(pod); step.Row == seats.RowBusy {
		w.memory.lostAt[of.Model+"/"+of.Entry] = w.now
	}
	c.event(w, pod, step)
	return nil
}

// event emits an Event that says why a seat changes its model. The recorder joins Events that differ only in their notes,
// so the action names the row and the entry too.
func (c *Controller) event(w *world, pod *corev1.Pod, step seats.Step) {
	reason := map[seats.Action]string{
		seats.Assign: "SeatTaken", seats.Release: "SeatReleased", seats.Drain: "SeatDrains", seats.Stay: "SeatStays", seats.Delete: "SeatDeleted",
	}[step.Do]
	entry := step.Claim
	if of := podmeta.ReadAssignment(pod); entry == "" && of.ID() != "" {
		entry = of.Model + "/" + of.Entry
	}
	action := dualpods.Truncate(strings.TrimSpace(string(step.Row)+" "+entry), mostOfAction)
	c.opts.Recorder.Eventf(w.pool, pod, corev1.EventTypeNormal, reason, action, "%s", dualpods.Truncate(fmt.Sprintf("seat %s, %s: %s", step.Seat, step.Row, step.Why), mostOfNote))
}

// mostOfNote and mostOfAction bound the note and the action of an Event.
const (
	mostOfNote   = 1000
	mostOfAction = 128
)

// mostCreated bounds the seats that a pass creates, one after the other: a Model that waits for a seat waits until the pass
// ends. If a creation fails, such as for lack of quota, the pass creates no more.
const mostCreated = 100

// create makes the seats that are missing, under the lowest numbers that no Pod has.
func (c *Controller) create(ctx context.Context, w *world) error {
	number := 0
	for range min(w.decision.Create, mostCreated) {
		for {
			taken, err := c.isTaken(ctx, w, number)
			if err != nil {
				return err
			}
			if !taken {
				break
			}
			number++
		}
		c.acts(seats.RowTooFew, false)
		if err := c.opts.API.Create(ctx, workload.Seat(w.pool, &w.template, number)); err != nil {
			return fmt.Errorf("cannot create seat %s: %w", workload.SeatName(w.pool.Name, number), err)
		}
		c.acts(seats.RowTooFew, true)
		number++
	}
	return nil
}

// isTaken reports whether a Pod has the name of a seat.
func (c *Controller) isTaken(ctx context.Context, w *world, number int) (bool, error) {
	var pod corev1.Pod
	err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: w.pool.Namespace, Name: workload.SeatName(w.pool.Name, number)}, &pod, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot read Pod %s: %w", workload.SeatName(w.pool.Name, number), err)
	}
	return err == nil, nil
}
