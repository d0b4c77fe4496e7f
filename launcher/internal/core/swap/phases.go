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

// row is a part of a swap: phases for some of the swap's instances, and what undoes
// them.
type row struct {
	who      func(r *Run) []string // ids of the instances; none: the row does nothing
	oneByOne bool                  // one instance after the other, rather than all at once
	phases   []phase               // for each instance, one after the other
	undo     func(r *Run, ctx context.Context, id string) error
}

// phase is one thing that a swap does for one instance, reported under the phase's
// name.
type phase struct {
	name string
	do   func(r *Run, ctx context.Context, id string) error
}

// rows are what a swap does after its admission, in this order. The undoing goes
// through those rows that were begun, from the last to the first. After the last row
// nothing is undone: [Run.stopOut] follows.
var rows = []row{
	{
		who:    (*Run).leaving,
		phases: []phase{{launcherapi.PhaseDrain, (*Run).drain}, {launcherapi.PhaseSleep, (*Run).sleep}},
		undo:   (*Run).bringBack,
	},
	{
		who: (*Run).victims, oneByOne: true,
		phases: []phase{{launcherapi.PhaseEvict, (*Run).evict}},
	},
	{
		who:    (*Run).woken,
		phases: []phase{{launcherapi.PhaseWake, (*Run).wake}},
		undo:   (*Run).sendBack,
	},
	{
		who:    (*Run).made,
		phases: []phase{{launcherapi.PhaseStart, (*Run).start}, {launcherapi.PhaseHealthy, (*Run).healthy}},
		undo:   (*Run).sendBack,
	},
	{
		who:    (*Run).tested,
		phases: []phase{{launcherapi.PhaseCanary, (*Run).canary}},
	},
	{
		who:    (*Run).movedIn,
		phases: []phase{{launcherapi.PhaseOpen, (*Run).open}},
	},
}

// execute does what was decided, row by row.
func (r *Run) execute(ctx context.Context) error {
	for n, row := range rows {
		r.reached = n + 1
		do := func(id string) error { return r.doPhases(ctx, row.phases, id) }
		if err := firstOf(forEach(row.who(r), row.oneByOne, do)); err != nil {
			return err
		}
	}
	return nil
}

// doPhases does the phases of a row for one instance. An instance that somebody
// deletes while it leaves counts as one that has left.
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
	for _, row := range slices.Backward(rows[:r.reached]) {
		if row.undo != nil {
			errs = append(errs, forEach(row.who(r), false, func(id string) error { return row.undo(r, ctx, id) })...)
		}
	}
	for _, id := range r.deleted() {
		errs = append(errs, fmt.Errorf("%s is gone: %w", id, supervisor.ErrDeleted))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.fallen()
}

// fallen says which instances that were brought back have ended since, while others
// were still brought back.
func (r *Run) fallen() error {
	_, out := r.claim.Show()
	var errs []error
	for _, i := range out {
		if launcher.State(i.State).Ended() {
			errs = append(errs, fmt.Errorf("%s is %s: %s", i.InstanceID, i.State, i.Reason))
		}
	}
	return errors.Join(errs...)
}

// forEach calls do for all ids at once and waits for all, or calls do one by one
// until it fails. The errors come in the order of the ids.
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

// leaving are the instances that leave, without those that somebody has deleted.
func (r *Run) leaving() []string {
	gone := r.deleted()
	return slices.DeleteFunc(slices.Clone(r.saved.Plan.Out), func(id string) bool { return slices.Contains(gone, id) })
}

func (r *Run) victims() []string { return r.saved.Plan.Evict }

func (r *Run) woken() []string { return r.comes(r.saved.Plan.Room != nil && !r.saved.Plan.CreatesIn()) }

func (r *Run) made() []string { return r.comes(r.saved.Plan.CreatesIn()) }

func (r *Run) movedIn() []string { return r.comes(r.saved.Plan.Room != nil) }

func (r *Run) tested() []string { return r.comes(r.saved.Canary && r.saved.Plan.In != "") }

// comes is the instance that comes in if the condition holds, else none.
func (r *Run) comes(so bool) []string {
	if !so {
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
		r.note(func(s *Saved) { s.Cut += cut })
	}
	return err
}

func (r *Run) sleep(ctx context.Context, id string) error { return r.claim.Sleep(ctx, id) }

func (r *Run) evict(ctx context.Context, id string) error {
	evicted, err := r.claim.Evict(ctx, id)
	if evicted {
		r.mu.Lock()
		r.result.Evicted = append(r.result.Evicted, id)
		r.mu.Unlock()
		r.note(func(s *Saved) { s.Evicted = append(slices.Clone(s.Evicted), id) })
	}
	return err
}

func (r *Run) wake(ctx context.Context, _ string) error    { return r.claim.Wake(ctx) }
func (r *Run) start(ctx context.Context, _ string) error   { return r.claim.Start(ctx) }
func (r *Run) healthy(ctx context.Context, _ string) error { return r.claim.Healthy(ctx) }
func (r *Run) canary(ctx context.Context, _ string) error  { return r.claim.Canary(ctx) }

func (r *Run) open(context.Context, string) error {
	r.claim.Open()
	return nil
}

func (r *Run) bringBack(ctx context.Context, id string) error { return r.claim.BringBack(ctx, id) }

func (r *Run) sendBack(ctx context.Context, id string) error {
	if err := r.claim.SendBack(ctx); err != nil {
		return fmt.Errorf("%s does not go back: %w", id, err)
	}
	return nil
}

// stopOut ends the instances that left, when the request says so: only after all rows,
// since until then an undoing brings them back. An instance that does not end in time
// goes on ending after the swap.
func (r *Run) stopOut() {
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

// deleted are the instances of the plan that somebody has deleted while they left.
func (r *Run) deleted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.result.Deleted)
}

func (r *Run) noteDeleted(id string) {
	r.mu.Lock()
	r.result.Deleted = append(r.result.Deleted, id)
	r.mu.Unlock()
	r.note(func(s *Saved) { s.Deleted = append(slices.Clone(s.Deleted), id) })
}

// note writes down what the answer of the swap is to say, for a next life of the
// launcher.
func (r *Run) note(change func(*Saved)) {
	if err := r.rewrite(change); err != nil {
		r.c.log.Warn("cannot write down what a swap has done; its answer after a restart would lack that", "swap", r.ID(), "error", err)
	}
}
