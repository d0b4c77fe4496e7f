package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// row is a part of a swap: phases for some of the swap's instances, and their undo.
type row struct {
	instances func(r *Run) []string // returns ids; none: the row does nothing
	oneByOne  bool                  // one instance after the other instead of all at once
	phases    []phase               // in this order, for each instance
	undo      func(r *Run, ctx context.Context, id string) error
}

// phase is one thing that a swap does for one instance, reported under the phase's
// name.
type phase struct {
	name string
	do   func(r *Run, ctx context.Context, id string) error
}

// rows are what a swap does after its admission, in this order. An undo goes through
// the rows that were begun, from the last to the first. After the last row,
// [Run.stopLeavers] follows and nothing is undone any more.
var rows = []row{
	{
		instances: (*Run).leaving,
		phases:    []phase{{launcherapi.PhaseDrain, (*Run).drain}, {launcherapi.PhaseSleep, (*Run).sleep}},
		undo:      (*Run).bringBack,
	},
	{
		instances: (*Run).victims, oneByOne: true,
		phases: []phase{{launcherapi.PhaseEvict, (*Run).evict}},
	},
	{
		instances: (*Run).woken,
		phases:    []phase{{launcherapi.PhaseWake, (*Run).wake}},
		undo:      (*Run).sendBack,
	},
	{
		instances: (*Run).created,
		phases:    []phase{{launcherapi.PhaseStart, (*Run).start}, {launcherapi.PhaseHealthy, (*Run).healthy}},
		undo:      (*Run).sendBack,
	},
	{
		instances: (*Run).canaryAsked,
		phases:    []phase{{launcherapi.PhaseCanary, (*Run).canary}},
	},
	{
		instances: (*Run).heldForCommit,
		phases:    []phase{{launcherapi.PhaseCommit, (*Run).awaitCommit}},
	},
	{
		instances: (*Run).cameIn,
		phases:    []phase{{launcherapi.PhaseOpen, (*Run).open}},
	},
}

// execute carries out the plan, row by row.
func (r *Run) execute(ctx context.Context) error {
	for n, row := range rows {
		r.rowsBegun = n + 1
		do := func(id string) error { return r.doPhases(ctx, row.phases, id) }
		if err := firstOf(forEach(row.instances(r), row.oneByOne, do)); err != nil {
			return err
		}
	}
	return nil
}

// doPhases does the phases of a row for one instance. If a client deletes the instance
// while it leaves, it counts as having left.
func (r *Run) doPhases(ctx context.Context, phases []phase, id string) error {
	for _, p := range phases {
		deleted := false
		err := r.phase(p.name, id, func() error {
			err := p.do(r, ctx, id)
			if deleted = errors.Is(err, supervisor.ErrDeleted); deleted {
				r.noteDeleted(id)
				return nil
			}
			return err
		})
		if err != nil || deleted {
			return err
		}
	}
	return nil
}

// undoRows undoes the rows that were begun.
func (r *Run) undoRows(ctx context.Context) error {
	var errs []error
	for _, row := range slices.Backward(rows[:r.rowsBegun]) {
		if row.undo != nil {
			errs = append(errs, forEach(row.instances(r), false, func(id string) error { return row.undo(r, ctx, id) })...)
		}
	}
	for _, id := range r.deleted() {
		errs = append(errs, fmt.Errorf("%s is gone: %w", id, supervisor.ErrDeleted))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.endedWhileUndoing()
}

// endedWhileUndoing returns an error if an instance that was brought back has ended
// since, while the undo brought back others.
func (r *Run) endedWhileUndoing() error {
	_, out := r.claim.Show()
	var errs []error
	for _, i := range out {
		if launcher.State(i.State).Ended() {
			errs = append(errs, fmt.Errorf("%s is %s: %s", i.InstanceID, i.State, i.Reason))
		}
	}
	return errors.Join(errs...)
}

// forEach calls do for all ids at once and waits, or calls do one by one until one call
// fails. The errors are in the order of the ids.
func forEach(ids []string, oneByOne bool, do func(id string) error) []error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for n, id := range ids {
		if !oneByOne {
			all.Go(func() { errs[n] = do(id) })
			continue
		}
		if errs[n] = do(id); errs[n] != nil {
			break
		}
	}
	all.Wait()
	return errs
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// leaving returns the instances that leave, without those that a client has deleted.
func (r *Run) leaving() []string {
	gone := r.deleted()
	return slices.DeleteFunc(slices.Clone(r.saved.Plan.Out), func(id string) bool { return slices.Contains(gone, id) })
}

func (r *Run) victims() []string { return r.saved.Plan.Evict }

func (r *Run) woken() []string {
	return r.incomingIf(r.saved.Plan.Room != nil && !r.saved.Plan.CreatesIn())
}

func (r *Run) created() []string { return r.incomingIf(r.saved.Plan.CreatesIn()) }

func (r *Run) cameIn() []string { return r.incomingIf(r.saved.Plan.Room != nil) }

// canaryAsked returns the instance that comes in if the request asks for its canary, or if
// its answers are compared after its wake.
func (r *Run) canaryAsked() []string {
	return r.incomingIf(r.saved.Plan.In != "" && (r.saved.Canary || r.claim.Compares()))
}

// incomingIf returns the instance that comes in if the condition holds, else none.
func (r *Run) incomingIf(condition bool) []string {
	if !condition {
		return nil
	}
	return []string{r.saved.Plan.In}
}

func (r *Run) drain(ctx context.Context, id string) error {
	cut, err := r.claim.Drain(ctx, id)
	if cut > 0 {
		r.mu.Lock()
		r.result.Cut += cut
		r.mu.Unlock()
		r.saveOutcome(func(s *Saved) { s.Cut += cut })
	}
	return err
}

// sleep puts an instance that leaves to sleep. If the swap stops it anyway, a sleep that
// fails ends it now: a model that hangs can be replaced.
func (r *Run) sleep(ctx context.Context, id string) error {
	err := r.claim.Sleep(ctx, id)
	if err == nil || !r.saved.Plan.Stop || ctx.Err() != nil || errors.Is(err, supervisor.ErrDeleted) {
		return err
	}
	r.c.log.Warn("an instance that is to be stopped does not fall asleep: stopping it now", "swap", r.ID(), "instance", id, "error", err)
	return r.claim.Stop(ctx, id)
}

func (r *Run) evict(ctx context.Context, id string) error {
	evicted, err := r.claim.Evict(ctx, id)
	if evicted {
		r.mu.Lock()
		r.result.Evicted = append(r.result.Evicted, id)
		r.mu.Unlock()
		r.saveOutcome(func(s *Saved) { s.Evicted = append(slices.Clone(s.Evicted), id) })
	}
	return err
}

func (r *Run) wake(ctx context.Context, _ string) error    { return r.claim.Wake(ctx) }
func (r *Run) start(ctx context.Context, _ string) error   { return r.claim.Start(ctx) }
func (r *Run) healthy(ctx context.Context, _ string) error { return r.claim.Healthy(ctx) }
func (r *Run) canary(ctx context.Context, _ string) error  { return r.claim.Canary(ctx) }

func (r *Run) open(context.Context, string) error {
	r.claim.Open(r.saved.NeedsCommit)
	return nil
}

func (r *Run) bringBack(ctx context.Context, id string) error { return r.claim.BringBack(ctx, id) }

func (r *Run) sendBack(ctx context.Context, id string) error {
	if err := r.claim.SendBack(ctx); err != nil {
		return fmt.Errorf("cannot put %s back to sleep: %w", id, err)
	}
	return nil
}

// stopLeavers stops the instances that left, if the request says so. It comes after all
// rows, because an undo may bring these instances back until then. An instance that
// does not end in time goes on ending after the swap.
func (r *Run) stopLeavers() {
	if !r.saved.Plan.Stop {
		return
	}
	ctx, cancel := context.WithDeadline(r.c.ctx, r.answerBy())
	defer cancel()
	forEach(r.leaving(), false, func(id string) error {
		if err := r.claim.Stop(ctx, id); err != nil {
			r.c.log.Error("cannot stop an instance that was swapped out", "instance", id, "error", err)
		}
		return nil
	})
}

// deleted returns the instances of the plan that a client has deleted while they left.
func (r *Run) deleted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.result.Deleted)
}

func (r *Run) noteDeleted(id string) {
	r.mu.Lock()
	r.result.Deleted = append(r.result.Deleted, id)
	r.mu.Unlock()
	r.saveOutcome(func(s *Saved) { s.Deleted = append(slices.Clone(s.Deleted), id) })
}

// saveOutcome updates the record with what the answer of the swap has to say, for the
// next launcher.
func (r *Run) saveOutcome(change func(*Saved)) {
	if err := r.updateRecord(change); err != nil {
		r.c.log.Warn("cannot record what a swap has done; its answer after a restart would lack it", "swap", r.ID(), "error", err)
	}
}
